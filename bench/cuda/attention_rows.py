"""Attention and its gradients beside cuDNN's and FlashAttention-4's, in turns in one process, outputs compared; one line of
JSON a row.

    python bench/cuda/attention_rows.py [--part I/N] [--rounds N] [WORD...]    only rows whose names have one of the words

Rates count visible pairs: four operations a feature forward, ten backward. A row without "cudnn ms" has no such call in
PyTorch, one without "fa4 ms" none in flash-attn-4, or the package is not installed; "x cudnn" is cuDNN's time divided by
Tegula's, "differs cudnn" the largest difference of a result by its largest value.
"""

import dataclasses
import statistics
import sys

import tegula
import torch
import torch.nn.functional as F
from rivals import print_rows, rounds_of
from torch.nn.attention import SDPBackend, sdpa_kernel

try:
    from flash_attn.cute import flash_attn_func
except ImportError:
    flash_attn_func = None


@dataclasses.dataclass
class Row:
    name: str
    batch: int
    queries: int
    heads: int
    kv_heads: int
    d: int
    d_v: int = 0
    keys: int = 0
    causal: bool = False
    left: int = -1
    backward: bool = False
    deterministic: bool = True

    def __post_init__(self):
        self.d_v, self.keys = self.d_v or self.d, self.keys or self.queries

    def pairs(self):
        if self.left >= 0:
            seen = min(self.left + 1, self.keys)
            return seen * (seen + 1) / 2 + (self.keys - seen) * seen
        return self.queries * self.keys * (0.5 if self.causal else 1)

    def operations(self):
        features = 3 * self.d + 2 * self.d_v if self.backward else self.d + self.d_v
        return 2.0 * self.batch * self.heads * self.pairs() * features


def both(what, batch, length, heads, kv_heads, d, backward=False, **more):
    for causal in (False, True):
        name = f"{what} {batch}x{length} {heads}/{kv_heads} d={d}{' causal' if causal else ''}"
        yield Row(name, batch, length, heads, kv_heads, d, causal=causal, backward=backward, **more)


def rows():
    """The largest gaps of earlier runs first."""
    for batch, keys, heads, kv_heads, d in ((1, 8192, 64, 8, 128), (8, 8192, 64, 8, 128), (8, 8192, 16, 2, 128), (8, 8192, 32, 2, 256)):
        yield Row(f"decode {batch}x{keys} {heads}/{kv_heads} d={d}", batch, 1, heads, kv_heads, d, keys=keys)
    yield from both("backward 192/128", 1, 8192, 64, 64, 192, True, d_v=128)
    yield from both("forward 192/128", 1, 8192, 64, 64, 192, d_v=128)
    for length in (4096, 8192):
        yield Row(f"backward 1x{length} 32/2 d=256 causal", 1, length, 32, 2, 256, causal=True, backward=True)
        yield Row(f"forward 1x{length} 32/2 d=256 causal", 1, length, 32, 2, 256, causal=True)
    yield from both("backward", 2, 8192, 32, 32, 64, True)
    yield from both("forward", 2, 8192, 32, 32, 64)
    for heads, kv_heads in ((64, 64), (64, 8)):
        for what, backward in (("forward", False), ("backward", True)):
            yield Row(f"{what} 2x8192 {heads}/{kv_heads} d=64 window 128", 2, 8192, heads, kv_heads, 64, causal=True, left=127, backward=backward)
    for group in (1, 2, 4, 8, 32):
        yield Row(f"backward 1x4096 32/{32 // group} d=128", 1, 4096, 32, 32 // group, 128, backward=True)
    for length in (2048, 4096, 8192, 16384):
        yield from both("backward", 1, length, 64, 8, 128, True)
        yield from both("forward", 1, length, 64, 8, 128)
    for batch, length in ((64, 257), (128, 64), (32, 512)):
        for what, backward in (("forward", False), ("backward", True)):
            yield Row(f"{what} {batch}x{length} 16/4 d=128 causal", batch, length, 16, 4, 128, causal=True, backward=backward)


def make_tensors(row):
    """Queries, keys, values and a gradient [batch, tokens, heads, features]."""
    shapes = ((row.queries, row.heads, row.d), (row.keys, row.kv_heads, row.d), (row.keys, row.kv_heads, row.d_v),
              (row.queries, row.heads, row.d_v))  # fmt: skip
    return [torch.randn(row.batch, *shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]


def own_call(row, q, k, v, dout):
    options = {"causal": row.causal, "left": row.left}
    if not row.backward:
        return lambda: tegula.attention(q, k, v, **options)[:1]
    out, lse = tegula.attention(q, k, v, **options)
    return lambda: tegula.attention_backward(dout, q, k, v, out, lse, **options, deterministic=row.deterministic)[:3]


def cudnn_call(row, q, k, v, dout):
    """None where PyTorch's cuDNN has no such call."""
    if row.left >= 0:
        return None
    inputs = [x.transpose(1, 2).detach().requires_grad_(row.backward) for x in (q, k, v)]
    attend = {"is_causal": row.causal, "enable_gqa": row.heads != row.kv_heads}
    try:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            out = F.scaled_dot_product_attention(*inputs, **attend)
    except RuntimeError:
        return None
    if row.backward:
        given = dout.transpose(1, 2)
        return lambda: [x.transpose(1, 2) for x in torch.autograd.grad(out, inputs, given, retain_graph=True)]

    def forward():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return [F.scaled_dot_product_attention(*inputs, **attend).transpose(1, 2)]

    return forward


def fa4_call(row, q, k, v, dout):
    """None where flash-attn-4 is missing or has no such call; of a gradient, the deterministic form where the row asks it."""
    if flash_attn_func is None:
        return None
    inputs = [x.detach().requires_grad_(row.backward) for x in (q, k, v)]
    window = (row.left, 0) if row.left >= 0 else (None, None)

    def forward():
        options = {"causal": row.causal and row.left < 0, "window_size": window, "deterministic": row.deterministic}
        out = flash_attn_func(*inputs, **options)
        return [out[0] if isinstance(out, tuple) else out]

    try:
        (out,) = forward()
        backward = lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)
        if row.backward:
            backward()
        return backward if row.backward else forward
    except Exception as failure:  # whatever its compiler raises
        print(row.name, str(failure).splitlines()[:1], file=sys.stderr)
        return None


RIVALS = {"cudnn": cudnn_call, "fa4": fa4_call}


def measure(row, flush, rounds):
    tensors = make_tensors(row)
    own = own_call(row, *tensors)
    rivals = {name: call for name, make in RIVALS.items() if (call := make(row, *tensors))}
    line, results = {"row": row.name}, own()
    for name, call in rivals.items():
        line["differs " + name] = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(results, call()))
    own_times, *rival_times = rounds_of([own, *rivals.values()], flush, rounds)
    line |= {"ms": statistics.median(own_times), "tflops": row.operations() / statistics.median(own_times) / 1e9}
    for name, times in zip(rivals, rival_times):
        line[name + " ms"] = statistics.median(times)
        line[name + " tflops"] = row.operations() / statistics.median(times) / 1e9
        line["x " + name] = statistics.median(b / a for a, b in zip(own_times, times))
    return line


if __name__ == "__main__":
    print_rows(__doc__, rows(), measure)
