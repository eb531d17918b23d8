"""Attention over selected blocks beside cuDNN's (BSA of nvidia-cudnn-frontend), at the six shapes of its own benchmark, in
turns in one process, outputs compared; one line of JSON a row.

    python bench/cuda/block_sparse_rows.py [--rounds N] [WORD...]    only rows whose names have one of the words

Rates count the pairs of the selected blocks: four operations a feature forward, ten backward. "x cudnn" is cuDNN's time
divided by Tegula's; a row without it has no such call there, or the package is not installed. Lists ascend, which the
forward is told. Gradients have equal bits in every run; "any order" is the same call without that promise, as cuDNN's are.
"""

import dataclasses
import statistics
import sys

import tegula
import torch
from rivals import print_rows, rounds_of

try:
    import cudnn.block_sparse_attention as bsa
except ImportError:
    bsa = None

HEAD_SIZE = 128


@dataclasses.dataclass
class Row:
    batch: int
    heads: int
    queries: int
    keys: int
    count: int
    block: int
    backward: bool

    @property
    def name(self):
        what = "backward" if self.backward else "forward"
        return f"{what} {self.batch}x{self.heads} {self.queries}x{self.keys} {self.count} blocks of {self.block}"

    def operations(self):
        pairs = self.batch * self.heads * self.queries * self.count * self.block
        return (10.0 if self.backward else 4.0) * pairs * HEAD_SIZE


# Batch, heads, queries, keys and blocks of 128 keys a block of queries; the last selects all.
SHAPES = ((1, 2, 256, 512, 3), (1, 8, 2048, 4096, 8), (1, 8, 8192, 8192, 16), (2, 16, 16384, 16384, 32),
          (1, 8, 32768, 32768, 32), (1, 8, 8192, 8192, 64))  # fmt: skip


def rows():
    for block in (64, 128):
        for batch, heads, queries, keys, count in SHAPES:
            for backward in (False, True):
                yield Row(batch, heads, queries, keys, count * 128 // block, block, backward)


def choose_blocks(row):
    """int32 [batch, heads, blocks of queries, count]: blocks of keys without replacement, in ascending order."""
    blocks = row.keys // row.block
    order = torch.rand(row.batch, row.heads, row.queries // row.block, blocks, device="cuda").argsort(-1)
    return order[..., : row.count].sort(-1).values.to(torch.int32).contiguous()


def own_call(row, tensors, dout, indices, deterministic=True):
    options = {"indices": indices, "layout": "bhsd", "q_block_size": row.block, "k_block_size": row.block}
    if not row.backward:
        return lambda: tegula.block_sparse_attention(*tensors, **options, ascending=True)[:1]
    out, lse = tegula.block_sparse_attention(*tensors, **options)
    return lambda: tegula.block_sparse_attention_backward(dout, *tensors, out, lse, **options, deterministic=deterministic)[:3]


def cudnn_call(row, tensors, dout, indices):
    """None where cuDNN has no such call."""
    if bsa is None:
        return None
    options = {"q2k_block_index": indices, "sparse_block_size": row.block}

    def forward():
        found = bsa.block_sparse_attention_forward(*tensors, **options)
        return [found["o_tensor"], found["lse_tensor"]]

    def backward():
        gradients = bsa.block_sparse_attention_backward(dout, *tensors, *results, **options)
        return [gradients[name] for name in ("dq_tensor", "dk_tensor", "dv_tensor")]

    try:
        results = forward()
        if row.backward:
            backward()
        return backward if row.backward else lambda: forward()[:1]
    except Exception as failure:  # whatever its compiler raises
        print(row.name, str(failure).splitlines()[:1], file=sys.stderr)
        return None


def measure(row, flush, rounds):
    shapes = [(row.batch, row.heads, tokens, HEAD_SIZE) for tokens in (row.queries, row.keys, row.keys, row.queries)]
    *tensors, dout = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)
    indices = choose_blocks(row)
    calls = {"": own_call(row, tensors, dout, indices)}
    if row.backward:
        calls["any order "] = own_call(row, tensors, dout, indices, deterministic=False)
    rival = cudnn_call(row, tensors, dout, indices)
    line, results = {"row": row.name}, calls[""]()
    if rival:
        line["differs"] = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(results, rival()))
    *own, beside = rounds_of([*calls.values(), rival or calls[""]], flush, rounds)
    for name, times in zip(calls, own):
        line |= {name + "ms": statistics.median(times), name + "tflops": row.operations() / statistics.median(times) / 1e9}
        if rival:
            line[name + "x cudnn"] = statistics.median(b / a for a, b in zip(times, beside))
    if rival:
        line["cudnn ms"] = statistics.median(beside)
    return line


if __name__ == "__main__":
    print_rows(__doc__, rows(), measure)
