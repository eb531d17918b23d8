"""The kernels of examples/python/more_kernels.py beside NumPy, with odd sizes."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))
import more_kernels

ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 of NumPy")
bfloat16 = ml_dtypes.bfloat16
TARGETS = ["interpreter", "cpu", "emulated", "emulated_sm90"]


def normal(*shape, dtype=np.float32, seed=1, deviation=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * deviation).astype(dtype)


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def rope_append():
    tokens, heads, kv_heads, dim, page, sequences, width = 37, 6, 2, 64, 16, 3, 5
    q = normal(tokens, heads, dim, dtype=bfloat16)
    k, v = (normal(tokens, kv_heads, dim, dtype=bfloat16, seed=seed) for seed in (2, 3))
    turns, sequence = normal(80, dim, seed=4), (np.arange(tokens) % sequences).astype(np.int32)
    position = (np.arange(tokens) // sequences + 7 * sequence).astype(np.int32)
    table = np.random.default_rng(5).permutation(sequences * width).reshape(sequences, width).astype(np.int32)
    caches = [np.zeros((sequences * width, page, kv_heads, dim), bfloat16) for _ in range(2)]

    def turned(x):
        x, t = x.astype(np.float64), turns[position][:, None]
        a, b, cosine, sine = x[..., : dim // 2], x[..., dim // 2 :], t[..., : dim // 2], t[..., dim // 2 :]
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)

    expected = [np.zeros(caches[0].shape) for _ in range(2)]
    for cache, rows in zip(expected, (turned(k), v.astype(np.float64))):
        cache[table[sequence, position // page], position % page] = rows
    kernel = more_kernels.rope_append(heads, kv_heads, dim, page)
    outputs = {"Rotated": np.zeros_like(q), "Keys": caches[0], "Values": caches[1]}
    return kernel, (q, k, v, turns, position, sequence, table), outputs, [turned(q), *expected], 8e-3


def smoothed_cross_entropy():
    x, label, smoothing = normal(5, 1003, dtype=bfloat16, deviation=3), np.array([4, -1, 0, 1002, 500], np.int32), 0.1
    wide, rows, valid = x.astype(np.float64), np.arange(5), label >= 0
    lse = np.log(np.exp(wide).sum(1))
    loss = (lse - (1 - smoothing) * wide[rows, label] - smoothing * wide.mean(1)) * valid
    gradient = np.exp(wide - lse[:, None]) - smoothing / 1003
    gradient[rows, label] -= 1 - smoothing
    outputs = {"loss": np.zeros(5, np.float32), "gradient": np.zeros_like(x)}
    kernel = more_kernels.smoothed_cross_entropy(256)
    return kernel, (x, label, smoothing), outputs, [loss, gradient * valid[:, None]], 8e-3


def routed_product():
    tokens, experts, n, k = 45, 4, 132, 104
    x, w = normal(tokens, k, dtype=bfloat16), normal(experts, n, k, dtype=bfloat16, seed=2, deviation=0.1)
    chosen = np.random.default_rng(3).integers(0, 2, (tokens, 2)) + np.array([0, 2])
    chosen[chosen == 2] = 3  # nobody chooses an expert
    order = np.argsort(chosen.reshape(-1), kind="stable")
    token, expert = (order // 2).astype(np.int32), chosen.reshape(-1)[order]
    begin = np.searchsorted(expert, np.arange(experts + 1)).astype(np.int32)
    gate, y = np.random.default_rng(4).random(2 * tokens).astype(np.float32), np.zeros((tokens, n))
    np.add.at(y, token, gate[:, None] * np.einsum("rk,rnk->rn", x[token].astype(float), w[expert].astype(float)))
    args = (x, w, begin, token, gate, int(np.diff(begin).max()))
    return more_kernels.routed_product(64, 64, 64), args, {"Y": np.zeros((tokens, n), np.float32)}, [y], 1e-4


def int8_attention():
    heads, queries, keys, dim, m, n, draw = 2, 150, 77, 64, 64, 64, np.random.default_rng(1)
    q, k = (draw.integers(-127, 128, (1, heads, length, dim)).astype(np.int8) for length in (queries, keys))
    v = normal(1, heads, keys, dim, dtype=np.float16)
    scales = [(draw.random((1, heads, -(-length // tile))) * 0.02).astype(np.float32) for length, tile in
              ((queries, m), (keys, n))]  # fmt: skip
    wide = [x * scale.repeat(tile, 2)[:, :, : x.shape[2], None].astype(float) for x, scale, tile in
            zip((q, k), scales, (m, n))]  # fmt: skip
    expected = softmax(wide[0] @ wide[1].swapaxes(2, 3) / dim**0.5) @ v.astype(float)
    outputs = {"O": np.zeros((1, heads, queries, dim), np.float16)}
    return more_kernels.int8_attention(dim, m, n), (q, k, v, *scales), outputs, [expected], 4e-3


def tree_decode():
    batch, keys, heads, group, dim, tokens = 2, 150, 2, 8, 64, 8
    q = normal(batch, tokens, heads, group, dim, dtype=bfloat16)
    k, v = (normal(batch, keys, heads, dim, dtype=bfloat16, seed=seed) for seed in (2, 3))
    length, draw = np.array([keys, keys - 13], np.int32), np.random.default_rng(4)
    sees = (draw.integers(0, 2**tokens, (batch, tokens)) | 1 << np.arange(tokens)).astype(np.uint32)
    out = np.zeros(q.shape)
    for b, end in enumerate(length):
        drafted = (sees[b][:, None] >> np.arange(tokens) & 1) == 1
        visible = np.concatenate([np.ones((tokens, end - tokens), bool), drafted], 1)
        scores = np.einsum("thgd,khd->thgk", q[b].astype(float), k[b, :end].astype(float)) / dim**0.5
        weights = softmax(np.where(visible[:, None, None], scores, -np.inf))
        out[b] = np.einsum("thgk,khd->thgd", weights, v[b, :end].astype(float))
    outputs = {"O": np.zeros_like(q)}
    return more_kernels.tree_decode(dim, tokens, group, 64), (q, k, v, length, sees), outputs, [out], 1e-2


def adapters():
    rows, k, n, rank = 77, 136, 200, 16
    x, y = normal(rows, k, dtype=bfloat16), normal(rows, n, dtype=bfloat16, seed=4)
    a, b = normal(3, rank, k, dtype=bfloat16, seed=2, deviation=0.1), normal(3, n, rank, dtype=bfloat16, seed=3)
    begin, adapter, expected = np.array([0, 20, 20, 70, 77], np.int32), np.array([1, 0, 2, 0], np.int32), y.astype(float)
    for s, own in enumerate(adapter):
        part = slice(begin[s], begin[s + 1])
        expected[part] += 0.5 * (x[part].astype(float) @ a[own].astype(float).T) @ b[own].astype(float).T
    return more_kernels.adapters(64, 128, 64, rank), (x, a, b, begin, adapter), {"Y": y}, [expected], 1e-2, (0.5, 50)


def depthwise_convolution():
    size, x = 5, normal(2, 9, 13, 40, dtype=bfloat16)
    taps, bias = normal(size, size, 40, dtype=bfloat16, seed=2), normal(40, seed=3)
    padded = np.pad(x.astype(float), ((0, 0), (2, 2), (2, 2), (0, 0)))
    expected = bias + sum(
        padded[:, p : p + 9, q : q + 13] * taps[p, q].astype(float) for p in range(size) for q in range(size)
    )
    kernel = more_kernels.depthwise_convolution(size, 4, 8, 32)
    return kernel, (x, taps, bias), {"Y": np.zeros_like(x)}, [expected], 8e-3


def selective_scan():
    batch, length, channels, states = 2, 37, 70, 16
    u, step = (normal(batch, length, channels, dtype=bfloat16, seed=seed) for seed in (1, 2))
    into, out = (normal(batch, length, states, dtype=bfloat16, seed=seed) for seed in (3, 4))
    a, skip, bias = -np.exp(normal(channels, states, seed=5)), normal(channels, seed=6), normal(channels, seed=7)
    state, y = np.zeros((batch, channels, states)), np.zeros((batch, length, channels))
    for t in range(length):
        delta, x = np.log1p(np.exp(step[:, t].astype(float) + bias)), u[:, t].astype(float)
        state = state * np.exp(delta[..., None] * a) + (delta * x)[..., None] * into[:, t, None].astype(float)
        y[:, t] = (state * out[:, t, None].astype(float)).sum(-1) + skip * x
    outputs = {"Y": np.zeros_like(u), "last": np.zeros(state.shape, np.float32)}
    return more_kernels.selective_scan(states, 32, 16), (u, step, a, into, out, skip, bias), outputs, [y, state], 8e-3


def mxfp8_both_ways():
    x = normal(96, 160, dtype=bfloat16, deviation=3)

    def quantised(rows):
        groups = rows.astype(np.float32).reshape(len(rows), -1, 32)
        exponent = np.abs(groups).max(-1).view(np.uint32).astype(int) // 2**23 - 8
        scaled = np.clip(groups * np.exp2(127.0 - exponent)[..., None], -448, 448)
        return scaled.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).reshape(rows.shape), exponent

    expected = [*quantised(x), *quantised(x.T.copy())]
    names, types = ("R", "r_scale", "C", "c_scale"), (ml_dtypes.float8_e4m3fn, np.uint8) * 2
    outputs = {name: np.zeros(each.shape, dtype) for name, each, dtype in zip(names, expected, types)}
    return more_kernels.mxfp8_both_ways(64, 64), (x,), outputs, expected, 0


def top_p():
    rows, vocabulary = 6, 1500
    x, p = normal(rows, vocabulary, deviation=2), np.array([0.5, 0.9, 0.95, 0.1, 0.99, 0.7], np.float32)
    uniform, weights, expected = np.random.default_rng(2).random(rows).astype(np.float32), softmax(x.astype(float)), []
    for own, most, u in zip(weights, p, uniform):
        order = np.argsort(-own)
        kept = order[: np.searchsorted(own[order].cumsum(), most) + 1]
        of_kept = np.zeros(vocabulary)
        of_kept[kept] = own[kept]
        expected.append(np.searchsorted(of_kept.cumsum(), u * of_kept.sum(), side="right"))
    outputs = {"chosen": np.zeros(rows, np.int32)}
    return more_kernels.top_p(512, 24), (x, p, uniform), outputs, [np.array(expected)], 0


CASES = [rope_append, smoothed_cross_entropy, routed_product, int8_attention, tree_decode, adapters,
         depthwise_convolution, selective_scan, mxfp8_both_ways, top_p]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_results(case, target):
    kernel, args, outputs, expected, tolerance, *scalars = case()
    names = [p.name for p in kernel.parameters if p.role == "scalar"]
    kernel(*args, **outputs, **dict(zip(names, scalars[0] if scalars else ())), target=target)
    for result, wanted in zip(outputs.values(), expected):
        most = np.abs(wanted).max()
        np.testing.assert_allclose(result.astype(float), np.asarray(wanted, float), rtol=0, atol=tolerance * most)


@pytest.mark.parametrize("case", CASES)
def test_notes(case):
    """Nothing is slower than it looks: limits of a sequence cut tiles that threads load then, and cached tokens stay in
    registers."""
    allowed = {tree_decode: ("by threads", "stages")}.get(case, ())
    assert [note for note in case()[0].notes() if not any(kind in str(note) for kind in allowed)] == []
