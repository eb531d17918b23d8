"""The operators on arrays of JAX: results of NumPy, as arrays of JAX, on the CPU and on a GPU where JAX has one."""

import numpy as np
import pytest
import tegula

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402


def devices():
    found = [jax.devices("cpu")[0]]
    try:
        found.append(jax.devices("cuda")[0])
    except RuntimeError:  # JAX without CUDA, or a machine without a GPU
        pass
    return found


DEVICES = devices()


def inputs(dtype=np.float32, d=16):
    generator = np.random.default_rng(1)
    return [generator.standard_normal((1, 40, n, d)).astype(dtype) for n in (4, 2, 2)]


def expect_close(actual, expected, device, tolerance=2e-5):
    assert isinstance(actual, jax.Array) and actual.devices() == {device}
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected.astype(np.float64), tolerance, tolerance)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_attention(device):
    arrays = inputs()
    given = [jax.device_put(x, device) for x in arrays]
    out, lse = tegula.attention(*given, causal=True)
    for actual, right in zip((out, lse), tegula.attention(*arrays, causal=True)):
        expect_close(actual, right, device)
    gradients = tegula.attention_backward(out, *given, out, lse, causal=True)
    right = tegula.attention_backward(*(np.asarray(x) for x in (out, *arrays, out, lse)), causal=True)
    assert gradients[3] is None
    for actual, expected in zip(gradients[:3], right):
        expect_close(actual, expected, device, 1e-4)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_choice_of_blocks(device):
    arrays = inputs()
    q, k, v = (jax.device_put(x, device) for x in arrays)
    blocks = {"q_block_size": 8, "k_block_size": 8}
    scores = tegula.block_scores(q * 1, k, **blocks)
    chosen = tegula.topk_blocks(scores, 2)
    expected_scores = tegula.block_scores(*arrays[:2], **blocks)
    expect_close(scores, expected_scores, device)
    expected_choice = tegula.topk_blocks(expected_scores, 2)
    np.testing.assert_array_equal(np.asarray(chosen), expected_choice)
    results = tegula.block_sparse_attention(q, k, v, indices=chosen, **blocks)
    for actual, right in zip(results, tegula.block_sparse_attention(*arrays, indices=expected_choice, **blocks)):
        expect_close(actual, right, device)
    tokens = np.random.default_rng(2).integers(-1, 5, (1, 40, 2, 3)).astype(np.int32)
    results = tegula.nsa_selected_attention(q, k, v, jax.device_put(tokens, device), block_size=8, window=9)
    for actual, right in zip(results, tegula.nsa_selected_attention(*arrays, tokens, block_size=8, window=9)):
        expect_close(actual, right, device)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_products_in_bfloat16(device):
    a, b = (jax.device_put(x[0, :, 0], device).astype(jnp.bfloat16) for x in inputs()[:2])
    product = tegula.gemm(a, b, transpose_b=True)
    assert product.dtype == jnp.bfloat16
    exact = np.asarray(a, np.float64) @ np.asarray(b, np.float64).T
    np.testing.assert_allclose(np.asarray(product, np.float64), exact, 1e-2, 1e-2)


def test_results_outlive_what_they_come_from():
    arrays = inputs()
    out, _ = tegula.attention(*(jnp.asarray(x) for x in arrays))
    for _ in range(3):
        tegula.attention(*(jnp.asarray(x * 2) for x in arrays))
    np.testing.assert_allclose(np.asarray(out), tegula.attention(*arrays)[0], 2e-5, 2e-5)


def test_traced_arrays_are_refused():
    q, k, v = (jnp.asarray(x) for x in inputs())
    with pytest.raises(TypeError, match="q"):
        jax.jit(lambda q: tegula.attention(q, k, v)[0])(q)
