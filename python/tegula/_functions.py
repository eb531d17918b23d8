"""The functions of operators, made from their tables."""

from __future__ import annotations

import __future__
import collections
import linecache
from typing import Any, Callable, Dict, Sequence

from . import _tegula
from ._keywords import refuse_keywords
from ._printing import documentation, head
from ._tables import Table, tables


def make_function(source: str, name: str, module: str, doc: str, namespace: Dict[str, Any]) -> Callable[..., Any]:
    """The function defined by the source text, whose lines appear in tracebacks; its annotations are strings."""
    file = f"<table of {module}.{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    # Names of globals are looked up in the module of that name by Dynamo of PyTorch before 2.15: these have none.
    exec(compile(source, file, "exec", __future__.annotations.compiler_flag), namespace)
    function = namespace[name]
    function.__module__, function.__doc__ = module, doc
    return function


def refusal_of_others(function: str, known: Sequence[str]) -> Callable[[Dict[str, Any]], None]:
    """The code that refuses keyword arguments that a function does not have."""

    def refuse(others: Dict[str, Any]) -> None:
        refuse_keywords(function, others, known)

    return refuse


def accepting_others(source: str) -> str:
    """The head with a last parameter that collects unknown keywords, so that the error can suggest the right one."""
    whole = source.replace("\n) -> ", "\n    **others: NoReturn,\n) -> ")
    return f"{whole}    if others:\n        _refuse_others(others)\n"


def result_type(table: Table) -> Any:
    """The class of the results, shared by all functions of the operator."""
    if table.name not in _results:
        names = [x.name for x in table.outputs]
        made = collections.namedtuple(table.result_name, names, module="tegula._functions")  # type: ignore[misc]
        made.__doc__ = f"The results of ``{table.name}``; None are those that a call does not have."
        _results[table.name] = made
    return _results[table.name]


_results: Dict[str, Any] = {}
_gradients = {table.gradient for table in tables.values()}


def _function(table: Table) -> Callable[..., Any]:
    source = accepting_others(head(table, "Array", table.options))
    floats = [x.name for x in table.inputs if x.is_floating]
    if table.name in _gradients:  # their inputs are kept from calls that had gradients
        source += f"    _refuse_tracing({table.inputs[0].name})\n"
    elif floats:
        source += f"    _refuse_recording({', '.join(floats)})\n"
    order = [x.name for x in (*table.inputs, *table.options, *table.outputs)] + ["target"]
    call = f"_call({', '.join([str(table.number), *order])})"
    source += f"    return _new(_Result, {call})\n" if len(table.outputs) > 1 else f"    return {call}\n"
    namespace = {
        "_call": _tegula.call,
        "_new": tuple.__new__,
        "_refuse_others": refusal_of_others(f"tegula.{table.name}", order),
        "_refuse_recording": _tegula.refuse_recording,
        "_refuse_tracing": _tegula.refuse_tracing,
        "_Result": result_type(table) if len(table.outputs) > 1 else None,
    }
    return make_function(source, table.name, "tegula", documentation(table, table.options), namespace)


functions: Dict[str, Callable[..., Any]] = {}
for _table in tables.values():
    functions[_table.name] = _function(_table)
    if len(_table.outputs) > 1:
        globals()[_table.result_name] = result_type(_table)
globals().update(functions)
__all__ = [*functions, *(table.result_name for table in tables.values() if len(table.outputs) > 1)]
