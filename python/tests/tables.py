"""Calls of the operators that are declared by tables, for sweeps over all of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from tegula import _tegula
from tegula._tables import Dims, evaluate, tables

MOST_OPERATIONS = 1e7  # of a call that tests of Python make
SEED = 7  # of the inputs of examples


@pytest.fixture(autouse=True)
def on_the_interpreter(monkeypatch):
    """What Python adds to a call depends on no executor, and compilers take seconds. Races are looked for by the tests of C++."""
    monkeypatch.setenv("TEGULA_TARGET", "interpreter")
    monkeypatch.setenv("TEGULA_INTERPRETER_ORDERS", "1")


def is_written(formula):
    """Of which elements of a formula's result an operator writes: others are a NaN of their own."""
    if formula.dtype != np.float64:
        return np.ones(formula.shape, bool)
    return formula.view(np.uint64) != 0x7FF8_0000_0000_5EED


def calls():
    """Examples of every table: one for each set of optional tensors, and the first with none and with all of them."""
    for table in tables.values():
        optional, seen = set(optional_names(table)), set()
        for name, text in table.examples:
            given = frozenset(optional & {word.partition(":")[0] for word in text.split()})
            if given not in seen and operations(table, text) <= MOST_OPERATIONS:
                seen.add(given)
                yield table, f"{table.name} {name}", text
        name, text = table.examples[0]
        words = [word for word in text.split() if word.partition(":")[0] not in optional]
        for given in ((), optional_names(table)):
            text = " ".join([*words, *given])
            if frozenset(given) not in seen and is_call(table, text):
                yield table, f"{table.name} {name} with {'all' if given else 'none'}", text


def is_call(table, text):
    try:
        _tegula.check(table.number, *example(table, text).order)
    except ValueError:
        return False
    return True


def operations(table, text):
    call = example(table, text)
    shapes = [None if x is None else np.from_dlpack(x.float64()).shape for x in call.tensors]
    return evaluate(table.flops, Dims(table, shapes, call.options).values) if table.flops is not None else 0


def optional_names(table):
    return [x.name for x in table.inputs if x.optional]


def example(table, text, convert=lambda array: array):
    """The inputs of an example, by the table's order and by name, and its options."""
    arrays, given = _tegula.example(table.number, text, SEED)
    tensors = [convert(arrays[x.name]) if x.name in arrays else None for x in table.inputs]
    options = [given.get(option.name, option.default) for option in table.options]
    keywords = {x.name: tensor for x, tensor in zip(table.inputs, tensors) if tensor is not None}
    return SimpleNamespace(
        arrays=arrays, tensors=tensors, options=options, keywords={**keywords, **given}, order=[*tensors, *options],
        exact=lambda: _tegula.formula(table.number, *(arrays.get(x.name) for x in table.inputs), *options),
    )  # fmt: skip
