"""The operators of tables as functions and custom operators of PyTorch."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from .. import _tegula
from .._arrays import dtype_name
from .._functions import accepting_others, make_function, refusal_of_others, result_type
from .._printing import head, torch_documentation, torch_options, wanted_gradient
from .._tables import Dims, Option, Table, evaluate, names_of, python_dtype, tables
from ._common import any_autocast, as_numbers, autocast, eight_bits
from ._composed import composed
from ._folding import make_folding_vmap
from ._operator import Operator

_types = {"bool": "bool", "integer": "SymInt", "number": "float", "choice": "str", "dtype": "str"}


def schema_of(table: Table, options: List[Option]) -> str:
    """Arguments and results in the notation of torch.library."""
    places = {name: f"({chr(ord('a') + i)}!)" for i, name in enumerate(table.written)}
    arguments = [f"Tensor{places.get(x.name, '')}{'?' if x.optional else ''} {x.name}" for x in table.inputs]
    arguments += [f"{_types[o.kind]}{'?' if o.may_be_none else ''} {o.name}" for o in options]
    results = ", ".join(["Tensor"] * len(table.outputs))
    return f"({', '.join(arguments)}) -> {results if len(table.outputs) == 1 else f'({results})'}"


def _dtype(table: Table, output: Any, given: Dict[str, Any]) -> torch.dtype:
    """The dtype of an output: given by an option, that of another tensor, or the only possible one."""
    if output.dtype_option and given.get(output.dtype_option) is not None:
        return getattr(torch, python_dtype(given[output.dtype_option]))
    like = given.get(output.like)
    if like is None:
        return getattr(torch, output.dtypes[0])
    return getattr(torch, output.of_8_bits) if output.of_8_bits and like.itemsize == 1 else like


def make_fake(table: Table) -> Callable[..., Any]:
    """Results of the right shapes and dtypes, from extents that may be symbolic."""
    count = len(table.inputs)

    def fake(*arguments: Any) -> Any:
        tensors, options = arguments[:count], arguments[count : count + len(table.options)]
        dims = Dims(table, tuple(None if x is None else x.shape for x in tensors), options)
        if not dims.solved:
            return None  # the library's to refuse
        given = {x.name: tensor.dtype for x, tensor in zip(table.inputs, tensors) if tensor is not None}
        given.update((o.name, value) for o, value in zip(table.options, options))
        results = []
        for output in table.outputs:
            dtype = given[output.name] = _dtype(table, output, given)
            results.append(tensors[0].new_empty(dims.shape(output) if dims.has(output) else 0, dtype=dtype))
        return (results[0] if len(results) == 1 else tuple(results)) if results else None

    return fake


def make_run(table: Table) -> Tuple[Callable[..., Any], Optional[Callable[..., Any]]]:
    """The call of the library: with a tensor for every result, as custom operators need it, and with None for missing
    ones."""
    at_once = partial(_tegula.call, table.number)
    if all(output.when is None for output in table.outputs):
        return at_once, None

    def whole(*arguments: Any) -> Any:
        results = at_once(*arguments)
        given = {x.name: tensor.dtype for x, tensor in zip(table.inputs, arguments) if tensor is not None}
        return tuple(
            arguments[0].new_empty(0, dtype=_dtype(table, output, given)) if result is None else result
            for output, result in zip(table.outputs, results)
        )

    return whole, at_once


def _named_backward(table: Table, gradient: Table, operator: Operator) -> Callable[..., Any]:
    """Gradients by the operator that the table names; tensors and options are matched by name."""
    names = [option.name for option in torch_options(table, tables)]
    unwanted = dict.fromkeys((wanted_gradient(x) for x in table.inputs), False)

    def backward(ctx: Any, tensors: Any, results: Any, *gradients: Any) -> Any:
        given = {x.name: tensor for x, tensor in zip(table.inputs, tensors)}
        given.update((x.name, tensor) for x, tensor in zip(table.outputs, results))
        given.update((f"d{x.name}", tensor) for x, tensor in zip(table.outputs, gradients))
        _complete_gradients(table, gradient, given)
        options = {**unwanted, **dict(zip(names, ctx.options))}
        options.update((wanted_gradient(x), needs) for x, needs in zip(table.inputs, ctx.needs_input_grad))
        made = operator(tuple(given[x.name] for x in gradient.inputs), *(options[o.name] for o in gradient.options))
        by_name = dict(zip((x.name for x in gradient.outputs), made if isinstance(made, tuple) else (made,)))
        return tuple(_as_given(by_name.get(f"d{x.name}"), tensor) for x, tensor in zip(table.inputs, tensors))

    return backward


def _lacks(result: Optional[Tensor]) -> bool:
    """Whether a call has no such result, which custom operators show as an empty vector."""
    return result is None or result.shape == (0,)


def _complete_gradients(table: Table, gradient: Table, given: Dict[str, Any]) -> None:
    """Among results that a call has or lacks together, the first gets a gradient if any of them has one, as does every
    other whose gradient is required; if none has one, they are ignored."""
    together: Dict[str, List[str]] = {}
    for x in table.outputs:
        together.setdefault(x.when_text, []).append(x.name)
    for condition, names in together.items():
        first = f"d{names[0]}"
        if condition and all(_lacks(given[f"d{name}"]) for name in names):
            given.update((name, None) for name in names if _lacks(given[name]))
            given.update(dict.fromkeys(f"d{name}" for name in names))
            continue
        for name in names:
            of_result = gradient.input(f"d{name}")
            is_needed = of_result is not None and (f"d{name}" == first or not of_result.optional)
            if is_needed and given[f"d{name}"] is None:
                given[f"d{name}"] = torch.zeros_like(given[name])
    for x in table.outputs:
        of_gradient = gradient.input(x.name)
        if of_gradient is not None and not of_gradient.optional and given[x.name] is None:
            raise RuntimeError(
                f"tegula.torch.{table.name}: its gradient needs the result {x.name}, which a call has if {x.when_text}; "
                "pass that option to the call"
            )


def _as_given(gradient: Optional[Tensor], tensor: Optional[Tensor]) -> Optional[Tensor]:
    if gradient is None or tensor is None:
        return None
    return gradient if gradient.dtype == tensor.dtype else gradient.to(tensor.dtype)


def _call_by_name(table: Table, tensors: Dict[str, Any], options: Dict[str, Any]) -> Any:
    """Calls the operator with tensors and options by name, for composed gradients."""
    values = (options.get(o.name, o.default) for o in torch_options(table, tables))
    return operator_of(table)(tuple(tensors.get(x.name) for x in table.inputs), *values)


def _composed_backward(table: Table) -> Callable[..., Any]:
    call = partial(_call_by_name, table)

    def backward(ctx: Any, tensors: Any, results: Any, *gradients: Any) -> Any:
        needed = {x.name for x, needs in zip(table.inputs, ctx.needs_input_grad) if needs}
        made = composed[table.name](
            call,
            {x.name: tensor for x, tensor in zip(table.inputs, tensors)},
            {o.name: value for o, value in zip(table.options, ctx.options)},
            {f"d{x.name}": gradient for x, gradient in zip(table.outputs, gradients)},
            needed,
        )
        return tuple(made.get(x.name) for x in table.inputs)

    return backward


def _backward(table: Table) -> Optional[Callable[..., Any]]:
    if table.name in composed:
        return _composed_backward(table)
    gradient = tables.get(table.gradient)
    return _named_backward(table, gradient, operator_of(gradient)) if gradient else None


def _keeps_results(table: Table) -> bool:
    """Whether gradients use results, or zeros in the shape of one."""
    gradient = tables.get(table.gradient)
    return gradient is not None and (
        len(table.outputs) > 1 or any(gradient.input(output.name) for output in table.outputs)
    )


def operator_of(table: Table) -> Operator:
    if table.name not in _operators:
        options = torch_options(table, tables)
        run, at_once = make_run(table)
        _operators[table.name] = Operator(
            table.name,
            schema_of(table, options),
            run,
            make_fake(table),
            _backward(table),
            at_once=at_once,
            keep_results=_keeps_results(table),
            of_backward=len(options) - len(table.options),
            vmap=partial(make_folding_vmap, table=table),
            no_gradient=table.no_gradient,
            written=table.written,
        )
        _register_flops(table)
    return _operators[table.name]


_operators: Dict[str, Operator] = {}


def _register_flops(table: Table) -> None:
    """Registers the table's count of operations with torch.utils.flop_counter."""
    if table.flops is None or not hasattr(torch.library, "custom_op"):
        return
    counter = importlib.import_module("torch.utils.flop_counter")
    if not hasattr(counter, "register_flop_formula"):
        return
    count = len(table.inputs)

    def flops(*arguments: Any, out_shape: Any = None, **kwargs: Any) -> int:
        return evaluate(table.flops, Dims(table, arguments[:count], arguments[count:]).values)

    counter.register_flop_formula(getattr(torch.ops.tegula, table.name))(flops)


def _make_present(table: Table) -> Callable[..., Any]:
    """The results as the operator's NamedTuple, without the empty tensors that represent missing ones."""
    result, conditions = result_type(table), [output.when for output in table.outputs]
    distinct = [when for when in dict.fromkeys(conditions) if when is not None]
    named = {name for when in distinct for name in names_of(when)}
    options = [(i, o) for i, o in enumerate(table.options) if o.name in named]
    inputs = [(i, x.name) for i, x in enumerate(table.inputs) if x.name in named]
    if not named:
        return lambda tensors, values, results: result(*results)
    conditional = [(i, distinct.index(when)) for i, when in enumerate(conditions) if when is not None]

    def present(tensors: Tuple[Any, ...], values: Tuple[Any, ...], results: Tuple[Any, ...]) -> Any:
        # Where nothing traces, the library has left out what the call lacks: to ask again would take microseconds.
        for i, _ in conditional:
            if results[i] is None:
                return result(*results)
        known = {o.name: o.number(values[i]) for i, o in options}
        known.update((name, int(tensors[i] is not None)) for i, name in inputs)
        holds = [evaluate(when, known) for when in distinct]
        all_results = list(results)
        for i, condition in conditional:
            if not holds[condition]:
                all_results[i] = None
        return result(*all_results)

    return present


def _refuse_gradients_of_8_bits(name: str, *tensors: Any) -> None:
    for x in tensors:
        if isinstance(x, Tensor) and x.dtype in eight_bits and x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                f"tegula.torch.{name}: tensors of {x.dtype} have no gradients, nor have they in PyTorch itself; "
                "pass tensor.detach(), or convert them to bfloat16"
            )


def _function(table: Table) -> Callable[..., Any]:
    options = torch_options(table, tables)
    source = accepting_others(head(table, "Tensor", options, outputs=False))
    # What is written in place stays as it is, and so does what belongs to it.
    cast = [x.name for x in table.inputs if not x.optional and {"float16", "bfloat16"} <= set(x.dtypes)]
    cast += [x.name for x in table.inputs if x.optional and x.like in cast]
    cast = [] if table.written else cast
    if any("float8" in dtype for x in table.inputs for dtype in x.dtypes):
        source += f"    _refuse_8_bits({', '.join(x.name for x in table.inputs)})\n"
    if cast:
        source += f"    if _any_autocast():\n        {', '.join(cast)}, = _autocast({', '.join(cast)})\n"
    # Integers have no gradient: what they are chosen by may require one.
    detaches = bool(table.outputs) and not any(x.is_floating for x in table.outputs)
    inputs = [
        f"_detach({x.name})" if detaches and x.is_floating else f"_as_numbers({x.name})" if x.converts else x.name
        for x in table.inputs
    ]
    values = [f"_dtype_name({o.name})" if o.kind == "dtype" else o.name for o in options]
    if len(table.outputs) <= 1:
        source += f"    return _call(({', '.join(inputs)},), {', '.join(values)})\n"
    else:
        source += f"    _tensors, _options = ({', '.join(inputs)},), ({''.join(f'{value}, ' for value in values)})\n"
        source += "    return _present(_tensors, _options, _call(_tensors, *_options))\n"
    namespace = {
        "_any_autocast": any_autocast,
        "_as_numbers": as_numbers,
        "_autocast": autocast,
        "_call": operator_of(table),
        "_detach": lambda x: x.detach() if isinstance(x, Tensor) else x,
        "_dtype_name": dtype_name,
        "_refuse_8_bits": partial(_refuse_gradients_of_8_bits, table.name),
        "_present": _make_present(table) if len(table.outputs) > 1 else None,
        "_refuse_others": refusal_of_others(f"tegula.torch.{table.name}", [x.name for x in (*table.inputs, *options)]),
    }
    return make_function(source, table.name, "tegula.torch", torch_documentation(table, options), namespace)


_gradients = {table.gradient for table in tables.values()}
functions: Dict[str, Callable[..., Any]] = {
    table.name: _function(table) for table in tables.values() if table.name not in _gradients
}
globals().update(functions)
__all__ = list(functions)
