"""Attention of e4m3 beside cuDNN's (sdpa_fp8 of nvidia-cudnn-frontend), in turns in one process, outputs compared; one line of
JSON a row.

    python bench/cuda/attention_e4m3_rows.py [--part I/N] [--rounds N] [WORD...]    only rows whose names have one of the words

Rates count visible pairs, four operations a feature. Results are bf16 here and e4m3 there, since cuDNN has no other ones on
Hopper; "differs" is the largest difference by the largest value. "x cudnn" is cuDNN's time divided by Tegula's.
"""

import dataclasses
import math
import statistics
import sys

import tegula
import torch
from rivals import print_rows, rounds_of

try:
    import cudnn
except ImportError:
    cudnn = None

E4M3 = torch.float8_e4m3fn
WEIGHTS = 256.0  # by which cuDNN multiplies weights before it rounds them


@dataclasses.dataclass
class Row:
    tokens: int
    heads: int
    kv_heads: int
    d: int
    causal: bool

    @property
    def name(self):
        return f"{self.tokens} {self.heads}/{self.kv_heads} d={self.d}{' causal' if self.causal else ''}"

    def operations(self):
        return 4.0 * self.heads * self.tokens**2 * self.d * (0.5 if self.causal else 1)


def rows():
    for tokens in (4096, 8192, 16384):
        for causal in (False, True):
            yield Row(tokens, 16, 16, 128, causal)
    for causal in (False, True):
        yield Row(8192, 16, 4, 128, causal)
    for d in (64, 256):
        yield Row(8192, 16, 16, d, False)


def cudnn_call(row, q, k, v):
    """None where the package is missing."""
    if cudnn is None:
        return None
    types, handle = cudnn.data_type, cudnn.create_handle()
    graph = cudnn.pygraph(io_data_type=types.FP8_E4M3, intermediate_data_type=types.FLOAT,
                          compute_data_type=types.FLOAT, handle=handle)  # fmt: skip
    out = torch.empty_like(q)
    inputs = {name: x.transpose(1, 2) for name, x in (("q", q), ("k", k), ("v", v))}
    given = {graph.tensor(name=name, dim=list(x.shape), stride=list(x.stride()), data_type=types.FP8_E4M3): x for name, x in inputs.items()}
    factors = {"descale_q": 1.0, "descale_k": 1.0, "descale_v": 1.0, "descale_s": 1 / WEIGHTS, "scale_s": WEIGHTS, "scale_o": 1.0}
    one = {"dim": [1, 1, 1, 1], "stride": [1, 1, 1, 1]}
    scales = {name: graph.tensor(name=name, data_type=types.FLOAT, **one) for name in factors}
    o, _, *maxima = graph.sdpa_fp8(**dict(zip("qkv", given)), **scales, generate_stats=False, attn_scale=1 / math.sqrt(row.d), use_causal_mask=row.causal)
    result = out.transpose(1, 2)
    o.set_output(True).set_dim(list(result.shape)).set_stride(list(result.stride())).set_data_type(types.FP8_E4M3)
    for maximum in maxima:
        maximum.set_output(True).set_dim(one["dim"]).set_stride(one["stride"]).set_data_type(types.FLOAT)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device="cuda")
    given |= {scales[name]: torch.full((1, 1, 1, 1), factor, device="cuda") for name, factor in factors.items()}
    given |= {o: result} | {maximum: torch.empty(1, 1, 1, 1, device="cuda") for maximum in maxima}

    def call():
        graph.execute(given, workspace, handle=handle)
        return out

    return call


def measure(row, flush, rounds):
    q, k, v = (torch.randn(1, row.tokens, heads, row.d, device="cuda").to(E4M3) for heads in (row.heads, row.kv_heads, row.kv_heads))
    own = lambda: tegula.attention(q, k, v, causal=row.causal)[0]
    rival = cudnn_call(row, q, k, v)
    line, result = {"row": row.name}, own().float()
    if rival:
        line["differs"] = float((result - rival().float()).abs().max() / result.abs().max())
    times, *beside = rounds_of([own, *([rival] if rival else [])], flush, rounds)
    line |= {"ms": statistics.median(times), "tflops": row.operations() / statistics.median(times) / 1e9}
    if rival:
        line |= {"cudnn ms": statistics.median(beside[0]), "cudnn tflops": row.operations() / statistics.median(beside[0]) / 1e9}
        line["x cudnn"] = statistics.median(b / a for a, b in zip(times, beside[0]))
    return line


if __name__ == "__main__":
    if cudnn is None:
        print("nvidia-cudnn-frontend is not installed: rows have no rival", file=sys.stderr)
    print_rows(__doc__, rows(), measure)
