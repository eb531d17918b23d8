"""Products of few rows on layers of Llama and DeepSeek beside cuBLAS, in turns in one process, outputs compared; one line of
JSON a row, and the mean and the least of all ratios at the end.

    python bench/cuda/gemm_rows.py [--part I/N] [--rounds N] [WORD...]    only rows whose names have one of the words

Weights lie along k, as a linear layer's do. "x cublas" is cuBLAS's time divided by Tegula's, "differs" the largest
difference of the results by their largest value.
"""

import dataclasses
import math
import statistics

import tegula
import torch
from rivals import print_rows, rounds_of

# Columns and inner extent of the layers of a block, or of a processor's part of it.
LAYERS = {
    "llama 8b qkv": (6144, 4096),
    "llama 8b out": (4096, 4096),
    "llama 8b gate and up": (28672, 4096),
    "llama 8b down": (4096, 14336),
    "llama 70b qkv": (10240, 8192),
    "llama 70b out": (8192, 8192),
    "llama 70b gate and up of 8": (7168, 8192),
    "llama 70b down of 8": (8192, 3584),
    "deepseek v3 latents": (2112, 7168),
    "deepseek v3 queries": (24576, 1536),
    "deepseek v3 keys and values": (32768, 512),
    "deepseek v3 out": (7168, 16384),
    "deepseek v3 gate and up": (36864, 7168),
    "deepseek v3 down": (7168, 18432),
    "deepseek v3 expert, gate and up": (4096, 7168),
    "deepseek v3 expert, down": (7168, 2048),
}
ROWS = (1, 4, 16, 32, 64, 128, 192, 256)


@dataclasses.dataclass
class Row:
    layer: str
    m: int

    @property
    def name(self):
        n, k = LAYERS[self.layer]
        return f"{self.layer} {self.m}x{n}x{k}"


def rows():
    for layer in LAYERS:
        for m in ROWS:
            yield Row(layer, m)


RATIOS = []


def measure(row, flush, rounds):
    n, k = LAYERS[row.layer]
    a, b = (torch.randn(extent, k, device="cuda", dtype=torch.bfloat16) for extent in (row.m, n))
    out = torch.empty(row.m, n, device="cuda", dtype=torch.bfloat16)
    own = lambda: tegula.gemm(a, b, transpose_b=True)
    cublas = lambda: torch.mm(a, b.T, out=out)
    result = own()
    cublas()
    own_times, cublas_times = rounds_of([own, cublas], flush, rounds)
    ratio = statistics.median(theirs / ours for ours, theirs in zip(own_times, cublas_times))
    RATIOS.append(ratio)
    return {
        "row": row.name,
        "ms": statistics.median(own_times),
        "cublas ms": statistics.median(cublas_times),
        "x cublas": ratio,
        "differs": float((result - out).abs().max() / out.abs().max()),
    }


if __name__ == "__main__":
    print_rows(__doc__, rows(), measure)
    print({"mean": math.exp(statistics.fmean(map(math.log, RATIOS))), "least": min(RATIOS), "rows": len(RATIOS)})
