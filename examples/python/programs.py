"""The kernels of programs.cpp in Python: the same programs, for what the lessons leave out of the language."""

from __future__ import annotations

import tegula
from tegula.lang import *  # noqa: F403


@tegula.kernel
def sums():
    """Parameters of every kind, promises and requirements, and a workspace."""
    B, S = Dim("B"), Dim("S").multiple_of(4)
    X, ends = input("X", (B, S), f16), input("ends", B + 1, i32)
    rows, total = output("rows", B, f32, zero=True), inout("total", 1, f32)
    pieces = workspace("pieces", (B, ceildiv(S, 64)), f32)
    scale = scalar("scale", f32)
    require(scale > 0, "the scale must be positive")
    may_alias(rows, total)
    with grid(ceildiv(S, 64), B) as (piece, b):
        x = Fragment((1, 64), f32)
        copy(X.at(b, piece * 64), x)
        copy(reduce_sum(x), pieces[b, :].at(piece))
    with grid(B) as b:
        sum = Var(0.0)
        with serial(pieces.extent(1)) as piece:
            sum += pieces[b, piece]
        rows[b] = sum * scale
    with grid(1):
        with serial(B) as b:
            total[0] += rows[b] * f32(ends[b + 1] - ends[b])


@tegula.kernel
def dequantised_rows(rows, n, k):
    """Rows that a list chooses, multiplied by a matrix of 8-bit integers that is made floating in shared memory."""
    M, N, K, R = Dim("M"), Dim("N"), Dim("K"), Dim("R")
    A, list, Q = input("A", (R, K), f16), input("list", M, i32), input("Q", (N, K), u8)
    S, C = input("S", N, f32), output("C", (M, N), f16)
    with grid(ceildiv(N, n), ceildiv(M, rows), threads=128, order=Order.column()) as (bx, by):
        sum, scales = Fragment((rows, n), f32, 0), load(S.at(bx * n), n)
        with pipelined(ceildiv(K, k), stages=2) as step:
            a, q, b = Shared((rows, k), f16), Shared((n, k), u8), Shared((n, k), f16)
            gather(A[:, step * k : min(step * k + k, K)], list[by * rows : by * rows + rows], a)
            copy(Q.at(bx * n, step * k), q)
            with parallel(b) as (i, j):
                b[i, j] = f32(q[i, j] - 8)
            gemm(a, b.T, sum, warps="rows")
        with parallel(sum) as (i, j):
            sum[i, j] = sum[i, j] * scales[j]
        copy(sum.to(f16), C.at(by * rows, bx * n))


@tegula.kernel
def collatz(most):
    """Loops and branches of all kinds."""
    N = Dim("N")
    X, Steps, longest = input("X", N, i32), output("Steps", N, i32), inout("longest", 1, i32)
    with grid(ceildiv(N, 64)) as block:
        steps = Shared(64, i32)
        with parallel(64) as i:
            n = Var(X[block * 64 + i])
            count = Var(0)
            with loop_while(lambda: (n > 1) & (count < most)):
                with when(mod(n, 2) == 0):
                    n.set(div(n, 2))
                with otherwise():
                    n.set(n * 3 + 1)
                count += 1
            steps[i] = count
        all_steps = Fragment(64, i32)
        copy(steps, all_steps)
        top = reduce_max(all_steps)
        atomic_max(longest[0], top.scalar())
        with each_group(2, "warp") as g:
            part = Fragment(32, i32)
            copy(steps[0:32], part)
            with when(g == 0):
                copy(part, Steps.at(block * 64))
        with when(block * 64 + 32 < N):
            with unrolled(2) as i:
                with serial(i * 16, i * 16 + 16) as j:
                    Steps[block * 64 + 32 + j] = steps[32 + j]


@tegula.kernel
def sparse_columns(blocks, size):
    """Contributions in an order, bits and casts."""
    M, N = Dim("M"), Dim("N")
    X, mask, Y = input("X", (M, N), bf16), input("mask", M, u32), output("Y", (size, N), f32, zero=True)
    with grid(ceildiv(M, size), ceildiv(N, size)) as (row, column):
        x = load(X.at(row * size, column * size), (size, size), f32)
        with parallel(x) as (i, j):
            bits, bit = mask[row * size + i], u32(mod(j, 32))
            x[i, j] = select(((bits >> bit & 1) == 1) & (popcount(bits) < blocks), abs(x[i, j]), -x[i, j] / 2)
        accumulate(Y.at(0, column * size), x, order=row, consecutive=True)


@tegula.kernel
def rescaled(rows, width):
    """Rows of a running maximum that change are scaled, the others are left alone; the first blocks are heavy."""
    M = Dim("M")
    X, T, Y = input("X", (M, width), f32), input("T", M, f32), output("Y", (M, width), f32)
    with grid(ceildiv(M, rows), order=Order.heavy_first(lambda block: M - block)) as block:
        x, top = load(X.at(block * rows, 0), (rows, width)), load(T.at(block * rows), rows)
        changed, before = Fragment(rows, boolean), clone(top)
        reduce_absmax(x, top)
        with parallel(changed) as i:
            changed[i] = (top[i] != before[i]) | isnan(top[i])
        first = reduce_any(changed[0 : rows // 2]).scalar()
        second = reduce_any(changed[rows // 2 : rows]).scalar()
        with when_rows(first, second, together=2):
            with parallel(x) as (i, j):
                x[i, j] = select(changed[i], fma(x[i, j], exp2(-top[i] * log2e), clamp(top[i], -1, 1)), x[i, j])
        copy(x, Y.at(block * rows, 0))


@tegula.kernel
def drawn(rows, width):
    """Scans, places of extremes, random numbers, and a tile that is printed."""
    M = Dim("M")
    X, Y, places = input("X", (M, width), f32), output("Y", (M, width), f32), output("places", M, i32)
    with grid(ceildiv(M, rows)) as block:
        x, starts = load(X.at(block * rows, 0), (rows, width)), Fragment((rows, width), boolean)
        with parallel(starts) as (i, j):
            starts[i, j] = j == width // 2
        sums, tops = scan_sum(x, starts), scan_max(x, exclusive=True, reverse=True)
        least, largest, smallest = scan_min(x, dim=0), reduce_argmax(x), reduce_argmin(x)
        with parallel(x) as (i, j):
            words = philox((u32(block * rows + i), u32(j), 0, 0), (7, 1))
            noise = uniform(words.x ^ mul_high(words.y, words.z))
            x[i, j] = select(noise < 0.5, erf(sums[i, j]), pow(abs(least[i, j]), 2.5) + max(tops[i, j], -9))
        with parallel(largest) as i:
            largest[i] = largest[i] * 100 + smallest[i]
        copy(x, Y.at(block * rows, 0))
        copy(largest, places.at(block * rows))
        with when(block == 0):
            print("places", largest)
