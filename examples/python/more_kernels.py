"""Ten kernels that models of today need and the operator library lacks, or has in another form: starting points for
kernels of your own. python/tests/test_more_kernels.py compares each with NumPy."""

from __future__ import annotations

import tegula
from tegula.lang import *  # noqa: F403


@tegula.kernel
def rope_append(heads, kv_heads, dim, page):
    """Rotates queries and keys, and appends keys and values to a cache in pages, in one pass over the tokens.

    An iteration stores an element in each half of a row: threads write 16 bytes of both.
    """
    T, P, S, Width, Positions = Dim("T"), Dim("P"), Dim("S"), Dim("Width"), Dim("Positions")
    Q, K = input("Q", (T, heads, dim), bf16), input("K", (T, kv_heads, dim), bf16)
    V, turns = input("V", (T, kv_heads, dim), bf16), input("turns", (Positions, dim), f32)  # cosines, then sines
    position, sequence = input("position", T, i32), input("sequence", T, i32)
    table = input("table", (S, Width), i32)
    Rotated = output("Rotated", (T, heads, dim), bf16)
    Keys, Values = (inout(name, (P, page, kv_heads, dim), bf16) for name in ("Keys", "Values"))
    half = dim // 2
    with grid(T) as t:
        p = position[t]
        keys, values = (cache[table[sequence[t], p // page], p % page, :, :] for cache in (Keys, Values))
        with parallel(heads, half) as (h, d):
            a, b, cosine, sine = Q[t, h, d], Q[t, h, half + d], turns[p, d], turns[p, half + d]
            Rotated[t, h, d] = a * cosine - b * sine
            Rotated[t, h, half + d] = b * cosine + a * sine
        with parallel(kv_heads, half) as (h, d):
            a, b, cosine, sine = K[t, h, d], K[t, h, half + d], turns[p, d], turns[p, half + d]
            keys[h, d] = a * cosine - b * sine
            keys[h, half + d] = b * cosine + a * sine
        with parallel(kv_heads, dim) as (h, d):
            values[h, d] = V[t, h, d]


@tegula.kernel
def smoothed_cross_entropy(tile):
    """The loss with label smoothing and its gradient, from two passes over the vocabulary. Labels below 0 are ignored."""
    N, V = Dim("N"), Dim("V")
    X, label = input("X", (N, V), bf16), input("label", N, i32)
    loss, gradient = output("loss", N, f32), output("gradient", (N, V), bf16)
    smoothing = scalar("smoothing", f32)
    with grid(N) as r:
        top, total, plain = Var(-inf), Var(0.0), Var(0.0)
        with pipelined(ceildiv(V, tile)) as step:
            x, weight, logit = Fragment(tile, f32), Fragment(tile, f32), Fragment(tile, f32)
            copy(X[r, :].at(step * tile), x, fill=-inf)
            most = max(top, reduce_max(x).scalar())
            with parallel(x) as i:
                weight[i] = exp(x[i] - most)
                logit[i] = select(step * tile + i < V, x[i], 0)
            total.set(total * exp(top - most) + reduce_sum(weight).scalar())
            plain += reduce_sum(logit).scalar()
            top.set(most)
        lse, at = top + log(total), label[r]
        loss[r] = select(at < 0, 0, lse - (1 - smoothing) * X[r, at] - smoothing * plain / f32(V))
        with pipelined(ceildiv(V, tile)) as step:
            x = load(X[r, :].at(step * tile), tile, f32)
            with parallel(x) as i:
                target = smoothing / f32(V) + select(step * tile + i == at, 1 - smoothing, 0)
                x[i] = select(at < 0, 0, exp(x[i] - lse) - target)
            copy(x, gradient[r, :].at(step * tile))


@tegula.kernel
def routed_product(m, n, k):
    """Rows of tokens that experts choose, times the matrices of the experts, added to the rows of the tokens by gates.

    ``N.multiple_of(4)`` promises that rows of Y end where 16 bytes do: threads add by pieces of them.
    """
    T, E, N, K, R, Ends = Dim("T"), Dim("E"), Dim("N").multiple_of(4), Dim("K"), Dim("R"), Dim("Ends")
    X, W = input("X", (T, K), bf16), input("W", (E, N, K), bf16)
    begin, token, gate = input("begin", Ends, i32), input("token", R, i32), input("gate", R, f32)
    Y, longest = output("Y", (T, N), f32, zero=True), scalar("longest", i32)
    with grid(ceildiv(N, n), ceildiv(longest, m), E) as (bx, by, e):
        first, end = begin[e] + by * m, begin[e + 1]
        exit_if(first >= end)
        acc = Fragment((m, n), f32, 0)
        with pipelined(ceildiv(K, k), stages=4) as step:
            x, w = Shared((m, k), bf16), Shared((n, k), bf16)
            columns = X[:, step * k : min(step * k + k, K)]
            gather(columns, lambda i: select(first + i < end, token[min(first + i, end - 1)], -1), x)
            copy(W[e, :, :].at(bx * n, step * k), w)
            gemm(x, w.T, acc)
        with parallel(acc) as (i, j):
            with when(first + i < end):
                atomic_add(Y[token[first + i], bx * n + j], acc[i, j] * gate[first + i])


class _Softmax:
    """An online softmax of scores to base 2."""

    def __init__(self, rows):
        self.top, self.sum = Fragment(rows, f32, -inf), Fragment(rows, f32, 0)

    def update(self, scores, acc):
        before, factor = clone(self.top), Fragment(self.top.shape, f32)
        reduce_max(scores, self.top)
        with parallel(factor) as i:
            factor[i] = select(before[i] == -inf, 0, exp2(before[i] - self.top[i]))
            self.sum[i] *= factor[i]
        with parallel(scores) as (i, j):
            scores[i, j] = select(self.top[i] == -inf, 0, exp2(scores[i, j] - self.top[i]))
        reduce_sum(scores, self.sum)
        with parallel(acc) as (i, j):
            acc[i, j] *= factor[i]


@tegula.kernel
def int8_attention(dim, m, n):
    """Attention whose queries and keys are 8-bit integers with a scale for each tile of m queries, and of n keys."""
    B, H, Queries, Keys = Dim("B"), Dim("H"), Dim("Queries"), Dim("Keys")
    Q, K = input("Q", (B, H, Queries, dim), i8), input("K", (B, H, Keys, dim), i8)
    V = input("V", (B, H, Keys, dim), f16)
    q_scale = input("q_scale", (B, H, ceildiv(Queries, m)), f32)
    k_scale = input("k_scale", (B, H, ceildiv(Keys, n)), f32)
    O = output("O", (B, H, Queries, dim), f16)
    with grid(ceildiv(Queries, m), H, B) as (block, h, b):
        q, acc, softmax = Shared((m, dim), i8), Fragment((m, dim), f32, 0), _Softmax(m)
        copy(Q[b, h, :, :].at(block * m), q)
        scale = q_scale[b, h, block] * (log2e / dim**0.5)
        with pipelined(ceildiv(Keys, n), stages=2) as step:
            k, v = Shared((n, dim), i8), Shared((n, dim), f16)
            copy(K[b, h, :, :].at(step * n), k)
            copy(V[b, h, :, :].at(step * n), v)
            products, scores = Fragment((m, n), i32, 0), Fragment((m, n), f32)
            gemm(q, k.T, products)
            factor = scale * k_scale[b, h, step]
            with parallel(scores) as (i, j):
                scores[i, j] = select(step * n + j < Keys, f32(products[i, j]) * factor, -inf)
            softmax.update(scores, acc)
            gemm(scores.to(f16), v, acc)
        with parallel(acc) as (i, j):
            acc[i, j] /= softmax.sum[i]
        copy(acc, O[b, h, :, :].at(block * m))


@tegula.kernel
def tree_decode(dim, tokens, group, n):
    """Drafted tokens attend to all keys before them and, by a word of bits for each, to one another."""
    B, L, H, rows = Dim("B"), Dim("L"), Dim("H"), tokens * group
    Q, O = (make(name, (B, tokens, H, group, dim), bf16) for make, name in ((input, "Q"), (output, "O")))
    K, V = input("K", (B, L, H, dim), bf16), input("V", (B, L, H, dim), bf16)
    length = input("length", B, i32)  # with the drafted tokens, which are the last
    sees = input("sees", (B, tokens), u32)
    with grid(H, B) as (h, b):
        q, bits = Shared((rows, dim), bf16), Shared(tokens, u32)
        with parallel(rows, dim) as (r, d):
            q[r, d] = Q[b, r // group, h, r % group, d]
        copy(sees[b, :].at(0), bits)
        end, acc, softmax = length[b], Fragment((rows, dim), f32, 0), _Softmax(rows)
        with pipelined(ceildiv(end, n), stages=2) as step:
            k, v, scores = Shared((n, dim), bf16), Shared((n, dim), bf16), Fragment((rows, n), f32, 0)
            copy(K[b, 0:end, h, :].at(step * n), k)
            copy(V[b, 0:end, h, :].at(step * n), v)
            gemm(q, k.T, scores)
            with parallel(scores) as (i, j):
                drafted = step * n + j - (end - tokens)
                bit = bits[i // group] >> u32(max(drafted, 0)) & 1
                visible = (drafted < 0) | ((drafted < tokens) & (bit == 1))
                scores[i, j] = select(visible, scores[i, j] * (log2e / dim**0.5), -inf)
            softmax.update(scores, acc)
            gemm(scores.to(bf16), v, acc)
        with parallel(acc) as (r, d):
            O[b, r // group, h, r % group, d] = acc[r, d] / softmax.sum[r]


@tegula.kernel
def adapters(m, n, k, rank):
    """Y += scale · (X Aᵀ) Bᵀ with matrices A and B of its own for each segment of rows: adapters of many users.

    The first product stays in registers and is the left operand of the second one.
    """
    T, K, N, L, Ends = Dim("T"), Dim("K"), Dim("N"), Dim("L"), Dim("Ends")
    X, A, B = input("X", (T, K), bf16), input("A", (L, rank, K), bf16), input("B", (L, N, rank), bf16)
    begin, adapter = input("begin", Ends, i32), input("adapter", Ends - 1, i32)
    Y, scale, longest = inout("Y", (T, N), bf16), scalar("scale", f32), scalar("longest", i32)
    with grid(ceildiv(longest, m), Ends - 1) as (block, s):
        rows, own = slice(begin[s], begin[s + 1]), adapter[s]
        x, y = X[rows, :], Y[rows, :]
        exit_if(block * m >= x.extent(0))
        low = Fragment((m, rank), f32, 0)
        with pipelined(ceildiv(K, k), stages=3) as step:
            tile, a = Shared((m, k), bf16), Shared((rank, k), bf16)
            copy(x.at(block * m, step * k), tile)
            copy(A[own, :, :].at(0, step * k), a)
            gemm(tile, a.T, low)
        with parallel(low) as (i, j):
            low[i, j] *= scale
        left = low.to(bf16)
        with pipelined(ceildiv(N, n), stages=2) as step:
            b = Shared((n, rank), bf16)
            copy(B[own, :, :].at(step * n), b)
            out = load(y.at(block * m, step * n), (m, n), f32)
            gemm(left, b.T, out)
            copy(out, y.at(block * m, step * n))


@tegula.kernel
def depthwise_convolution(size, rows, columns, channels):
    """Every channel of a picture [N, H, W, C] with a filter of its own. The taps are written out by Python."""
    N, H, W, C = Dim("N"), Dim("H"), Dim("W"), Dim("C")
    X, F, bias = input("X", (N, H, W, C), bf16), input("F", (size, size, C), bf16), input("bias", C, f32)
    Y, wide = output("Y", (N, H, W, C), bf16), ceildiv(W, columns)
    with grid(ceildiv(C, channels), ceildiv(H, rows) * wide, N) as (c, place, n):
        y, x = place // wide * rows, place % wide * columns
        tile = Shared((rows + size - 1, columns + size - 1, channels), bf16)
        taps = Shared((size, size, channels), bf16)
        copy(X[n, ...].at(y - size // 2, x - size // 2, c * channels), tile)  # 0 outside the picture
        copy(F.at(0, 0, c * channels), taps)
        acc, own = Fragment((rows, columns, channels), f32), load(bias.at(c * channels), channels)
        with parallel(acc) as (i, j, k):
            acc[i, j, k] = own[k]
        for p in range(size):
            for q in range(size):
                with parallel(acc) as (i, j, k):
                    acc[i, j, k] += tile[i + p, j + q, k] * taps[p, q, k]
        copy(acc, Y[n, ...].at(y, x, c * channels))


@tegula.kernel
def selective_scan(states, channels, chunk):
    """The scan of Mamba: a state for each channel, with steps and matrices that depend on the token."""
    B, L, C = Dim("B"), Dim("L"), Dim("C")
    U, Step, A = input("U", (B, L, C), bf16), input("Step", (B, L, C), bf16), input("A", (C, states), f32)
    In, Out = input("In", (B, L, states), bf16), input("Out", (B, L, states), bf16)
    skip, bias = input("skip", C, f32), input("bias", C, f32)
    Y, last = output("Y", (B, L, C), bf16), output("last", (B, C, states), f32)
    with grid(ceildiv(C, channels), B) as (block, b):
        first = block * channels
        state, a = Fragment((channels, states), f32, 0), load(A.at(first), (channels, states))
        own_skip, own_bias = load(skip.at(first), channels), load(bias.at(first), channels)
        with pipelined(ceildiv(L, chunk), stages=2) as step:
            u, d, y = (Shared((chunk, channels), bf16) for _ in range(3))
            into, out = (Shared((chunk, states), bf16) for _ in range(2))
            for tensor, tile in ((U, u), (Step, d)):
                copy(tensor[b, ...].at(step * chunk, first), tile)
            for tensor, tile in ((In, into), (Out, out)):
                copy(tensor[b, ...].at(step * chunk), tile)
            with serial(min(chunk, L - step * chunk)) as t:
                delta, x, product = Fragment(channels, f32), Fragment(channels, f32), Fragment((channels, states), f32)
                with parallel(delta) as i:
                    z = d[t, i] + own_bias[i]
                    delta[i] = select(z > 20, z, log(1 + exp(z)))
                    x[i] = u[t, i]
                with parallel(state) as (i, s):
                    state[i, s] = state[i, s] * exp(delta[i] * a[i, s]) + delta[i] * x[i] * into[t, s]
                    product[i, s] = state[i, s] * out[t, s]
                sums = reduce_sum(product)
                with parallel(sums) as i:
                    y[t, i] = sums[i] + own_skip[i] * x[i]
            copy(y, Y[b, 0 : min(step * chunk + chunk, L), :].at(step * chunk, first))
        copy(state, last[b, ...].at(first))


def _exponent(top):
    """That of the scale, as e8m0 stores it, by which the largest number fits e4m3."""
    return clamp(i32(bitcast(top, u32) >> 23) - 8, 0, 254)


@tegula.kernel
def mxfp8_both_ways(m, n):
    """A matrix in e4m3 with a scale for 32 elements of a row, and its transpose with a scale for 32 of a column."""
    M, N = Dim("M").multiple_of(32), Dim("N").multiple_of(32)
    X = input("X", (M, N), bf16)
    R, r_scale = output("R", (M, N), e4m3), output("r_scale", (M, N // 32), u8)
    C, c_scale = output("C", (N, M), e4m3), output("c_scale", (N, M // 32), u8)
    with grid(ceildiv(N, n), ceildiv(M, m)) as (bx, by):
        tile = Shared((m, n), f32)
        copy(load(X.at(by * m, bx * n), (m, n), f32), tile)
        for to, scales, source, first, second, rows, columns in (
            (R, r_scale, tile, by * m, bx * n, m, n),
            (C, c_scale, tile.T, bx * n, by * m, n, m),
        ):
            x = Fragment((rows, columns // 32, 32), f32)
            with parallel(x) as (i, j, k):
                x[i, j, k] = source[i, j * 32 + k]
            top = reduce_absmax(x)
            with parallel(top) as (i, j):
                scales[first + i, second // 32 + j] = u8(_exponent(top[i, j]))
            with parallel(x) as (i, j, k):
                to[first + i, second + j * 32 + k] = x[i, j, k] * bitcast(u32(254 - _exponent(top[i, j])) << 23, f32)


@tegula.kernel
def top_p(tile, rounds):
    """Draws from the most probable tokens that together have the probability p, without sorting them: bisection finds
    the least probability among them."""
    N, V = Dim("N"), Dim("V")
    X, p, uniform = input("X", (N, V), f32), input("p", N, f32), input("uniform", N, f32)
    chosen = output("chosen", N, i32)
    with grid(N, threads=512) as r:

        def weights(step, top, least):
            x = Fragment(tile, f32)
            copy(X[r, :].at(step * tile), x, fill=-inf)
            with parallel(x) as i:
                weight = exp(x[i] - top)
                x[i] = select(weight >= least, weight, 0)
            return x

        def mass(top, least):
            total = Var(0.0)
            with pipelined(ceildiv(V, tile)) as step:
                total += reduce_sum(weights(step, top, least)).scalar()
            return total

        top, low, high = Var(-inf), Var(0.0), Var(1.0)
        with pipelined(ceildiv(V, tile)) as step:
            x = Fragment(tile, f32)
            copy(X[r, :].at(step * tile), x, fill=-inf)
            top.set(max(top, reduce_max(x).scalar()))
        wanted = p[r] * mass(top, 0)
        with serial(rounds):
            middle = (low + high) * 0.5
            with when(mass(top, middle) >= wanted):
                low.set(middle)
            with otherwise():
                high.set(middle)
        goal, before, found, step = uniform[r] * mass(top, low), Var(0.0), Var(-1), Var(0)
        with loop_while(lambda: (found < 0) & (step * tile < V)):
            x, at = weights(step, top, low), Fragment(tile, i32)
            sums = scan_sum(x)
            with parallel(at) as i:
                at[i] = select((before + sums[i] > goal) & (x[i] > 0), i32(i), tile)
            first = reduce_min(at).scalar()
            with when(first < tile):
                found.set(step * tile + first)
            before += reduce_sum(x).scalar()
            step += 1
        chosen[r] = found
