"""Times of functions."""

import time as clock

import numpy as np
import pytest

import tegula


def test_time_counts_rounds_and_not_first_calls():
    calls = []
    timing = tegula.time(lambda: (calls.append(0), clock.sleep(0.002)), rounds=7, flush=False)
    assert len(timing.seconds) == 7
    assert len(calls) == 9
    assert timing.least >= 0.002
    assert timing.least <= timing.median
    assert "half of 7 rounds within" in str(timing)


def test_time_calls_operators_with_their_arguments():
    x = np.ones((4, 8), np.float32)
    assert tegula.time(tegula.softmax, x, rounds=3, flush=False).median > 0


def test_time_refuses_negative_rounds():
    with pytest.raises(ValueError, match="-1 rounds; give a positive number"):
        tegula.time(lambda: None, rounds=-1)


def test_time_passes_errors_on():
    with pytest.raises(ZeroDivisionError):
        tegula.time(lambda: 1 / 0)
