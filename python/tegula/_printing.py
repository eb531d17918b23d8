"""The table of an operator as the head of a function and its documentation."""

from __future__ import annotations

import textwrap
from typing import Any, Dict, List, Sequence, Tuple

from ._tables import Option, Table, Tensor

WIDTH = 116
# Operators whose gradients tegula.torch composes, as their tables name no operator for them.
_kinds = {"bool": "bool", "integer": "int", "number": "float", "choice": "str", "dtype": "Any"}
_target = (
    '"automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds errors of '
    "kernels). On a GPU the work is queued on the current stream of the library of the first array."
)


def annotation(option: Option) -> str:
    kind = _kinds[option.kind]
    if option.kind == "choice":
        kind = f"Literal[{', '.join(repr(choice) for choice in option.choices)}]".replace("'", '"')
    return f"{kind} | None" if option.may_be_none and option.kind != "dtype" else kind


def literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def parameters(
    table: Table, array: str, options: Sequence[Option], outputs: bool = True
) -> Tuple[List[str], List[str]]:
    """Parameters with types and defaults: required positional ones, then keywords."""
    given = [f"{x.name}: {array}" for x in table.inputs if not x.optional]
    given += [f"{o.name}: {annotation(o)}" for o in options if o.needed]
    named = [f"{x.name}: {array} | None = None" for x in table.inputs if x.optional]
    named += [f"{o.name}: {annotation(o)} = {literal(o.default)}" for o in options if not o.needed]
    if outputs:
        named += [f"{x.name}: {array} | None = None" for x in table.outputs]
        named.append('target: str = "automatic"')
    return given, named


def head(table: Table, array: str, options: Sequence[Option], outputs: bool = True) -> str:
    """`def name(…) -> …:`, one parameter per line."""
    given, named = parameters(table, array, options, outputs)
    lines = [*given, *(["*"] if named else []), *named]
    result = table.result_name if len(table.outputs) > 1 else ("Any" if array == "Array" else array)
    result = result if table.outputs else "None"
    return f"def {table.name}(\n" + "".join(f"    {line},\n" for line in lines) + f") -> {result}:\n"


def names(words: Sequence[str], last: str = "or") -> str:
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def _shape_of(items: Sequence[Dict[str, Any]]) -> str:
    whole = [item["text"] for item in items]
    if not any(item["optional"] for item in items):
        return f"[{', '.join(whole)}]"
    short = [item["text"] for item in items if not item["optional"]]
    return f"[{', '.join(short)}] or [{', '.join(whole)}]"


def shape_text(tensor: Tensor) -> str:
    """`[k, m] if transpose_a; [m, k]`."""
    return "; ".join(
        _shape_of(each["items"]) + (f" if {each['condition_text']}" if each["condition_text"] else "")
        for each in tensor.lists
    )


def dtype_text(tensor: Tensor) -> str:
    like = f"that of {tensor.like}" if tensor.like else names(tensor.dtypes)
    if tensor.of_8_bits:
        like += f", {tensor.of_8_bits} where that has 8 bits"
    return f"{tensor.dtype_option}, or {like}" if tensor.dtype_option else like


def tensor_text(tensor: Tensor) -> str:
    dtype = dtype_text(tensor)
    sentences = [f"{shape_text(tensor)}, {'dtype ' if dtype.startswith('that') else ''}{dtype}: {tensor.meaning}."]
    if tensor.unit_stride:
        sentences.append("The last dimension is contiguous.")
    if tensor.written:
        sentences.append("Written in place.")
    return " ".join(sentences)


def option_text(option: Option) -> str:
    text = f"{option.meaning}; {option.expected}" if option.has_rule or option.choices else option.meaning
    if option.otherwise:
        return f"{text}, {option.otherwise} unless given."
    return text + (", chosen by the operator unless given." if option.may_be_none else ".")


def _entry(name: str, text: str) -> str:
    return textwrap.fill(f"{name}: {text}", WIDTH - 4, initial_indent="    ", subsequent_indent="        ") + "\n"


def _section(title: str, entries: Sequence[str]) -> str:
    return f"\n{title}:\n{''.join(entries)}" if entries else ""


def documentation(table: Table, options: Sequence[Option], outputs: bool = True) -> str:
    """Arguments, results, errors and source, in the form of all functions."""
    doc = textwrap.fill(f"{table.doc[:1].upper()}{table.doc[1:]}.", WIDTH) + "\n"
    args = [_entry(x.name, tensor_text(x) + (" Optional." if x.optional else "")) for x in table.inputs]
    args += [_entry(o.name, option_text(o)) for o in options]
    if outputs and table.outputs:
        args += [_entry(", ".join(x.name for x in table.outputs), "written instead of new arrays.")]
    if outputs:
        args += [_entry("target", _target)]
    doc += _section("Args", args)
    results = [
        _entry(x.name, tensor_text(x) + (f" None unless {x.when_text}." if x.when_text else "")) for x in table.outputs
    ]
    doc += _section("Returns", results or [_entry("None", f"{names(table.written, 'and')} hold the results.")])
    rules = [_entry(argument, f"expected {expected}; {remedy}.") for argument, expected, remedy, _ in table.rules]
    doc += _section("Rules", rules)
    doc += "\nRaises:\n    TypeError: an argument is no array, or an option has another type.\n"
    doc += "    ValueError: a shape, dtype, stride or value is wrong.\n"
    doc += "    RuntimeError: the device or a compiler failed.\n"
    return doc + (f"\nSource: {table.source}.\n" if table.source else "")


def result_class(table: Table, array: str) -> str:
    """The head of the NamedTuple of results; empty for a single result."""
    if len(table.outputs) <= 1:
        return ""
    lines = [f"class {table.result_name}(NamedTuple):\n"]
    lines += [f"    {x.name}: {array}{' | None' if x.when_text and array != 'Any' else ''}\n" for x in table.outputs]
    return "".join(lines)


def wanted_gradient(tensor: Tensor) -> str:
    """The option of a gradient's operator that requests the gradient of this tensor, if it costs extra."""
    return f"{tensor.name}_gradient"


def torch_options(table: Table, tables: Dict[str, Table]) -> List[Option]:
    """The options of the function with gradients: its own, and the additional ones of the gradient's operator."""
    gradient = tables.get(table.gradient)
    further = gradient.options if gradient else []
    wanted = [wanted_gradient(x) for x in table.inputs]
    further = [o for o in further if table.option(o.name) is None and not o.needed and o.name not in wanted]
    return [*table.options, *further]


def torch_documentation(table: Table, options: Sequence[Option]) -> str:
    """The same with PyTorch's additions."""
    named = names([x.name for x in table.inputs if x.is_floating], "and")
    if table.gradient:
        gradients = f"Gradients of {named} are those of ``tegula.{table.gradient}``."
    elif table.composed:
        gradients = f"Gradients of {named} are composed of calls of other operators."
    else:
        gradients = f"There are no gradients: {table.no_gradient}." if table.no_gradient else ""
    text = documentation(table, options, outputs=False)
    first, _, body = text.partition("\n\n")
    return f"{first}\n\n{textwrap.fill(gradients, WIDTH)}\n\n{body}" if gradients else text
