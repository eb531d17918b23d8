"""Measures how long a function takes."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _tegula

_CUDA = 2  # of DLPack


@dataclass(frozen=True)
class Timing:
    """Times of a function in seconds, one per round."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def least(self) -> float:
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Half of the rounds are within this fraction of the median: half the interquartile range."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / self.median

    def __str__(self) -> str:
        factor, unit = (1e6, "us") if self.median < 1e-3 else (1e3, "ms") if self.median < 1 else (1.0, "s")
        rounds = f"half of {len(self.seconds)} rounds within {100 * self.spread:.1f} %"
        return f"{factor * self.median:.4g} {unit}, {rounds}"


def _device_of(arrays: Any) -> int:
    """The number of the CUDA device of the first array on such a device, else -1."""
    for array in arrays:
        if hasattr(array, "__dlpack_device__"):
            kind, index = array.__dlpack_device__()
            if int(kind) == _CUDA:
                return int(index)
    return -1


def _stream_of(device: int) -> int:
    """PyTorch's current stream, if PyTorch is there; else the default one."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_stream(device).cuda_stream) if torch is not None and device >= 0 else 0


def time(function: Callable[..., Any], /, *args: Any, rounds: int = 0, flush: bool = True, **kwargs: Any) -> Timing:
    """Measures how long a function takes.

    Args:
        function: any callable.
        args, kwargs: its arguments. If one of them is an array on a CUDA device, rounds are timed by events on
            PyTorch's current stream of that device, otherwise by the host's clock.
        rounds: number of timed rounds; 0: as many as fit in a third of a second, 5 to 101.
        flush: overwrite the caches before each round, so that they do not contain its inputs.

    Returns:
        A ``Timing``: ``median``, ``least``, ``spread`` and all ``seconds``. The first calls, which compile, are not
        counted.

    Raises:
        ValueError: for a negative number of rounds.

    Source: the function of the same name in ``tegula/time.hpp``.
    """
    device = _device_of([*args, *kwargs.values()])
    seconds = _tegula.time(lambda: function(*args, **kwargs), device, _stream_of(device), rounds, flush)
    return Timing(list(seconds))
