"""Random arrays of NumPy for calls of operators, how near to formulas results are expected, and calls that are refused."""

import numpy as np
import pytest

BLOCKS = {"q_block_size": 16, "k_block_size": 16}
TOLERANCE = {np.float32: 2e-5, np.float16: 4e-3}


def random(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def heads(queries=37, keys=45, heads=4, kv_heads=2, d=16, dtype=np.float32):
    return (
        random((2, queries, heads, d), dtype, 1),
        random((2, keys, kv_heads, d), dtype, 2),
        random((2, keys, kv_heads, d), dtype, 3),
    )


def expect_close(actual, expected, dtype=np.float32):
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(np.asarray(actual, np.float64), expected, atol=tolerance, rtol=tolerance)


def refused(call, kind, *wanted):
    with pytest.raises(kind) as error:
        call()
    for text in wanted:
        assert text in str(error.value)
