"""Host time of warm calls that have next to nothing to do, from NumPy and PyTorch; on a GPU until the call returns.

    python bench/python/calls.py [cpu|cuda]

Medians of rounds that the calls take in turns; with TEGULA_NUM_THREADS=1 they are less disturbed by others.
"""

import statistics
import sys
import time

import tegula
import tegula.torch
import torch

CALLS, ROUNDS = 100, 40


class Nothing(torch.autograd.Function):
    """What PyTorch itself takes for two results with a gradient: to allocate them, and to keep five tensors."""

    @staticmethod
    def forward(ctx, q, k, v):
        results = torch.empty_like(q), q.new_empty(1, 1, 4)
        ctx.save_for_backward(q, k, v, *results)
        return results

    @staticmethod
    def backward(ctx, dout, dlse):
        return dout, None, None


def one_round(call, device):
    """Microseconds; processor time of the thread where no device works on beside it."""
    clock = time.perf_counter if device == "cuda" else time.thread_time
    if device == "cuda":
        torch.cuda.synchronize()
    begin = clock()
    for _ in range(CALLS):
        call()
    return (clock() - begin) / CALLS * 1e6


def calls(device):
    q = torch.randn(1, 4, 1, 16, device=device)
    leaf = q.clone().requires_grad_()
    a = q[0, :, 0].contiguous()
    out, lse = tegula.attention(q, q, q)
    blocks = torch.zeros(1, 1, 1, 1, dtype=torch.int32, device=device)
    tokens = torch.zeros(1, 4, 1, 1, dtype=torch.int32, device=device)
    operators = {
        "attention": lambda module, x: module.attention(x, q, q),
        "block_sparse_attn": lambda module, x: module.block_sparse_attn(x, q, q, 64, 64, blocks),
        "nsa_selected_attention": lambda module, x: module.nsa_selected_attention(x, q, q, tokens),
        "gemm": lambda module, x: module.gemm(x, a, transpose_b=True),
    }
    for name, operator in operators.items():
        x, wanted = (a, a.clone().requires_grad_()) if name == "gemm" else (q, leaf)
        yield f"tegula.{name}", lambda f=operator, x=x: f(tegula, x)
        yield f"tegula.torch.{name}", lambda f=operator, x=x: f(tegula.torch, x)
        yield f"tegula.torch.{name} with a gradient", lambda f=operator, x=wanted: f(tegula.torch, x)
    apply = super(torch.autograd.Function, Nothing).apply  # as tegula.torch calls its own
    yield "a function of autograd that does nothing else", lambda: apply(leaf, q, q)
    yield "tegula.attention, outputs given", lambda: tegula.attention(q, q, q, out=out, lse=lse)
    yield "tegula.attention_backward", lambda: tegula.attention_backward(out, q, q, q, out, lse)
    yield "attention and its backward", lambda: torch.autograd.grad(tegula.torch.attention(leaf, q, q)[0], leaf, out)
    if device == "cpu":
        x = q.numpy()
        yield "tegula.attention, NumPy", lambda: tegula.attention(x, x, x)


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    named = list(calls(device))
    for _, call in named:
        one_round(call, device)
    rounds = [[one_round(call, device) for _, call in named] for _ in range(ROUNDS)]
    for (name, _), times in zip(named, zip(*rounds)):
        print(f"{name:50} {statistics.median(times):8.1f} us", flush=True)


if __name__ == "__main__":
    main()
