"""Draws the lines of bench_cuda about selected blocks as bars: chart.py lines.jsonl chart.svg

Bars of one problem stand together, in the order of the lines; their length is the rate of attended work, and beside it
stands the time. A line may have a "way" of computing and a "rival", the time of another library."""
import json
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 860, 310, 150, 15, 13, 56
COLOURS = {"tiles": "#4878a8", "tiles and keys": "#d2803c", "keys": "#5a9a5a"}
OTHER = "#808080"


def title_of(workload):
    """nsa [backward] TYPE TOKENSxHEADSxKV_HEADSxDIM SELECTION"""
    words = workload.split()
    backward = words[1] == "backward"
    tokens, heads, kv_heads, _ = words[-2].split("x")
    return "%s, %s tokens, %s heads of %s, %s" % ("backward" if backward else "forward", tokens, heads, kv_heads,
                                                   words[-1])


def groups_of(rows):
    groups = {}
    for row in rows:
        if "ms" in row:
            groups.setdefault(title_of(row["workload"]), []).append(row)
    return groups


def text(x, y, what, size=12, anchor="start", colour="#222"):
    return '<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s" fill="%s">%s</text>' % (x, y, size, anchor, colour,
                                                                                          escape(what))


def draw(groups):
    longest = max(row["tflops"] for rows in groups.values() for row in rows)
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts, y = [], TOP
    for title, rows in groups.items():
        parts.append(text(LEFT - 8, y + BAR * len(rows) / 2 + 4, title, anchor="end"))
        for row in rows:
            length = row["tflops"] * scale
            parts.append('<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="%s"/>' %
                         (LEFT, y, length, BAR - 2, COLOURS.get(row.get("way"), OTHER)))
            label = "%.2f ms" % row["ms"]
            if "rival" in row:
                label += ", %.1f x %s" % (row["rival"] / row["ms"], row.get("rival_name", "rival"))
            parts.append(text(LEFT + length + 5, y + BAR - 4, label, size=11))
            y += BAR
        y += GAP
    return parts, y, scale, longest


def axis(scale, longest, bottom):
    parts, step = [], 50
    for value in range(0, int(longest) + 1, step):
        x = LEFT + value * scale
        parts.append('<line x1="%.1f" x2="%.1f" y1="%d" y2="%.1f" stroke="#ddd"/>' % (x, x, TOP - 8, bottom))
        parts.append(text(x, TOP - 14, str(value), size=11, anchor="middle", colour="#555"))
    return parts


def legend(groups):
    parts, x = [text(LEFT, 16, "TFLOPS of attended work", size=12)], LEFT + 190
    used = {row.get("way") for rows in groups.values() for row in rows}
    for way in [way for way in COLOURS if way in used]:
        parts.append('<rect x="%d" y="6" width="12" height="12" fill="%s"/>' % (x, COLOURS[way]))
        parts.append(text(x + 17, 16, way))
        x += 40 + 7 * len(way)
    return parts


def main(source, target):
    with open(source) as file:
        groups = groups_of([json.loads(line) for line in file if line.strip()])
    bars, bottom, scale, longest = draw(groups)
    with open(target, "w") as file:
        file.write('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif">\n' %
                   (WIDTH, bottom))
        file.write('<rect width="100%" height="100%" fill="white"/>\n')
        file.write("\n".join(legend(groups) + axis(scale, longest, bottom - GAP) + bars))
        file.write("\n</svg>\n")


main(*sys.argv[1:3])
