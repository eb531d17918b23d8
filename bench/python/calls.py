"""Host time of warm calls that have next to nothing to do, from NumPy and PyTorch; on a GPU until the call returns.

    python bench/python/calls.py [cpu|cuda [PROGRAM]]

Medians of rounds that the calls take in turns; with TEGULA_NUM_THREADS=1 others disturb them less. With the program of
calls.cpp, bench_calls, also how much longer they take than in C++.
"""

import statistics
import subprocess
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


class Rival:
    """The same calls in C++."""

    def __init__(self, program, device):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([program, device], stdin=pipe, stdout=pipe, text=True)

    def one_round(self, name):
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


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
    """What is called, the operator in C++ that it is compared with, and the call."""
    q = torch.randn(1, 4, 1, 16, device=device)
    leaf = q.clone().requires_grad_()
    a = q[0, :, 0].contiguous()
    out, lse = tegula.attention(q, q, q)
    blocks = torch.zeros(1, 1, 1, 1, dtype=torch.int32, device=device)
    tokens = torch.zeros(1, 4, 1, 1, dtype=torch.int32, device=device)
    operators = {
        "attention": lambda module, x: module.attention(x, q, q),
        "block_sparse_attention": lambda module, x: module.block_sparse_attention(x, q, q, indices=blocks),
        "nsa_selected_attention": lambda module, x: module.nsa_selected_attention(x, q, q, tokens),
        "gemm": lambda module, x: module.gemm(x, a, transpose_b=True),
        "rms_norm": lambda module, x: module.rms_norm(x),
    }
    for name, operator in operators.items():
        x, wanted = (a, a.clone().requires_grad_()) if name in ("gemm", "rms_norm") else (q, leaf)
        yield f"tegula.{name}", name, lambda f=operator, x=x: f(tegula, x)
        yield f"tegula.torch.{name}", name, lambda f=operator, x=x: f(tegula.torch, x)
        yield f"tegula.torch.{name} with a gradient", name, lambda f=operator, x=wanted: f(tegula.torch, x)
    backward = "attention_backward"
    yield "tegula.attention_backward", backward, lambda: tegula.attention_backward(out, q, q, q, out, lse)
    yield "tegula.attention, outputs given", "attention", lambda: tegula.attention(q, q, q, out=out, lse=lse)
    apply = super(torch.autograd.Function, Nothing).apply  # as tegula.torch calls its own
    yield "a function of autograd that does nothing else", None, lambda: apply(leaf, q, q)
    yield (
        "attention and its backward",
        None,
        lambda: torch.autograd.grad(tegula.torch.attention(leaf, q, q)[0], leaf, out),
    )
    if device == "cpu":
        x, y = q.numpy(), a.numpy()
        yield "tegula.attention, NumPy", "attention", lambda: tegula.attention(x, x, x)
        yield "tegula.gemm, NumPy", "gemm", lambda: tegula.gemm(y, y, transpose_b=True)
        yield "tegula.rms_norm, NumPy", "rms_norm", lambda: tegula.rms_norm(y)


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    rival = Rival(sys.argv[2], device) if len(sys.argv) > 2 else None
    torch.set_num_threads(1)
    named = list(calls(device))
    names = {name for _, name, _ in named if name} if rival else {}
    for _ in range(3):  # warm
        for _, _, call in named:
            one_round(call, device)
        for name in names:
            rival.one_round(name)
    rounds, rival_rounds = [], []
    for _ in range(ROUNDS):
        rival_rounds.append({name: rival.one_round(name) for name in names})
        rounds.append([one_round(call, device) for _, _, call in named])
    for (text, name, _), times in zip(named, zip(*rounds)):
        line = f"{text:50} {statistics.median(times):8.1f} us"
        if name in names:
            in_cpp = statistics.median(each[name] for each in rival_rounds)
            line += f", C++ {in_cpp:6.1f}, over it {statistics.median(times) - in_cpp:6.1f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
