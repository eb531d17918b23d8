"""The operators on NumPy arrays, against the formulas."""

import numpy as np
import pytest
import references as reference
import tegula
from arrays import BLOCKS, expect_close, heads, random, refused
from tegula._tables import library_dtype

TARGETS = ["interpreter", "automatic"]

ATTENTION = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"left": 9, "right": 3},
    "scale, softcap": {"scale": 0.3, "softcap": 5.0},
    "sinks": {"sinks": random((4,), seed=4), "causal": True},
}


# Two of the kernels are compiled as well; the others take the same way.
@pytest.mark.parametrize(
    "name, target", [(name, "interpreter") for name in ATTENTION] + [("plain", "automatic"), ("causal", "automatic")]
)
def test_attention(name, target):
    options = ATTENTION[name]
    q, k, v = heads()
    out, lse = tegula.attention(q, k, v, target=target, **options)
    mask = reference.causal_mask(
        37, 45, options.get("left", -1), 0 if options.get("causal") else options.get("right", -1)
    )
    kept = {key: value for key, value in options.items() if key in ("scale", "softcap", "sinks")}
    expected_out, expected_lse = reference.attention(q, k, v, mask, **kept)
    assert type(out) is np.ndarray and out.dtype == np.float32 and lse.dtype == np.float32
    expect_close(out, expected_out)
    expect_close(lse, expected_lse)


def test_attention_in_float16():
    q, k, v = heads(dtype=np.float16)
    out, _ = tegula.attention(q, k, v, target="interpreter")
    assert out.dtype == np.float16
    expect_close(out, reference.attention(q, k, v)[0], np.float16)


def test_strides_are_free():
    """The other layout, views of larger arrays, reversed sequences, and read-only arrays."""
    whole = random((2, 4, 37, 3, 16))
    q, k, v = (whole[:, :, :, i] for i in range(3))
    k = k[:, ::2, ::-1]
    v = np.lib.stride_tricks.as_strided(v, strides=v.strides, writeable=False)[:, ::2]
    out, lse = tegula.attention(q, k, v, layout="bhsd", target="interpreter")
    expected_out, expected_lse = reference.attention(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)))
    expect_close(out, expected_out.transpose(0, 2, 1, 3))
    expect_close(lse, expected_lse)


def test_packed_sequences():
    q, k, v = (x[0] for x in heads(37, 37))
    bounds = np.array([0, 11, 37], np.int32)
    packed = {"cu_seqlens_q": bounds, "cu_seqlens_k": bounds, "target": "interpreter"}
    out, lse = tegula.attention(q, k, v, max_seqlen_q=26, max_seqlen_k=30, **packed)
    refused(lambda: tegula.attention(q, k, v, max_seqlen_k=25, **packed), ValueError, "max_seqlen_k", "at least 26")
    for begin, end in ((0, 11), (11, 37)):
        own = slice(begin, end)
        expected_out, expected_lse = reference.attention(q[None, own], k[None, own], v[None, own])
        expect_close(out[own], expected_out[0])
        expect_close(lse[:, own], expected_lse[0])


def test_outputs_of_the_caller():
    q, k, v = heads()
    out, lse = np.empty_like(q), np.empty((2, 4, 37), np.float32)
    results = tegula.attention(q, k, v, out=out, lse=lse, target="interpreter")
    assert results[0] is out and results[1] is lse
    expect_close(out, reference.attention(q, k, v)[0])


INDICES = np.array([[2, 0, -1], [1, 1, 99], [-1, -1, -1]], np.int32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("causal", [False, True])
def test_block_sparse(causal, target):
    q, k, v = heads()
    indices = np.broadcast_to(INDICES, (2, 2, 3, 3)).copy()
    indices[1, :, 0] = [1, 2, 0]
    out, lse = tegula.block_sparse_attention(q, k, v, indices=indices, **BLOCKS, causal=causal, target=target)
    mask = reference.block_mask(indices, 37, 45, 16, 16).repeat(2, 1)
    if causal:
        mask = mask & reference.causal_mask(37, 45, right=0)
    expected_out, expected_lse = reference.attention(q, k, v, mask)
    expect_close(out, expected_out)
    expect_close(lse, expected_lse)


def test_block_sparse_mask_and_counts():
    q, k, v = heads()
    mask = np.random.default_rng(5).random((2, 4, 3, 3)) < 0.5
    out, _ = tegula.block_sparse_attention(q, k, v, mask=mask, **BLOCKS, target="interpreter")
    elements = mask.repeat(16, 2)[:, :, :37].repeat(16, 3)[:, :, :, :45]
    expect_close(out, reference.attention(q, k, v, elements)[0])
    indices = np.broadcast_to(INDICES, (2, 2, 3, 3)).copy()
    counts = np.ones((2, 2, 3), np.int32)
    out, _ = tegula.block_sparse_attention(
        q, k, v, indices=indices, counts=counts, **BLOCKS, target="interpreter"
    )
    elements = reference.block_mask(indices[..., :1], 37, 45, 16, 16).repeat(2, 1)
    expect_close(out, reference.attention(q, k, v, elements)[0])


@pytest.mark.parametrize("target", TARGETS)
def test_block_sparse_packed(target):
    """Blocks count from the beginning of each sequence; what its own rows do not hold is not read."""
    q, k, v = (x[0] for x in heads(37, 45))
    bounds_q, bounds_k = np.array([0, 11, 11, 37], np.int32), np.array([0, 30, 35, 45], np.int32)
    packed = {"cu_seqlens_q": bounds_q, "cu_seqlens_k": bounds_k, "causal": True, "target": target}
    indices = np.random.default_rng(7).integers(-1, 4, (3, 2, 4, 2)).astype(np.int32)
    indices[0, :, 2:] = 99
    blocks = {"q_block_size": 8, "k_block_size": 10}
    call = {**packed, **blocks, "indices": indices}
    out, lse = tegula.block_sparse_attention(q, k, v, **call, max_seqlen_q=30, max_seqlen_k=30)
    dout, dlse = random(out.shape), random(lse.shape)
    gradients = tegula.block_sparse_attention_backward(dout, q, k, v, out, lse, dlse=dlse, **call)
    assert [x.shape for x in gradients] == [q.shape, k.shape, v.shape]
    for b in (0, 2):
        of_q, of_k = slice(*bounds_q[b : b + 2]), slice(*bounds_k[b : b + 2])
        sequence = [x[None] for x in (q[of_q], k[of_k], v[of_k])]
        own = np.ascontiguousarray(indices[b : b + 1, :, : (sequence[0].shape[1] + 7) // 8])
        mask = reference.block_mask(own, sequence[0].shape[1], sequence[1].shape[1], 8, 10).repeat(2, 1)
        mask = mask & reference.causal_mask(sequence[0].shape[1], sequence[1].shape[1], right=0)
        expected_out, expected_lse = reference.attention(*sequence, mask)
        expect_close(out[of_q], expected_out[0])
        expect_close(lse[:, of_q], expected_lse[0])
        alone = tegula.block_sparse_attention_backward(
            dout[None, of_q], *sequence, out[None, of_q], lse[None, :, of_q], indices=own, dlse=dlse[None, :, of_q],
            causal=True, target=target, **blocks,
        )  # fmt: skip
        for actual, right, where in zip(gradients, alone, (of_q, of_k, of_k)):
            expect_close(actual[where], right[0])
    refused(
        lambda: tegula.block_sparse_attention(q, k, v, indices=indices[:, :, :3], **packed, **blocks),
        ValueError, "'indices'", "a row for every block of queries",
    )  # fmt: skip
    refused(
        lambda: tegula.block_sparse_attention(q, k, v, **call, check_indices=True), ValueError, "'indices'", "below"
    )


@pytest.mark.parametrize("target", TARGETS)
def test_nsa_selected(target):
    q, k, v = heads(37, 37)
    indices = np.random.default_rng(6).integers(-1, 6, (2, 37, 2, 3)).astype(np.int32)
    results = tegula.nsa_selected_attention(q, k, v, indices, block_size=8, diagonal=True, window=7, target=target)
    out, lse, window_out, window_lse = results
    causal = reference.causal_mask(37, 37, right=0)
    mask = reference.block_mask(indices.transpose(0, 2, 1, 3), 37, 37, 1, 8).repeat(2, 1)
    mask |= (np.arange(37)[:, None] // 8) == (np.arange(37)[None, :] // 8)
    expected_out, expected_lse = reference.attention(q, k, v, mask & causal)
    expect_close(out, expected_out)
    expect_close(lse, expected_lse)
    expected_out, expected_lse = reference.attention(q, k, v, reference.causal_mask(37, 37, 6, 0))
    expect_close(window_out, expected_out)
    expect_close(window_lse, expected_lse)
    without = tegula.nsa_selected_attention(q, k, v, indices, block_size=8, target="interpreter")
    assert without.window_out is None and without.window_lse is None


@pytest.mark.parametrize("target", TARGETS)
def test_choice_of_blocks(target):
    q, k, _ = heads()
    scores = tegula.block_scores(q, k, q_block_size=16, k_block_size=8, target=target)
    expected = reference.block_scores(q, k, 16, 8)
    expect_close(scores, expected)
    chosen = tegula.topk_blocks(scores, 3, target=target)
    assert chosen.dtype == np.int32
    np.testing.assert_array_equal(chosen, np.sort(np.argsort(-scores, -1, kind="stable")[..., :3], -1))
    per_head = tegula.block_scores(q, k, q_block_size=16, k_block_size=8, per_kv_head=False, target="interpreter")
    assert per_head.shape == (2, 4, 3, 6)


@pytest.mark.parametrize("target", TARGETS)
def test_gemm(target):
    a, b, bias = random((30, 20)), random((25, 20), seed=1), random((25,), seed=2)
    out = tegula.gemm(a, b, transpose_b=True, bias=bias, activation="relu", target=target)
    expect_close(out, np.maximum(a.astype(float) @ b.T + bias, 0))
    batches = random((3, 20, 30), seed=3)
    out = tegula.gemm(batches, b.T, transpose_a=True, out_dtype=np.float16, target="interpreter")
    assert out.dtype == np.float16
    expect_close(out, batches.astype(float).transpose(0, 2, 1) @ b.T, np.float16)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_gemm_of_ml_dtypes(dtype):
    """Their numbers are bytes without a meaning to NumPy, which tells nobody else about them."""
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    kind = getattr(ml_dtypes, dtype)
    a, b = random((30, 32)).astype(kind), random((25, 32), seed=1).astype(kind)
    expected = 0.5 * a.astype(float) @ b.astype(float).T
    out = tegula.gemm(a, b, transpose_b=True, scale=0.5)
    assert out.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(out.astype(float), expected, atol=1e-2, rtol=1e-2)
    out = tegula.gemm(a, b, transpose_b=True, scale=0.5, out_dtype=np.float32)
    expect_close(out, expected)
    refused(lambda: tegula.gemm(a, b.astype(np.float32), transpose_b=True), ValueError, "'b'", library_dtype(dtype), "f32")


@pytest.mark.parametrize("target", ["interpreter", "cpu", "emulated", "emulated_sm90"])
def test_sums_of_f16(target):
    a, b = random((30, 32)).astype(np.float16), random((25, 32), seed=1).astype(np.float16)
    out = tegula.gemm(a, b, transpose_b=True, sum_dtype=np.float16, out_dtype=np.float32, target=target)
    np.testing.assert_allclose(out, a.astype(float) @ b.astype(float).T, atol=2e-2, rtol=1e-2)


def test_gradients_agree_with_differences():
    q, k, v = (x[:1, :9, :2, :8] for x in heads())
    dout = random(q.shape, seed=7)
    out, lse = tegula.attention(q, k, v, causal=True, target="interpreter")
    gradients = tegula.attention_backward(dout, q, k, v, out, lse, causal=True, target="interpreter")
    assert gradients[3] is None
    mask = reference.causal_mask(9, 9, right=0)

    def loss(*inputs):
        return (reference.attention(*inputs, mask)[0] * dout).sum()

    for at, gradient in enumerate(gradients[:3]):
        step = np.zeros((3, *q.shape))
        step[at] = random(q.shape, seed=8) * 1e-4
        plus = loss(q + step[0], k + step[1], v + step[2])
        minus = loss(q - step[0], k - step[1], v - step[2])
        assert abs((gradient * step[at]).sum() * 2 - (plus - minus)) < 1e-7


DAEMONS = """
import threading, time, numpy, tegula
q = numpy.ones((1, 64, 2, 16), numpy.float32)
tegula.attention(q, q, q)
def work():
    while True:
        tegula.attention(q, q, q)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.02)
"""


def test_the_program_ends_amid_calls_of_daemon_threads():
    import subprocess
    import sys

    for _ in range(8):
        ended = subprocess.run([sys.executable, "-c", DAEMONS], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0 and ended.stderr == ""


def test_other_threads_go_on():
    """A call releases the interpreter lock: another thread counts on while the operator runs."""
    import threading

    begun, done = threading.Event(), threading.Event()
    count = 0

    def counting():
        nonlocal count
        begun.set()
        while not done.is_set():
            count += 1

    thread = threading.Thread(target=counting)
    thread.start()
    begun.wait()
    before = count
    q = random((1, 512, 1, 16))  # long enough for a busy machine to run both
    tegula.attention(q, q, q, target="interpreter")
    counted = count - before
    done.set()
    thread.join()
    assert counted > 100


def test_synchronize_of_no_device():
    with pytest.raises((RuntimeError, ValueError)):
        tegula.synchronize(99)


def test_every_function_is_documented():
    functions = [name for name in tegula.__all__ if not isinstance(getattr(tegula, name), type)]
    assert len(functions) > len(tegula._functions.functions)
    for name in functions:
        text = getattr(tegula, name).__doc__
        for heading in ("Args:", "Returns:", "Raises:", "Source:"):
            assert heading in text, (name, heading)


def test_explain_tells_the_way_of_a_call():
    q, k, v = (x.astype(np.float16) for x in heads(queries=256, keys=256, d=64))
    text = tegula.explain(tegula.attention, q, k, v, causal=True, target="cuda")
    assert "attention_f16_f16_d64_v64" in text and "by wgmma" in text
    assert "multiply-add: " in tegula.explain("gemm", random((64, 64)), random((64, 64)), target="cuda")
    lists = np.zeros((2, 4, 4, 1), np.int32)
    assert "block_sparse_f16" in tegula.explain("block_sparse_attention", q, k, v, indices=lists, target="cuda")
    with pytest.raises(ValueError, match="expected an operator"):
        tegula.explain(np.add, q, k)
    with pytest.raises(ValueError, match="expected an operator"):
        tegula.explain("attend", q, k)
    with pytest.raises(ValueError):
        tegula.explain(tegula.attention, q, k[..., :8], v)
