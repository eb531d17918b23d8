"""Trains a small language model twice: with dense attention, and with the selected blocks and the sliding window of
native sparse attention (Yuan et al., 2025). Prints losses and tokens per second, and draws the curves.

    python examples/python/train_nsa_lm.py                 # seconds per step on a CPU, a GPU where there is one
    python examples/python/train_nsa_lm.py --out build/lm  # where curves.svg and losses.csv go
"""

import argparse
import pathlib
import time

import torch
import torch.nn.functional as F
from tegula.torch import attention, nsa_selected_attention
from torch import nn

TEXT = pathlib.Path(__file__).resolve().parents[2] / "data" / "shakespeare.txt"


class DenseAttention(nn.Module):
    def forward(self, q, k, v, x):
        return attention(q, k, v, causal=True)[0]


class SparseAttention(nn.Module):
    """Every token reads the blocks whose mean key suits it best, its own block, and a window, weighted by a gate."""

    def __init__(self, width, heads, block_size, blocks, window):
        super().__init__()
        self.block_size, self.blocks, self.window = block_size, blocks, window
        self.gate = nn.Linear(width, 2 * heads)

    def forward(self, q, k, v, x):
        selected, _, near, _ = nsa_selected_attention(
            q, k, v, self.choose(q, k), block_size=self.block_size, diagonal=True, window=self.window
        )
        gates = self.gate(x).sigmoid().unflatten(-1, (2, -1)).unsqueeze(-1).to(selected.dtype)
        return gates[:, :, 0] * selected + gates[:, :, 1] * near

    @torch.no_grad()
    def choose(self, q, k):
        """int64 [batch, tokens, kv_heads, blocks]: the best blocks that end before the token, for a group of heads."""
        tokens, kv_heads = k.shape[1:3]
        means = k.unflatten(1, (-1, self.block_size)).float().mean(2)
        group = q.unflatten(2, (kv_heads, -1)).float().mean(3)
        scores = torch.einsum("bthd,bnhd->bthn", group, means)
        ends = torch.arange(1, means.shape[1] + 1, device=q.device) * self.block_size
        future = ends[None, :] > torch.arange(tokens, device=q.device)[:, None]
        scores = scores.masked_fill(future[None, :, None, :], -torch.inf)
        best = scores.topk(min(self.blocks, means.shape[1]), -1)
        return best.indices.masked_fill(best.values == -torch.inf, -1)


class Block(nn.Module):
    def __init__(self, config, make_attention):
        super().__init__()
        self.heads, self.kv_heads, self.dim = config.heads, config.kv_heads, config.width // config.heads
        self.before, self.between = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.project = nn.Linear(config.width, (self.heads + 2 * self.kv_heads) * self.dim)
        self.attend = make_attention()
        self.merge = nn.Linear(config.width, config.width)
        self.feed = nn.Sequential(
            nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width)
        )

    def forward(self, x):
        inside = self.before(x)
        heads = self.project(inside).unflatten(-1, (-1, self.dim))
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], 2)  # views, not copies
        x = x + self.merge(self.attend(q, k, v, inside).flatten(2).to(x.dtype))
        return x + self.feed(self.between(x))


class Model(nn.Module):
    """Predicts the next byte."""

    def __init__(self, config, make_attention):
        super().__init__()
        self.embed = nn.Embedding(256, config.width)
        self.places = nn.Parameter(torch.randn(config.tokens, config.width) * 0.02)
        self.blocks = nn.Sequential(*(Block(config, make_attention) for _ in range(config.layers)))
        self.out = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, 256))

    def forward(self, bytes_):
        return self.out(self.blocks(self.embed(bytes_) + self.places))


def train(name, make_attention, text, config):
    """The loss of every step in nats per byte, and tokens per second after the first steps, which compile kernels."""
    torch.manual_seed(0)
    model = Model(config, make_attention).to(config.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.rate)
    generator = torch.Generator().manual_seed(1)
    losses, warm_up, begin = [], min(3, config.steps - 1), 0.0
    for step in range(config.steps):
        if step == warm_up:
            begin = time.perf_counter()
        starts = torch.randint(len(text) - config.tokens, (config.batch,), generator=generator)
        windows = torch.stack([text[start : start + config.tokens + 1] for start in starts]).to(config.device)
        with torch.autocast(config.device, torch.bfloat16, enabled=config.device == "cuda"):
            scores = model(windows[:, :-1])
        loss = F.cross_entropy(scores.float().flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % max(1, config.steps // 6) == 0:
            print(f"{name:6}  step {step + 1:4}  loss {losses[-1]:.3f}", flush=True)
    speed = (config.steps - warm_up) * config.batch * config.tokens / (time.perf_counter() - begin)
    print(f"{name:6}  {speed:.0f} tokens/s")
    return losses, speed


def draw(curves, path):
    """The losses as an SVG picture."""
    width, height, margin = 640, 360, 40
    top = max(max(losses) for losses in curves.values())
    shapes = []
    for (name, losses), colour in zip(curves.items(), ("#1f5fa8", "#c8501e")):
        across = (width - 2 * margin) / max(1, len(losses) - 1)
        points = " ".join(
            f"{margin + i * across:.1f},{height - margin - loss / top * (height - 2 * margin):.1f}"
            for i, loss in enumerate(losses)
        )
        row = margin + 18 * len(shapes)
        shapes.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>'
            f'<text x="{width - 3 * margin}" y="{row}" fill="{colour}">{name} {losses[-1]:.2f}</text>'
        )
    frame = f'<path d="M{margin},{margin} V{height - margin} H{width - margin}" fill="none" stroke="black"/>'
    labels = f'<text x="{margin}" y="{margin - 10}">loss (nats per byte), 0 to {top:.2f}</text>'
    labels += f'<text x="{width // 2}" y="{height - 10}">steps</text>'
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="13"><rect width="100%" height="100%" fill="white"/>{frame}{labels}{"".join(shapes)}</svg>\n'
    )


def options():
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if gpu else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=400 if gpu else 60)
    parser.add_argument("--batch", type=int, default=8 if gpu else 4, help="sequences of a step")
    parser.add_argument("--tokens", type=int, default=4096 if gpu else 256, help="bytes of a sequence")
    parser.add_argument("--layers", type=int, default=6 if gpu else 2)
    parser.add_argument("--width", type=int, default=512 if gpu else 128)
    parser.add_argument("--heads", type=int, default=8 if gpu else 4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--block-size", type=int, default=64 if gpu else 16)
    parser.add_argument("--blocks", type=int, default=8 if gpu else 3, help="selected for every token")
    parser.add_argument("--window", type=int, default=128 if gpu else 32)
    parser.add_argument("--rate", type=float, default=1e-3 if gpu else 2e-3, help="learning rate")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/nsa_lm"))
    config = parser.parse_args()
    if config.tokens % config.block_size:
        parser.error("--tokens must be a multiple of --block-size")
    return config


def main():
    config = options()
    text = torch.tensor(list(TEXT.read_bytes()))
    curves = {}
    for name, make in {
        "dense": DenseAttention,
        "sparse": lambda: SparseAttention(config.width, config.heads, config.block_size, config.blocks, config.window),
    }.items():
        curves[name], _ = train(name, make, text, config)
    config.out.mkdir(parents=True, exist_ok=True)
    draw(curves, config.out / "curves.svg")
    rows = [",".join(curves)] + [",".join(f"{x:.5f}" for x in row) for row in zip(*curves.values())]
    (config.out / "losses.csv").write_text("\n".join(rows) + "\n")
    print(f"wrote {config.out}/curves.svg and losses.csv")


if __name__ == "__main__":
    main()
