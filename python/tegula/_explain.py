"""Explains how a call is executed, without running it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from . import _tegula
from ._arrays import dtype_name
from ._functions import functions
from ._keywords import refuse_keywords
from ._tables import Table, library_dtype, tables

def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def explain(function: Callable[..., Any] | str, /, *args: Any, target: str = "automatic", **kwargs: Any) -> str:
    """Explains which kernels a call runs, how each is executed on a target, what falls back to slower code, and why.

    Args:
        function: one of this package's operators, such as ``tegula.attention``, or its name.
        args, kwargs: as for the operator. Shapes, dtypes and strides of arrays matter, their elements do not.
        target: "automatic", "cpu", "cuda" or "interpreter". "cuda" means a Hopper GPU; none is needed, and arrays may
            be on the host.

    Returns:
        A text: for every kernel its name, which contains types, tiles and everything else that it fixes, a line for
            each of its grids, and notes with remedies.

    Raises:
        TypeError, ValueError: as the operator would.

    Source: the compiler's own plans; docs/show.md lists all kinds of notes.
    """
    import tegula

    operator = getattr(tegula, function, None) if isinstance(function, str) else function
    name = getattr(operator, "__name__", "")
    if name not in tables or getattr(tegula, name) is not operator:
        raise ValueError(f"explain: expected an operator of tegula, given {function!r}")
    return _tegula.explain(name, *_by_table(tables[name], args, kwargs), target)


def _by_table(table: Table, args: Any, kwargs: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Inputs and options of a call by name, as text."""
    given = inspect.signature(functions[table.name]).bind(*args, **kwargs).arguments
    refuse_keywords(f"tegula.{table.name}", given.pop("others", {}))
    arrays = {x.name: given[x.name] for x in table.inputs if given.get(x.name) is not None}
    options = {}
    for option in table.options:
        value = given.get(option.name)
        if value is not None:
            options[option.name] = library_dtype(dtype_name(value)) if option.kind == "dtype" else _text(value)
    return arrays, options
