"""Times of the stages of native sparse attention, forward and backward, as JSON, a table and a chart.

    python bench/python/nsa_stages.py                              # on a GPU where there is one
    python bench/python/nsa_stages.py --selections selections.pt   # also what examples/python/train_nsa_lm.py selected

Medians of rounds; on a GPU by events. The selected branch is timed with the module's own choice on random inputs, with
random blocks, and with captured selections, which are repeated up to each length; overlap is the share of a token's
blocks that the token before it has too. The call of all stages sums the branches in the kernel of the selected blocks,
without a stage of its own for the gates.
"""

import argparse
import json
import pathlib
import statistics
import time

import tegula.torch as tt
import torch

STAGES = ("compress", "compressed attention", "score + select", "selected", "selected, random", "selected, captured",
          "window", "gate", "all, one call")  # fmt: skip
COLOURS = ("#1f5fa8", "#4c9bd4", "#c8501e", "#e39b2d", "#f0cf8a", "#a8641f", "#4f8f3a", "#7a4fa0", "#555555")


def milliseconds(call, device, rounds):
    call()
    times = []
    for _ in range(rounds):
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def overlap(choice):
    """Of [1, tokens, kv_heads, count]: the share of a token's blocks that the one before it has too."""
    here, before = choice[0, 1:], choice[0, :-1]
    shared = torch.zeros(here.shape, dtype=torch.bool, device=choice.device)
    for column in before.unbind(-1):  # one by one: all pairs at once would take much memory
        shared |= here == column[..., None]
    there = here >= 0
    return float((shared & there).sum() / there.sum().clamp(min=1))


def random_choice(tokens, kv_heads, count, block_size, device):
    """Different blocks up to the own one for every token, its own among them."""
    rows = []
    own = torch.arange(tokens, device=device) // block_size
    numbers = torch.arange(tokens // block_size, device=device)
    for part in own.split(4096):
        draws = torch.rand(len(part), kv_heads, len(numbers), device=device)
        draws = draws.masked_fill(numbers > part[:, None, None], -1)
        draws = draws.masked_fill(numbers == part[:, None, None], 2)
        best = draws.topk(min(count, len(numbers)), -1)
        rows.append(best.indices.masked_fill(best.values < 0, -1))
    return torch.cat(rows)[None].int()


def captured_choice(path, tokens, kv_heads, block_size, device):
    """Of the last layer: for later tokens the choice is repeated, moved on by as many blocks."""
    chosen = torch.load(path)[-1].to(device)
    length = chosen.shape[0] // block_size * block_size
    parts = []
    for at in range(0, tokens, length):
        part = chosen[: min(length, tokens - at)]
        parts.append(torch.where(part >= 0, part + at // block_size, -1))
    chosen = torch.cat(parts)
    return chosen[:, torch.arange(kv_heads, device=device) % chosen.shape[1]][None].contiguous()


def stages(config, tokens):
    """What is timed: name, forward, tensors whose gradients are wanted (none: no backward), overlap or None."""
    make = dict(device=config.device, dtype=getattr(torch, config.dtype))
    q = torch.randn(1, tokens, config.heads, config.dim, **make).requires_grad_()
    k, v = (torch.randn(1, tokens, config.kv_heads, config.dim, **make).requires_grad_() for _ in range(2))
    windows = {"length": config.length, "stride": config.stride}
    with torch.no_grad():
        entries = [tt.nsa_compress(x, **windows) for x in (k, v)]
        coarse, lse = tt.nsa_compressed_attention(q, *entries, **windows)
    entries = [x.requires_grad_() for x in entries]
    detached = q.detach(), entries[0].detach()

    def select():
        return tt.nsa_select(*detached, lse, config.count, block_size=config.block_size, **windows)

    yield "compress", lambda: [tt.nsa_compress(x, **windows) for x in (k, v)], (k, v), None
    yield "compressed attention", lambda: tt.nsa_compressed_attention(q, *entries, **windows)[:1], (q, *entries), None
    yield "score + select", select, (), None
    choices = {
        "selected": select(),
        "selected, random": random_choice(tokens, config.kv_heads, config.count, config.block_size, config.device),
    }
    if config.selections:
        choices["selected, captured"] = captured_choice(
            config.selections, tokens, config.kv_heads, config.block_size, config.device
        )
    for name, choice in choices.items():
        yield (
            name,
            lambda choice=choice: tt.nsa_selected_attention(q, k, v, choice, block_size=config.block_size)[:1],
            (q, k, v),
            overlap(choice),
        )
    yield "window", lambda: tt.attention(q, k, v, causal=True, left=config.window - 1)[:1], (q, k, v), None
    branches = [torch.randn_like(coarse).requires_grad_() for _ in range(3)]
    gates = torch.randn(1, tokens, config.heads, 3, **make).requires_grad_()
    yield (
        "gate",
        lambda: [tt.nsa_combine(branches[0], branches[1], gates, window=branches[2])],
        (*branches, gates),
        None,
    )
    sizes = {"block_size": config.block_size, "count": config.count, "window": config.window, **windows}
    yield "all, one call", lambda: [tt.native_sparse_attention(q, k, v, gates, **sizes)], (q, k, v, gates), None


def measure(config):
    rows = []
    for tokens in config.tokens:
        for name, call, wanted, shared in stages(config, tokens):
            with torch.no_grad():
                row = {"tokens": tokens, "stage": name, "forward_ms": milliseconds(call, config.device, config.rounds)}
            if wanted:
                outs = call()
                given = [torch.randn_like(x) for x in outs]
                row["backward_ms"] = milliseconds(
                    lambda: torch.autograd.grad(outs, wanted, given, retain_graph=True),  # noqa: B023
                    config.device, config.rounds,
                )  # fmt: skip
                del outs, given
            if shared is not None:
                row["overlap"] = shared
            print(json.dumps(row), flush=True)
            rows.append(row)
    return rows


def table(rows):
    lengths = sorted({row["tokens"] for row in rows})
    head = ["stage", *(f"{n} tokens: forward, backward, ms" for n in lengths), "overlap"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for stage in STAGES:
        found = {row["tokens"]: row for row in rows if row["stage"] == stage}
        if not found:
            continue
        cells = [
            f"{row['forward_ms']:.3g}, " + (f"{row['backward_ms']:.3g}" if "backward_ms" in row else "–")
            for _, row in sorted(found.items())
        ]
        shares = [f"{row['overlap']:.0%}" for _, row in sorted(found.items()) if "overlap" in row]
        lines.append("| " + " | ".join([stage, *cells, ", ".join(shares) or "–"]) + " |")
    return "\n".join(lines) + "\n"


def chart(rows):
    """Bars of each length, forward and backward, of the stages of one pass: its own choice of blocks only."""
    bars = [(n, way) for n in sorted({row["tokens"] for row in rows}) for way in ("forward", "backward")]
    main = [row for row in rows if "," not in row["stage"]]
    totals = [sum(r.get(f"{way}_ms", 0) for r in main if r["tokens"] == n) for n, way in bars]
    height, shapes = 24 * len(bars) + 90, []
    for at, ((n, way), total) in enumerate(zip(bars, totals)):
        x, y = 150.0, 40 + 24 * at
        shapes.append(f'<text x="8" y="{y + 14}">{n} {way}, {total:.3g} ms</text>')
        for stage, colour in zip(STAGES, COLOURS):
            share = sum(r.get(f"{way}_ms", 0) for r in main if r["tokens"] == n and r["stage"] == stage)
            width = 480 * share / total if total else 0
            shapes.append(f'<rect x="{x + 30:.1f}" y="{y}" width="{width:.1f}" height="18" fill="{colour}"/>')
            x += width
    shown = [pair for pair in zip(STAGES, COLOURS) if "," not in pair[0]]
    for at, (stage, colour) in enumerate(shown):
        shapes.append(f'<text x="{8 + 112 * at}" y="{height - 14}" fill="{colour}">{stage}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{height}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/><text x="8" y="22">shares of the time of a pass</text>'
        f'{"".join(shapes)}</svg>\n'
    )


def main():
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if gpu else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="bfloat16" if gpu else "float32")
    lengths = [8192, 16384, 32768, 65536, 131072] if gpu else [1024, 4096]
    parser.add_argument("--tokens", type=int, nargs="+", default=lengths)
    for name, value in (("heads", 64), ("kv-heads", 4), ("dim", 128), ("length", 32), ("stride", 16),
                        ("block-size", 64), ("count", 16), ("window", 512), ("rounds", 10)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--selections", type=pathlib.Path, help="selections.pt of the trained example")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/nsa_stages"))
    config = parser.parse_args()
    rows = measure(config)
    config.out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name() if config.device == "cuda" else "CPU"
    settings = {key: str(value) if isinstance(value, pathlib.Path) else value for key, value in vars(config).items()}
    (config.out / "stages.json").write_text(json.dumps({"device": name, **settings, "rows": rows}, indent=1) + "\n")
    (config.out / "stages.md").write_text(table(rows))
    (config.out / "stages.svg").write_text(chart(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
