"""The kernels of the five lessons (examples/*.cpp) in Python: the same programs, word for word."""

from __future__ import annotations

import math

import tegula
from tegula.lang import *  # noqa: F403


# Lesson 1: a kernel, its signature, a grid of blocks, tiles, and a call.
@tegula.kernel
def vector_add():
    N = Dim("N")  # known at the call: one kernel serves every length
    X, Y, Z = input("X", N, f32), input("Y", N, f32), output("Z", N, f32)
    with grid(ceildiv(N, 256)) as block:
        x, y = load(X.at(block * 256), 256), load(Y.at(block * 256), 256)
        with parallel(x) as i:
            x[i] += y[i]
        copy(x, Z.at(block * 256))  # the last block is short: what lies past the end is not written


# Lesson 2: shared tiles, a pipelined loop, a matrix product, and an epilogue.
@tegula.kernel
def gemm_relu(m, n, k):
    M, N, K = Dim("M"), Dim("N"), Dim("K")
    A, B, C = input("A", (M, K), bf16), input("B", (N, K), bf16), output("C", (M, N), f32)
    with grid(ceildiv(N, n), ceildiv(M, m), order=Order.grouped(8)) as (bx, by):
        acc = Fragment((m, n), f32, 0)
        with pipelined(ceildiv(K, k), stages=3) as step:
            As, Bs = Shared((m, k), bf16), Shared((n, k), bf16)
            copy(A.at(by * m, step * k), As)
            copy(B.at(bx * n, step * k), Bs)
            gemm(As, Bs.T, acc)
        with parallel(acc) as (i, j):
            acc[i, j] = max(acc[i, j], 0)
        copy(acc, C.at(by * m, bx * n))


# Lesson 3: reductions, rows of any length in pieces, and a fill value outside the tensor.
@tegula.kernel
def softmax_rows(rows, piece):
    M, N = Dim("M"), Dim("N")
    X, Y = input("X", (M, N), f32), output("Y", (M, N), f32)
    with grid(ceildiv(M, rows)) as block:
        pieces = ceildiv(N, piece)
        top, sum = Fragment(rows, f32, -inf), Fragment(rows, f32, 0)
        with pipelined(pieces) as n:
            x, before = Fragment((rows, piece), f32), clone(top)
            copy(X.at(block * rows, n * piece), x, fill=-inf)  # as if the row went on with −∞
            reduce_max(x, top)
            with parallel(sum) as i:
                sum[i] *= select(before[i] == -inf, 0, exp(before[i] - top[i]))
            with parallel(x) as (i, j):
                x[i, j] = select(top[i] == -inf, 0, exp(x[i, j] - top[i]))
            reduce_sum(x, sum)
        with pipelined(pieces) as n:
            x = load(X.at(block * rows, n * piece), (rows, piece))
            with parallel(x) as (i, j):
                x[i, j] = exp(x[i, j] - top[i]) / sum[i]
            copy(x, Y.at(block * rows, n * piece))


# Lesson 4: atomics, several grids in one kernel, and a workspace between them. How many values of X fall into each of
# `bins` bins, and the running sum of these counts.
@tegula.kernel
def histogram(bins):
    N = Dim("N")
    X, Running = input("X", N, i32), output("Running", bins, i32)
    counts = workspace("counts", bins, i32, zero=True)
    with grid(ceildiv(N, 512)) as block:
        local = Shared(bins, i32)
        clear(local)
        with parallel(512) as i:
            at = block * 512 + i
            with when(at < N):
                atomic_add(local[clamp(X[at], 0, bins - 1)], 1)
        atomic_add(counts.at(0), local)
    with grid(1):  # sees what the first grid wrote
        sum = Var(0)
        with serial(bins) as i:
            sum += counts[i]
            Running[i] = sum


# Lesson 5: attention, with a piece that is used like a function, and views that clip to a sequence.
class RunningSoftmax:
    """Softmax over tiles of scores that arrive one after another."""

    def __init__(self, rows):
        self.top, self.sum = Fragment(rows, f32, -inf), Fragment(rows, f32, 0)

    def update(self, scores, acc):
        """Turns scores into weights, and rescales what was accumulated under the old maximum."""
        top, before, factor = self.top, clone(self.top), Fragment(self.top.shape, f32)
        reduce_max(scores, top)
        with parallel(factor) as i:
            factor[i] = select(before[i] == -inf, 0, exp(before[i] - top[i]))
            self.sum[i] *= factor[i]
        with parallel(scores) as (i, j):
            scores[i, j] = select(top[i] == -inf, 0, exp(scores[i, j] - top[i]))
        reduce_sum(scores, self.sum)
        with parallel(acc) as (i, j):
            acc[i, j] *= factor[i]


# Causal attention over sequences packed one after another: sequence b has the rows begin[b] … begin[b + 1] − 1.
@tegula.kernel
def packed_attention(dim, queries, keys):
    T, Ends = Dim("T"), Dim("Ends")
    Q, K, V = input("Q", (T, dim), f32), input("K", (T, dim), f32), input("V", (T, dim), f32)
    begin, O = input("begin", Ends, i32), output("O", (T, dim), f32)
    longest, sequences = scalar("longest", i32), Ends - 1
    scale = 1 / math.sqrt(dim)

    with grid(ceildiv(longest, queries), sequences) as (block, b):
        low, high = begin[b], begin[b + 1]
        q, k, v, o = Q[low:high], K[low:high], V[low:high], O[low:high]
        first, length = block * queries, q.extent(0)
        exit_if(first >= length)

        Qs = Shared((queries, dim), f32)
        copy(q.at(first), Qs)
        acc = Fragment((queries, dim), f32, 0)
        softmax = RunningSoftmax(queries)
        with pipelined(ceildiv(min(first + queries, length), keys)) as j:
            Ks, Vs = Shared((keys, dim), f32), Shared((keys, dim), f32)
            copy(k.at(j * keys), Ks)  # rows of the next sequence are outside the view: zeros
            copy(v.at(j * keys), Vs)
            S = Fragment((queries, keys), f32, 0)
            gemm(Qs, Ks.T, S)
            with parallel(S) as (r, c):
                key = j * keys + c
                S[r, c] = select((key <= first + r) & (key < length), S[r, c] * scale, -inf)
            softmax.update(S, acc)
            gemm(S, Vs, acc)
        with parallel(acc) as (i, j):
            acc[i, j] /= softmax.sum[i]
        copy(acc, o.at(first))
