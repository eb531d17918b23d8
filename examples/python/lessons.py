"""The kernels of eleven lessons (examples/*.cpp) in Python: the same programs, statement by statement."""

from __future__ import annotations

import math

import tegula
from tegula.lang import *  # noqa: F403


# Lesson 1: a kernel, its signature, a grid of blocks, tiles, and a call.
@tegula.kernel
def vector_add():
    N = Dim("N")  # known when called: one kernel serves every length
    X, Y, Z = input("X", N, f32), input("Y", N, f32), output("Z", N, f32)
    with grid(ceildiv(N, 256)) as block:
        x, y = load(X.at(block * 256), 256), load(Y.at(block * 256), 256)
        with parallel(x) as i:
            x[i] += y[i]
        copy(x, Z.at(block * 256))  # in the last block, nothing is written past the end


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


# Lesson 3: reductions, rows of any length processed in chunks, and a fill value outside the tensor.
@tegula.kernel
def softmax_rows(rows, chunk):
    M, N = Dim("M"), Dim("N")
    X, Y = input("X", (M, N), f32), output("Y", (M, N), f32)
    with grid(ceildiv(M, rows)) as block:
        chunks = ceildiv(N, chunk)
        top, sum = Fragment(rows, f32, -inf), Fragment(rows, f32, 0)
        with pipelined(chunks) as n:
            x, before = Fragment((rows, chunk), f32), clone(top)
            copy(X.at(block * rows, n * chunk), x, fill=-inf)  # as if the row continued with −∞
            reduce_max(x, top)
            with parallel(sum) as i:
                sum[i] *= select(before[i] == -inf, 0, exp(before[i] - top[i]))
            with parallel(x) as (i, j):
                x[i, j] = select(top[i] == -inf, 0, exp(x[i, j] - top[i]))
            reduce_sum(x, sum)
        with pipelined(chunks) as n:
            x = load(X.at(block * rows, n * chunk), (rows, chunk))
            with parallel(x) as (i, j):
                x[i, j] = exp(x[i, j] - top[i]) / sum[i]
            copy(x, Y.at(block * rows, n * chunk))


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


# Lesson 5: attention, with a reusable component, and views that are clipped to a sequence.
class RunningSoftmax:
    """Online softmax: the tiles of scores arrive one after another."""

    def __init__(self, rows):
        self.top, self.sum = Fragment(rows, f32, -inf), Fragment(rows, f32, 0)

    def update(self, scores, acc):
        """Turns scores into weights, and rescales the accumulator, which is relative to the old maximum."""
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


# Causal attention over packed sequences: sequence b consists of rows begin[b] to begin[b + 1] − 1.
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
            copy(k.at(j * keys), Ks)  # rows of the next sequence are outside the view and read as zeros
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


# Lesson 7: a matrix product, optionally with an assertion that was left inside the loop.
@tegula.kernel
def product():
    multiply(asserts=False)


@tegula.kernel
def product_with_assertion():
    multiply(asserts=True)


def multiply(asserts):
    M, N, K = Dim("M"), Dim("N"), Dim("K")
    A, B, C = input("A", (M, K), bf16), input("B", (N, K), bf16), output("C", (M, N), f32)
    with grid(ceildiv(N, 128), ceildiv(M, 128)) as (bx, by):
        sum = Fragment((128, 128), f32, 0)
        with pipelined(ceildiv(K, 64), stages=4) as k:
            a, b = Shared((128, 64), bf16), Shared((128, 64), bf16)
            copy(A.at(by * 128, k * 64), a)
            copy(B.at(bx * 128, k * 64), b)
            if asserts:
                assert_that(a[0, 0] == a[0, 0], "the first element of a tile is NaN")
            gemm(a, b.T, sum)
        copy(sum, C.at(by * 128, bx * 128))


# Lesson 8: decoding from pages of a cache, with the keys of a sequence split among blocks.
@tegula.kernel
def decode(heads, dim, page, splits):
    B, P, W = Dim("B"), Dim("pages"), Dim("width")
    Q, K = input("q", (B, heads, dim), f32), input("k", (P, page, dim), f32)
    V, table = input("v", (P, page, dim), f32), input("table", (B, W), i32)
    lengths, O = input("lengths", B, i32), output("out", (B, heads, dim), f32)
    parts, lse = workspace("parts", (B, splits, heads, dim), f32), workspace("lse", (B, splits, heads), f32)
    scale = 1 / math.sqrt(dim)

    with grid(splits, B) as (split, b):
        length = lengths[b]
        pages = ceildiv(length, page)
        each = ceildiv(pages, splits)
        q = Shared((heads, dim), f32)
        copy(Q[b, ...].at(0), q)
        acc, top, sum = Fragment((heads, dim), f32, 0), Fragment(heads, f32, -inf), Fragment(heads, f32, 0)
        with pipelined(split * each, min((split + 1) * each, pages), stages=2) as p:
            at = table[b, p]
            k, v = Shared((page, dim), f32), Shared((page, dim), f32)
            copy(K[at, ...].at(0), k)
            copy(V[at, ...].at(0), v)
            s, before = Fragment((heads, page), f32, 0), clone(top)
            gemm(q, k.T, s)
            with parallel(s) as (h, j):
                s[h, j] = select(p * page + j < length, s[h, j] * scale, -inf)
            reduce_max(s, top)  # every page of the range has a key, so the maximum is finite from here on
            with parallel(sum) as h:
                sum[h] *= exp(before[h] - top[h])
            with parallel(acc) as (h, d):
                acc[h, d] *= exp(before[h] - top[h])
            with parallel(s) as (h, j):
                s[h, j] = exp(s[h, j] - top[h])
            reduce_sum(s, sum)
            gemm(s, v, acc)
        # A split without pages has weight 0 in the merge, because its lse is −∞.
        with parallel(acc) as (h, d):
            acc[h, d] = select(sum[h] == 0, 0, acc[h, d] / sum[h])
        copy(acc, parts[b, split, ...].at(0))
        with parallel(sum) as h:
            sum[h] = select(sum[h] == 0, -inf, top[h] + log(sum[h]))
        copy(sum, lse[b, split, ...].at(0))

    # out = Σ exp(lse) · part / Σ exp(lse), relative to the largest lse.
    with grid(B) as b:
        acc, top, sum = Fragment((heads, dim), f32, 0), Fragment(heads, f32, -inf), Fragment(heads, f32, 0)
        with serial(splits) as s:
            with parallel(top) as h:
                top[h] = max(top[h], lse[b, s, h])
        with serial(splits) as s:
            part = load(parts[b, s, ...].at(0), (heads, dim))
            weight = Fragment(heads, f32)
            with parallel(weight) as h:
                weight[h] = exp(lse[b, s, h] - top[h])
            with parallel(sum) as h:
                sum[h] += weight[h]
            with parallel(acc) as (h, d):
                acc[h, d] += weight[h] * part[h, d]
        with parallel(acc) as (h, d):
            acc[h, d] /= sum[h]
        copy(acc, O[b, ...].at(0))


# Lesson 9: a product with a matrix that stores only its blocks that are not zero (BSR).
@tegula.kernel
def block_sparse_product(block, n):
    Ends, S, K, N = Dim("ends"), Dim("stored"), Dim("K"), Dim("N")
    compact, B = input("compact", (S, block, block), f32), input("B", (K, N), f32)
    begin, columns = input("begin", Ends, i32), input("columns", S, i32)
    C = output("C", ((Ends - 1) * block, N), f32)
    with grid(ceildiv(N, n), Ends - 1) as (bx, row):
        sum = Fragment((block, n), f32, 0)
        with pipelined(begin[row], begin[row + 1], stages=3) as entry:
            a, b = Shared((block, block), f32), Shared((block, n), f32)
            copy(compact[entry, ...].at(0), a)
            copy(B.at(columns[entry] * block, bx * n), b)
            gemm(a, b, sum)
        copy(sum, C.at(row * block, bx * n))  # a row without blocks stores zeros


# Lesson 10: 4-bit weights, two per byte, with one scale per 32 weights.
@tegula.kernel
def product_of_nibbles(m, n):
    k, group = 64, 32
    M, N, G = Dim("M"), Dim("N"), Dim("groups")
    X, W = input("x", (M, G * group), bf16), input("weight", (N, G * group), u4.minus(8))
    scales, Y = input("scales", (N, G), f32), output("y", (M, N), f32)
    with grid(ceildiv(N, n), ceildiv(M, m)) as (bx, by):
        sum = Fragment((m, n), f32, 0)
        with pipelined(ceildiv(G, k // group), stages=3) as step:
            x, w = Shared((m, k), bf16), Shared((n, k), bf16)
            packed = PackedShared((n, k), u4.minus(8))
            copy(X.at(by * m, step * k), x)
            copy(W.at(bx * n, step * k), packed)
            with parallel(w) as (j, p):
                scale = scales[bx * n + j, step * (k // group) + div(p, group)]
                w[j, p] = packed.as_f32(j, p) * scale  # rounded to bf16 by the store
            gemm(x, w.T, sum)
        copy(sum, Y.at(by * m, bx * n))


# Lesson 11: linear attention by chunks of tokens; the state of a head is carried from chunk to chunk.
@tegula.kernel
def linear_attention(dim, chunk):
    H, T = Dim("H"), Dim("T")
    Q, K, V = input("q", (H, T, dim), f32), input("k", (H, T, dim), f32), input("v", (H, T, dim), f32)
    decays, O = input("decays", H, f32), output("out", (H, T, dim), f32)
    with grid(H) as h:  # one block processes the chunks of a head in sequence
        g = decays[h]
        state = Fragment((dim, dim), f32, 0)
        with pipelined(ceildiv(T, chunk), stages=2) as c:
            q, k, v = Shared((chunk, dim), f32), Shared((chunk, dim), f32), Shared((chunk, dim), f32)
            before = Shared((dim, dim), f32)
            copy(Q[h, ...].at(c * chunk), q)
            copy(K[h, ...].at(c * chunk), k)  # tokens past the end are zeros and have no effect
            copy(V[h, ...].at(c * chunk), v)
            copy(state, before)
            out, s = Fragment((chunk, dim), f32, 0), Fragment((chunk, chunk), f32, 0)
            gemm(q, before, out)  # the contribution of earlier chunks, decayed by i + 1 tokens
            with parallel(out) as (i, d):
                out[i, d] *= exp(g * f32(i + 1))
            gemm(q, k.T, s)
            # For j > i the exponential may overflow; select() discards it.
            with parallel(s) as (i, j):
                s[i, j] = select(j <= i, s[i, j] * exp(g * f32(i - j)), 0)
            gemm(s, v, out)
            copy(out, O[h, ...].at(c * chunk))

            # By the end of the chunk, the key at position i has decayed by chunk − 1 − i tokens.
            faded = Shared((chunk, dim), f32)
            with parallel(faded) as (i, d):
                faded[i, d] = k[i, d] * exp(g * f32(chunk - 1 - i))
            with parallel(state) as (i, j):
                state[i, j] *= exp(g * float(chunk))
            gemm(faded.T, v, state)


# Lesson 13: the copy engine brings tiles to elementwise programs: a producer fetches the next block's meanwhile.
@tegula.kernel
def matrix_add(m, n):
    M, N = Dim("M"), Dim("N")
    X, Y, Z = input("X", (M, N), f32), input("Y", (M, N), f32), output("Z", (M, N), f32)
    with grid(ceildiv(N, n), ceildiv(M, m), persistent=True) as (bx, by):
        x, y = Shared((m, n), f32), Shared((m, n), f32)
        copy(X.at(by * m, bx * n), x)
        copy(Y.at(by * m, bx * n), y)
        z = Fragment((m, n), f32)
        with parallel(z) as (i, j):
            z[i, j] = x[i, j] + y[i, j]
        copy(z, Z.at(by * m, bx * n))


@tegula.kernel
def columns_scale(m, n):
    M, N = Dim("M"), Dim("N")
    X, F, Z = input("X", (M, N), f32), input("F", N, f32), output("Z", (M, N), f32)
    with grid(ceildiv(M, m), persistent=True) as block:
        with pipelined(ceildiv(N, n), stages=4) as step:
            x, f = Shared((m, n), f32), Shared(n, f32)
            copy(X.at(block * m, step * n), x)
            copy(F.at(step * n), f)
            z = Fragment((m, n), f32)
            with parallel(z) as (i, j):
                z[i, j] = x[i, j] * f[j]
            copy(z, Z.at(block * m, step * n))
