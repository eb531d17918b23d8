"""Draws lines of bench_cuda about selected or chosen blocks as bars: chart.py chart.svg LINES.jsonl...

The length of a bar is the rate of attended work, and beside it stands the time. Where lines of rivals.py are among those given,
also how it compares: selected blocks with the time of dense attention of the same tokens and heads, chosen blocks with the rate of
dense attention without a mask."""
import json
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 860, 330, 170, 16, 12, 44
COLOURS = {"forward": "#4878a8", "backward": "#5a9a5a"}


class Bar:
    def __init__(self, row):
        words = row["workload"].split()
        self.row, self.selected = row, words[0] == "nsa"
        self.backward = words[1] == "backward"
        if self.selected:
            # nsa [backward] TYPE TOKENSxHEADSxKV_HEADSxDIM SELECTION
            self.tokens, self.heads, self.kv_heads, _ = [int(n) for n in words[2 + self.backward].split("x")]
            self.group = "%s, %d tokens" % ("backward" if self.backward else "forward", self.tokens)
            self.title = "%d heads of %d, %s" % (self.heads, self.kv_heads, " ".join(words[3 + self.backward:]))
        else:
            # block sparse TYPE TOKENSxHEADSxKV_HEADSxDIM BLOCKS 1 of PERIOD [WORDS]
            self.tokens, self.heads, self.kv_heads, _ = [int(n) for n in words[3].split("x")]
            causal = "causal" in words[8:]
            self.group = "%d tokens%s" % (self.tokens, ", causal" if causal else "")
            self.title = "blocks of " + " ".join([words[4]] + [word for word in words[8:] if word != "causal"])

    def comparison(self, rivals):
        if self.selected:
            dense = rivals.get("attention bf16 1x%dx%dx128 causal group %d" %
                               (self.tokens, self.heads, self.heads // self.kv_heads))
            return ", %.1f x dense" % (dense["ms"] / self.row["ms"]) if dense and not self.backward else ""
        dense = rivals.get("attention bf16 1x16384x%dx128 full group %d" % (self.heads, self.heads // self.kv_heads))
        return ", %.2f x dense" % (self.row["tflops"] / dense["tflops"]) if dense else ""


def text(x, y, what, size=12, anchor="start", colour="#222"):
    return '<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s" fill="%s">%s</text>' % (x, y, size, anchor, colour,
                                                                                          escape(what))


def draw(bars, rivals, scale):
    parts, y, group = [], TOP, None
    for bar in bars:
        if bar.group != group:
            y += GAP if group else 0
            parts.append(text(8, y + BAR - 4, bar.group))
            group = bar.group
        length = bar.row["tflops"] * scale
        parts.append(text(LEFT - 8, y + BAR - 4, bar.title, size=11, anchor="end"))
        parts.append('<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="%s"/>' %
                     (LEFT, y, length, BAR - 3, COLOURS["backward" if bar.backward else "forward"]))
        parts.append(text(LEFT + length + 5, y + BAR - 4, "%.2f ms%s" % (bar.row["ms"], bar.comparison(rivals)), size=11))
        y += BAR
    return parts, y + GAP


def axis(scale, longest, bottom):
    parts, step = [text(8, 20, "TFLOPS of attended work")], 50 if longest < 400 else 100
    for value in range(0, int(longest) + 1, step):
        x = LEFT + value * scale
        parts.append('<line x1="%.1f" x2="%.1f" y1="%d" y2="%.1f" stroke="#ddd"/>' % (x, x, TOP - 10, bottom))
        parts.append(text(x, TOP - 14, str(value), size=11, anchor="middle", colour="#555"))
    return parts


def main(target, sources):
    rows = []
    for source in sources:
        with open(source) as file:
            rows += [json.loads(line) for line in file if line.startswith("{")]
    rows = {row["workload"]: row for row in rows if "ms" in row}
    bars = [Bar(row) for name, row in rows.items() if name.startswith(("nsa ", "block sparse "))]
    bars.sort(key=lambda bar: (bar.backward, bar.tokens, -bar.heads) if bar.selected else (0,))
    longest = max(bar.row["tflops"] for bar in bars)
    scale = (WIDTH - LEFT - RIGHT) / longest
    parts, bottom = draw(bars, rows, scale)
    with open(target, "w") as file:
        file.write('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif">\n' %
                   (WIDTH, bottom))
        file.write('<rect width="100%" height="100%" fill="white"/>\n')
        file.write("\n".join(axis(scale, longest, bottom - GAP) + parts))
        file.write("\n</svg>\n")


main(sys.argv[1], sys.argv[2:])
