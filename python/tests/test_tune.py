"""The fastest of several kernels: what counts, what does not, and what is kept."""

import numpy as np
import pytest
import tegula
from tegula.lang import *  # noqa: F403


@tegula.kernel
def twice(tile, way="right"):
    N = Dim("N")
    X, Y = input("X", N, f32), output("Y", N, f32)
    with grid(ceildiv(N, tile)) as block:
        x = load(X.at(block * tile), tile)
        if way == "refused":
            x[0:-1]
        if way == "endless":
            n = Var(0)
            with loop_while(lambda: n >= 0):
                n += 2
                n -= 2
        with parallel(x) as i:
            x[i] *= 3 if way == "wrong" else 2
        copy(x, Y.at(block * tile))


def test_the_fastest_of_those_that_are_right():
    x = np.arange(1000, dtype=np.float32)
    candidates = [(64,), (128, "wrong"), (256,), (64, "refused"), (64, "endless")]
    options = {"target": "cpu", "seconds": 3, "checks": True}

    # The interpreter says what is right, with the first candidate; the caller's arrays stay as they are.
    tuned = tegula.tune(twice, candidates, x, **options)
    assert len(tuned.rows) == 5 and tuned.best in [(64,), (256,)] and not tuned.from_cache
    failures = {row.candidate: row.failure for row in tuned.rows}
    assert failures[(64,)] == failures[(256,)] == ""
    assert "wrong: output 0" in failures[(128, "wrong")]
    assert failures[(64, "refused")]
    assert failures[(64, "endless")] == "does not end within 3 s"
    np.testing.assert_array_equal(tuned.kernel(x), 2 * x)
    assert "<rect" in tuned.svg and "does not end" in str(tuned)

    again = tegula.tune(twice, candidates, x, **options)
    assert again.from_cache and again.best == tuned.best


def test_nothing_counts():
    x = np.ones(8, np.float32)
    tuned = tegula.tune(twice, [{"tile": 64, "way": "refused"}], x, target="cpu")
    with pytest.raises(RuntimeError, match="every candidate is excluded"):
        _ = tuned.best
    with pytest.raises(ValueError, match="no candidate"):
        tegula.tune(twice, [], x)
