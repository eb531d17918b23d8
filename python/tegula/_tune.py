"""Finds the fastest of several kernels for the same call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from . import _arrays, _tegula
from ._kernel import Kernel


@dataclass(frozen=True)
class TunedRow:
    """One candidate: its time in seconds, or why it is excluded."""

    candidate: Any
    seconds: float
    spread: float
    failure: str


@dataclass(frozen=True)
class Tuned:
    """The result of a search: ``rows`` has the fastest candidate first and excluded ones last."""

    rows: list[TunedRow]
    from_cache: bool
    svg: str
    _text: str
    _kernels: list[Any]

    @property
    def best(self) -> Any:
        """The fastest candidate.

        Raises:
            RuntimeError: every candidate is excluded; the message lists the reasons.
        """
        if self.rows[0].failure:
            raise RuntimeError("tune: every candidate is excluded\n" + self._text)
        return self.rows[0].candidate

    @property
    def kernel(self) -> Kernel:
        """The kernel of the fastest candidate."""
        best = self.best
        return next(kernel for candidate, kernel in self._kernels if candidate is best)

    def __str__(self) -> str:
        return self._text


def _built(kernel_of: Callable[..., Kernel], candidate: Any) -> Kernel:
    if isinstance(candidate, dict):
        return kernel_of(**candidate)
    return kernel_of(*candidate) if isinstance(candidate, tuple) else kernel_of(candidate)


def _text(candidate: Any) -> str:
    if isinstance(candidate, dict):
        return " ".join(f"{name}={value}" for name, value in candidate.items())
    return " ".join(map(str, candidate)) if isinstance(candidate, tuple) else str(candidate)


def _arguments(kernel: Kernel, args: Any, out: Any, named: dict[str, Any]) -> list[Any]:
    """A value for each parameter; the library of the first array allocates outputs that are not given."""
    given, dims = kernel._bind(args, out, named)
    shapes = kernel._shapes(given, dims)
    like = next((given[p.name] for p in kernel.parameters if p.role in ("input", "inout")), None)
    for p, shape in zip(kernel.parameters, shapes):
        if p.name not in given and shape is not None:
            given[p.name] = _arrays.empty(like, shape, p.dtype.python_name)
    return [given[p.name] for p in kernel.parameters]


def tune(
    kernel_of: Callable[..., Kernel],
    candidates: Iterable[Any],
    /,
    *args: Any,
    out: Any = None,
    target: str = "automatic",
    seconds: float = 60.0,
    jobs: int = 0,
    tolerance: float = 1e-2,
    checks: bool = True,
    cached: bool = True,
    **named: Any,
) -> Tuned:
    """Finds the fastest of several kernels for the same call.

    Candidates are compiled in parallel, checked against the interpreter, and measured one after another on copies of
    the arguments. A candidate that is refused or wrong becomes a row of the result. On the CPU each runs in its own
    process, so a candidate that crashes or does not end also becomes a row; on a GPU a candidate that exceeds its time
    ends the search, and the next search skips it.

    Args:
        kernel_of: returns the kernel of a candidate, for example a function decorated with ``tegula.kernel``.
        candidates: its arguments, as tuples, dictionaries by name, or single arguments.
        args, out, named: the arguments of the call, as for the kernel.
        target: as for a call of the kernel.
        seconds: time after which a candidate is abandoned; compilation is not counted.
        jobs: number of candidates compiled in parallel; 0: one per processor.
        tolerance: absolute and relative tolerance of the results.
        checks: compare results with those of the first candidate on the interpreter.
        cached: look up and store the best candidate in the kernel cache.

    Returns:
        A ``Tuned``: ``best`` (the candidate), ``kernel``, ``rows``, ``svg``; printed, it is a table.

    Raises:
        ValueError: there is no candidate.

    Source: the function of the same name in ``tegula/tune.hpp``.
    """
    own = list(candidates)
    kernels: list[Any] = []
    for candidate in own:
        try:
            kernels.append(_built(kernel_of, candidate))
        except (_tegula.ProgramError, ValueError) as error:
            kernels.append(str(error))
    built = [kernel for kernel in kernels if isinstance(kernel, Kernel)]
    arguments = _arguments(built[0], args, out, named) if built else []
    options = {
        "name": built[0].name if built else "",
        "seconds": float(seconds),
        "jobs": int(jobs),
        "tolerance": float(tolerance),
        "checks": bool(checks),
        "cached": bool(cached),
    }
    handles = [kernel._built if isinstance(kernel, Kernel) else kernel for kernel in kernels]
    found, from_cache, text, svg = _tegula.tune_kernels(handles, [_text(each) for each in own], arguments, target, options)
    rows = [TunedRow(own[number], time, spread, failure) for number, _, time, spread, failure in found]
    return Tuned(rows, from_cache, svg, text, list(zip(own, kernels)))
