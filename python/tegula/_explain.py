"""Which way a call takes, without running it."""

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
    """Which kernels a call runs, which way each takes on a target, what falls back to a slower one, and why.

    Args:
        function: one of this package's operators, such as ``tegula.attention``, or its name.
        args, kwargs: as for the operator. Elements of arrays are not used, their shapes, dtypes and strides are.
        target: "automatic", "cpu", "cuda" or "interpreter". No GPU is needed for "cuda", which is explained as a Hopper
            GPU; arrays may lie on the host.

    Returns:
        A text: for every kernel its name, which states types, tiles and all else that it fixes, a line for each
        of its grids, and notes with the remedy.

    Raises:
        TypeError, ValueError: as the operator would.

    Source: the plans and texts of the compiler itself; see docs/show.md for all kinds of notes.
    """
    import tegula

    operator = getattr(tegula, function, None) if isinstance(function, str) else function
    name = getattr(operator, "__name__", "")
    if name not in tables or getattr(tegula, name) is not operator:
        raise ValueError(f"explain: expected an operator of tegula, given {function!r}")
    return _tegula.explain(name, *_by_table(tables[name], args, kwargs), target)


def _by_table(table: Table, args: Any, kwargs: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Inputs and options of a call by name, as texts."""
    given = inspect.signature(functions[table.name]).bind(*args, **kwargs).arguments
    refuse_keywords(f"tegula.{table.name}", given.pop("others", {}))
    arrays = {x.name: given[x.name] for x in table.inputs if given.get(x.name) is not None}
    options = {}
    for option in table.options:
        value = given.get(option.name)
        if value is not None:
            options[option.name] = library_dtype(dtype_name(value)) if option.kind == "dtype" else _text(value)
    return arrays, options
