"""How long a function takes."""

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
    """Times of a function, in seconds, one for each round."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def least(self) -> float:
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Half of the rounds lie within this share of the median: half the distance of the quartiles."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / self.median

    def __str__(self) -> str:
        factor, unit = (1e6, "us") if self.median < 1e-3 else (1e3, "ms") if self.median < 1 else (1.0, "s")
        rounds = f"half of {len(self.seconds)} rounds within {100 * self.spread:.1f} %"
        return f"{factor * self.median:.4g} {unit}, {rounds}"


def _device_of(arrays: Any) -> int:
    """The number of the CUDA device of the first array that lies on one, else -1."""
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
        function: anything that is called.
        args, kwargs: what it is called with. If one of them is an array on a CUDA device, rounds stand between events of
            that device, on PyTorch's current stream; else the clock is read.
        rounds: how often it is timed; 0 for as many rounds as take a third of a second, 5 to 101.
        flush: overwrites the caches in front of each round, so that it finds nothing of its inputs there.

    Returns:
        A ``Timing``: ``median``, ``least``, ``spread`` and all ``seconds``. First calls, which compile, do not count.

    Raises:
        ValueError: for a negative number of rounds.

    Source: the function of the same name in ``tegula/time.hpp``.
    """
    device = _device_of([*args, *kwargs.values()])
    seconds = _tegula.time(lambda: function(*args, **kwargs), device, _stream_of(device), rounds, flush)
    return Timing(list(seconds))
