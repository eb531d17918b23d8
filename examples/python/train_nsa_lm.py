"""Trains a small language model twice: with dense attention, and with native sparse attention (Yuan et al., 2025)
whole: learned compression, the selection by it, and a window. Prints losses and tokens per second, draws the curves,
lets the sparse model write a text from its cache, and keeps what it selects in text that it has not seen.

    python examples/python/train_nsa_lm.py                 # on a GPU where there is one, or a tiny model on a CPU
    python examples/python/train_nsa_lm.py --out build/lm  # where curves, losses, text and selections go
"""

import argparse
import pathlib
import time

import torch
import torch.nn.functional as F
from tegula.torch import NativeSparseAttention, NativeSparseCache, attention, rms_norm, rope
from torch import nn

TEXT = pathlib.Path(__file__).resolve().parents[2] / "data" / "shakespeare.txt"


class DenseAttention(nn.Module):
    def forward(self, q, k, v, x):
        return attention(q, k, v, causal=True)[0]


def rotations_of(tokens, dim, device):
    """cos and sin [tokens, dim / 2] of the angles of rotary positions (Su et al., 2021)."""
    rates = 10000.0 ** -(torch.arange(0, dim, 2, device=device) / dim)
    angles = torch.arange(tokens, device=device)[:, None] * rates
    return angles.cos(), angles.sin()


class Norm(nn.Module):
    """Divides by the root mean square of the features, in the dtype of what follows."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return rms_norm(x, weight=self.weight)


def feed_forward(width):
    return nn.Sequential(
        nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
    )


class Block(nn.Module):
    def __init__(self, config, make_attention):
        super().__init__()
        self.heads, self.kv_heads, self.dim = config.heads, config.kv_heads, config.width // config.heads
        self.before, self.between = Norm(config.width), Norm(config.width)
        self.project = nn.Linear(config.width, (self.heads + 2 * self.kv_heads) * self.dim, bias=False)
        self.attend = make_attention()
        self.merge = nn.Linear(config.width, config.width, bias=False)
        self.feed = feed_forward(config.width)

    def forward(self, x, rotations):
        inside = self.before(x)
        heads = self.project(inside).unflatten(-1, (-1, self.dim))
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], 2)  # views, not copies
        q, k = rope(q, *rotations), rope(k, *rotations)
        x = x + self.merge(self.attend(q, k, v, inside).flatten(2).to(x.dtype))
        return x + self.feed(self.between(x))


class SparseBlock(nn.Module):
    """As Block, with the module of native sparse attention, whose compression is learned."""

    def __init__(self, config):
        super().__init__()
        self.before, self.between = Norm(config.width), Norm(config.width)
        self.attend = NativeSparseAttention(
            config.width, config.heads, config.kv_heads, compression="gated", block_size=config.block_size,
            count=config.blocks, length=config.block_size // 2, stride=config.block_size // 4, window=config.window,
        )  # fmt: skip
        self.feed = feed_forward(config.width)

    def forward(self, x, cache=None):
        x = x + self.attend(self.before(x), cache)
        return x + self.feed(self.between(x))


class SparseModel(nn.Module):
    """Predicts the next byte; with caches, one for each block, of bytes that follow those before."""

    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(256, config.width)
        self.blocks = nn.ModuleList(SparseBlock(config) for _ in range(config.layers))
        self.out = nn.Sequential(Norm(config.width), nn.Linear(config.width, 256))

    def forward(self, bytes_, caches=None):
        x = self.embed(bytes_)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks)):
            x = block(x, cache)
        return self.out(x)

    @torch.no_grad()
    def generate(self, prompt, count, temperature=0.8):
        """So many bytes after the prompt [1, bytes], each by a pass over the last one and the caches."""
        generator = torch.Generator().manual_seed(2)
        caches, text = [NativeSparseCache() for _ in self.blocks], prompt
        last = prompt
        for _ in range(count):
            shares = (self(last, caches)[:, -1].float() / temperature).softmax(-1).cpu()
            last = torch.multinomial(shares, 1, generator=generator).to(prompt.device)
            text = torch.cat((text, last), 1)
        return bytes(text[0].tolist()).decode(errors="replace")

    @torch.no_grad()
    def selections(self, bytes_):
        """int32 [layers, tokens, kv_heads, blocks] of one sequence [1, bytes]."""
        x, chosen = self.embed(bytes_), []
        for block in self.blocks:
            chosen.append(block.attend.select(block.before(x))[0].cpu())
            x = block(x)
        return torch.stack(chosen)


class Model(nn.Module):
    """Predicts the next byte."""

    def __init__(self, config, make_attention):
        super().__init__()
        self.dim = config.width // config.heads
        self.embed = nn.Embedding(256, config.width)
        self.blocks = nn.ModuleList(Block(config, make_attention) for _ in range(config.layers))
        self.out = nn.Sequential(Norm(config.width), nn.Linear(config.width, 256))

    def forward(self, bytes_):
        x, rotations = self.embed(bytes_), rotations_of(bytes_.shape[1], self.dim, bytes_.device)
        for block in self.blocks:
            x = block(x, rotations)
        return self.out(x)


def windows_of(text, starts, tokens):
    """int64 [sequences, tokens + 1]: the bytes from each start on, and the one that follows them."""
    return torch.stack([text[start : start + tokens + 1] for start in starts])


def loss_of(model, windows, config):
    with torch.autocast(config.device, torch.bfloat16, enabled=config.device == "cuda"):
        scores = model(windows[:, :-1])
    return F.cross_entropy(scores.float().flatten(0, 1), windows[:, 1:].flatten())


class Step:
    """A step of training. On a GPU the third is recorded as a CUDA graph, which replays from then on: a step is
    hundreds of short kernels, and launching them takes the host longer than running them takes the GPU."""

    warm_up = 3  # the first compile kernels, the last of these is recorded

    def __init__(self, model, config):
        gpu = config.device == "cuda"
        self.model, self.config, self.taken, self.graph = model, config, 0, None
        # In memory: a recorded step reads what the schedule writes.
        rate = torch.tensor(config.rate, device=config.device)
        self.optimizer = torch.optim.AdamW(model.parameters(), rate, fused=gpu, capturable=gpu)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, config.rate, total_steps=config.steps, pct_start=0.1, cycle_momentum=False
        )
        self.windows = torch.empty(config.batch, config.tokens + 1, dtype=torch.int64, device=config.device)
        self.stream = torch.cuda.Stream() if gpu else None

    def work(self):
        self.optimizer.zero_grad()
        loss = loss_of(self.model, self.windows, self.config)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def on_gpu(self):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            if self.taken < self.warm_up - 1:
                loss = self.work()
            else:
                if self.graph is None:
                    self.graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(self.graph, stream=self.stream):
                        self.loss = self.work()
                self.graph.replay()
                loss = self.loss
        torch.cuda.current_stream().wait_stream(self.stream)
        return loss

    def __call__(self, windows):
        """The loss of windows before the step."""
        self.windows.copy_(windows)
        loss = (self.on_gpu if self.stream else self.work)().item()
        self.taken += 1
        self.schedule.step()
        return loss


def train(name, make_model, text, held_out, config):
    """The loss of every step in nats per byte, and what to call the curve."""
    torch.manual_seed(0)
    model = make_model().to(config.device)
    step, generator = Step(model, config), torch.Generator().manual_seed(1)
    losses, warm_up, begin = [], min(Step.warm_up, config.steps - 1), 0.0
    for number in range(config.steps):
        if number == warm_up:
            begin = time.perf_counter()
        starts = torch.randint(len(text) - config.tokens, (config.batch,), generator=generator)
        losses.append(step(windows_of(text, starts, config.tokens)))
        if (number + 1) % max(1, config.steps // 6) == 0:
            print(f"{name:6}  step {number + 1:4}  loss {losses[-1]:.3f}", flush=True)
    speed = (config.steps - warm_up) * config.batch * config.tokens / (time.perf_counter() - begin)
    with torch.no_grad():
        starts = range(0, len(held_out) - config.tokens, config.tokens)
        unseen = loss_of(model, windows_of(held_out, starts, config.tokens), config).item()
    print(f"{name:6}  {speed:.0f} tokens/s, loss of held-out text {unseen:.3f}")
    return losses, f"{name}, {speed / 1000:.3g} thousand tokens/s", model


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
    """Trains each of the models, by name, on the same text, and gives them; draws and writes their losses."""
    text = torch.tensor(list(config.text.read_bytes()), device=config.device)
    seen = len(text) * 7 // 8
    curves, trained = {}, {}
    for name, make in models.items():
        losses, label, trained[name] = train(name, make, text[:seen], text[seen:], config)
        curves[label] = losses
    config.out.mkdir(parents=True, exist_ok=True)
    draw(curves, config.out / "curves.svg")
    rows = [",".join(models)] + [",".join(f"{x:.5f}" for x in row) for row in zip(*curves.values())]
    (config.out / "losses.csv").write_text("\n".join(rows) + "\n")
    print(f"wrote {config.out}/curves.svg and losses.csv")
    return trained


def show(model, config):
    """A text by the trained model, and what it selects in text that it has not seen."""
    text = torch.tensor(list(config.text.read_bytes()[-config.tokens :]), device=config.device)[None]
    with torch.autocast(config.device, torch.bfloat16, enabled=config.device == "cuda"):
        written = model.generate(text[:, : min(config.tokens, 64)], config.generate)
        chosen = model.selections(text)
    print(f"--- generated ---\n{written}\n---")
    (config.out / "generated.txt").write_text(written)
    torch.save(chosen, config.out / "selections.pt")
    print(f"wrote {config.out}/generated.txt and selections.pt")


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
    parser.add_argument("--text", type=pathlib.Path, default=TEXT, help="its last eighth is held out")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(out))
    return parser


def main():
    parser = parser_of(__doc__, "build/nsa_lm")
    parser.add_argument("--layers", type=int, default=6 if torch.cuda.is_available() else 2)
    parser.add_argument("--generate", type=int, default=400, help="bytes that the sparse model writes")
    config = parser.parse_args()
    if config.block_size % 4:
        parser.error("--block-size must be a multiple of four")

    trained = compare({"dense": lambda: Model(config, DenseAttention), "sparse": lambda: SparseModel(config)}, config)
    show(trained["sparse"], config)


if __name__ == "__main__":
    main()
