"""The rivals of bench_cuda: cuBLAS and cuDNN through PyTorch, timed the same way, one line of JSON a workload.

  rivals.py [WORD...]    only the workloads whose names have one of the words
"""
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROUNDS = 30
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def gemms():
    shapes = [(n, n, n, kind, order) for n in (4096, 8192) for order in ("nn", "nt") for kind in ("bf16", "f16")]
    shapes += [(4096, n, n, "bf16", "nt") for n in range(4096, 16385, 1000)]
    for m, n, k, kind, order in shapes:
        yield "gemm %s %dx%dx%d %s" % (kind, m, n, k, order), 2.0 * m * n * k, lambda: gemm(m, n, k, DTYPES[kind], order)


def gemm(m, n, k, dtype, order):
    a = torch.randn(m, k, device="cuda", dtype=dtype)
    b = torch.randn(k, n, device="cuda", dtype=dtype) if order == "nn" else torch.randn(n, k, device="cuda", dtype=dtype).t()
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    return lambda: torch.matmul(a, b, out=out)


def attentions():
    shapes = [(16384 // s, s, 16, 128) for s in (2048, 4096, 8192, 16384)] + [(2, 8192, 32, 64), (2, 8192, 8, 256)]
    for causal in (False, True):
        for batch, length, heads, dim in shapes:
            name = "attention bf16 %dx%dx%dx%d %s" % (batch, length, heads, dim, "causal" if causal else "full")
            flops = 4.0 * batch * heads * dim * length * length * (0.5 if causal else 1)
            yield name, flops, lambda: attention(batch, length, heads, dim, causal)


def attention(batch, length, heads, dim, causal):
    q, k, v = [torch.randn(batch, length, heads, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(3)]

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return call


def backwards():
    shapes = [(16384 // s, s, 16, 128) for s in (2048, 4096, 8192, 16384)] + [(2, 8192, 32, 64)]
    for causal in (False, True):
        for batch, length, heads, dim in shapes:
            name = "backward bf16 %dx%dx%dx%d dense %s" % (batch, length, heads, dim, "causal" if causal else "full")
            flops = 10.0 * batch * heads * dim * length * length * (0.5 if causal else 1)
            for suffix in ("", " any order"):
                yield name + suffix, flops, lambda: backward(batch, length, heads, dim, causal)


def backward(batch, length, heads, dim, causal):
    q, k, v = [torch.randn(batch, length, heads, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
               for _ in range(3)]
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    dout = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def milliseconds(call, flush):
    call()
    events = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.zero_()
        begin.record()
        call()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in events)


def main(words):
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for workloads in (gemms, attentions, backwards):
        for name, flops, prepare in workloads():
            if words and not any(word in name for word in words):
                continue
            line = {"workload": name}
            try:
                line["ms"] = milliseconds(prepare(), flush)
                line["tflops"] = flops / line["ms"] / 1e9
            except RuntimeError as failure:
                line["failure"] = str(failure).splitlines()[0]
            print(json.dumps(line), flush=True)


main(sys.argv[1:])
