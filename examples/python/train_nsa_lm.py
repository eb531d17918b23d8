"""Trains a small language model twice: with dense attention, and with the selected blocks and the sliding window of
native sparse attention (Yuan et al., 2025). Prints losses and tokens per second, and draws the curves.

    python examples/python/train_nsa_lm.py                 # on a GPU where there is one, or a tiny model on a CPU
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
        # The window as attention of its own: on a GPU its gradients are cheaper than by the option of the same name.
        selected = nsa_selected_attention(q, k, v, self.choose(q, k), block_size=self.block_size, diagonal=True).out
        near, _ = attention(q, k, v, causal=True, left=self.window - 1)
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


def turns_of(tokens, dim, device):
    """cos and sin [tokens, 1, dim / 2] of the angles of rotary positions (Su et al., 2021)."""
    rates = 10000.0 ** -(torch.arange(0, dim, 2, device=device) / dim)
    angles = (torch.arange(tokens, device=device)[:, None] * rates)[:, None]
    return angles.cos(), angles.sin()


def turn(x, turns):
    cos, sin = (part.to(x.dtype) for part in turns)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


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

    def forward(self, x, turns):
        inside = self.before(x)
        heads = self.project(inside).unflatten(-1, (-1, self.dim))
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], 2)  # views, not copies
        q, k = turn(q, turns), turn(k, turns)
        x = x + self.merge(self.attend(q, k, v, inside).flatten(2).to(x.dtype))
        return x + self.feed(self.between(x))


class Model(nn.Module):
    """Predicts the next byte."""

    def __init__(self, config, make_attention):
        super().__init__()
        self.dim = config.width // config.heads
        self.embed = nn.Embedding(256, config.width)
        self.blocks = nn.ModuleList(Block(config, make_attention) for _ in range(config.layers))
        self.out = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, 256))

    def forward(self, bytes_):
        x, turns = self.embed(bytes_), turns_of(bytes_.shape[1], self.dim, bytes_.device)
        for block in self.blocks:
            x = block(x, turns)
        return self.out(x)


def loss_of(model, text, starts, config):
    windows = torch.stack([text[start : start + config.tokens + 1] for start in starts]).to(config.device)
    with torch.autocast(config.device, torch.bfloat16, enabled=config.device == "cuda"):
        scores = model(windows[:, :-1])
    return F.cross_entropy(scores.float().flatten(0, 1), windows[:, 1:].flatten())


def train(name, make_model, text, held_out, config):
    """The loss of every step in nats per byte, and what to call the curve."""
    torch.manual_seed(0)
    model = make_model().to(config.device)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.rate, total_steps=config.steps, pct_start=0.1)
    generator = torch.Generator().manual_seed(1)
    losses, warm_up, begin = [], min(3, config.steps - 1), 0.0  # the first steps compile kernels
    for step in range(config.steps):
        if step == warm_up:
            begin = time.perf_counter()
        starts = torch.randint(len(text) - config.tokens, (config.batch,), generator=generator)
        loss = loss_of(model, text, starts, config)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if (step + 1) % max(1, config.steps // 6) == 0:
            print(f"{name:6}  step {step + 1:4}  loss {losses[-1]:.3f}", flush=True)
    speed = (config.steps - warm_up) * config.batch * config.tokens / (time.perf_counter() - begin)
    with torch.no_grad():
        unseen = loss_of(model, held_out, range(0, len(held_out) - config.tokens, config.tokens), config).item()
    print(f"{name:6}  {speed:.0f} tokens/s, loss of held-out text {unseen:.3f}")
    return losses, f"{name}, {speed / 1000:.3g} thousand tokens/s"


def draw(curves, path):
    """The losses, under the names of their curves, as an SVG picture."""
    width, height, margin = 640, 360, 40
    top, steps = max(max(losses) for losses in curves.values()), len(next(iter(curves.values())))

    def place(step, loss):
        across = (width - 2 * margin) * step / max(1, steps - 1)
        return f"{margin + across:.1f},{height - margin - loss / top * (height - 2 * margin):.1f}"

    shapes = [f'<path d="M{place(0, top)} L{place(0, 0)} L{place(steps - 1, 0)}" fill="none" stroke="black"/>']
    for loss in range(int(top) + 1):
        x, y = place(0, loss).split(",")
        shapes.append(f'<path d="M{x},{y} H{width - margin}" stroke="#ddd"/>')
        shapes.append(f'<text x="{margin - 18}" y="{y}">{loss}</text>')
    for row, ((name, losses), colour) in enumerate(zip(curves.items(), ("#1f5fa8", "#c8501e"))):
        points = " ".join(place(step, loss) for step, loss in enumerate(losses))
        shapes.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>'
            f'<text x="{width // 2}" y="{margin + 18 * row}" fill="{colour}">{name}</text>'
        )
    shapes.append(f'<text x="{margin}" y="{margin - 16}">loss, nats per byte</text>')
    shapes.append(f'<text x="{width - 2 * margin}" y="{height - 16}">{steps} steps</text>')
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="13"><rect width="100%" height="100%" fill="white"/>{"".join(shapes)}</svg>\n'
    )


def compare(models, config):
    """Trains each of the models, by name, on the same text; draws and writes their losses."""
    text = torch.tensor(list(TEXT.read_bytes()))
    seen = len(text) * 7 // 8
    curves = {}
    for name, make in models.items():
        losses, label = train(name, make, text[:seen], text[seen:], config)
        curves[label] = losses
    config.out.mkdir(parents=True, exist_ok=True)
    draw(curves, config.out / "curves.svg")
    rows = [",".join(models)] + [",".join(f"{x:.5f}" for x in row) for row in zip(*curves.values())]
    (config.out / "losses.csv").write_text("\n".join(rows) + "\n")
    print(f"wrote {config.out}/curves.svg and losses.csv")


def parser_of(doc, out):
    """The options that trainings share, larger where there is a GPU."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if gpu else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=300 if gpu else 150)
    parser.add_argument("--batch", type=int, default=1 if gpu else 4, help="sequences of a step")
    parser.add_argument("--tokens", type=int, default=32768 if gpu else 256, help="bytes of a sequence")
    parser.add_argument("--width", type=int, default=512 if gpu else 128)
    parser.add_argument("--heads", type=int, default=8 if gpu else 4)
    parser.add_argument("--kv-heads", type=int, default=1 if gpu else 2)
    parser.add_argument("--block-size", type=int, default=64 if gpu else 16)
    parser.add_argument("--blocks", type=int, default=8 if gpu else 3, help="selected for every token")
    parser.add_argument("--window", type=int, default=128 if gpu else 32)
    parser.add_argument("--rate", type=float, default=2e-3 if gpu else 5e-3, help="learning rate")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(out))
    return parser


def main():
    parser = parser_of(__doc__, "build/nsa_lm")
    parser.add_argument("--layers", type=int, default=6 if torch.cuda.is_available() else 2)
    config = parser.parse_args()
    if config.tokens % config.block_size:
        parser.error("--tokens must be a multiple of --block-size")

    def sparse():
        return SparseAttention(config.width, config.heads, config.block_size, config.blocks, config.window)

    compare({"dense": lambda: Model(config, DenseAttention), "sparse": lambda: Model(config, sparse)}, config)


if __name__ == "__main__":
    main()
