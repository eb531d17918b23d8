"""The functions that follow from tables: every operator with every example, against the table's formula."""

import functools
import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tegula
from tables import SEED, calls, example, is_written, on_the_interpreter, optional_names  # noqa: F401
from tegula import _tegula
from tegula._tables import Dims, names_of, tables

ROOT = Path(__file__).parents[2]
CALLS = {name: (table, text) for table, name, text in calls()}
every_call = pytest.mark.parametrize("name", CALLS)
every_table = pytest.mark.parametrize("table", tables.values(), ids=tables)


def exact(array):
    return np.from_dlpack(array.float64())


def by_name(table, result):
    return {x.name: value for x, value in zip(table.outputs, result if isinstance(result, tuple) else (result,))}


def results_of(table, call):
    """Also what the operator writes in place."""
    results = by_name(table, getattr(tegula, table.name)(**call.keywords))
    return {**results, **{name: call.keywords[name] for name in table.written if name in call.keywords}}


@functools.cache
def called(name):
    """The call of an example with its results, which the tests of an example share: the interpreter is slow."""
    table, text = CALLS[name]
    call = example(table, text)
    return call, results_of(table, call)


@every_call
def test_examples_follow_the_formula(name):
    table, text = CALLS[name]
    results = {key: x for key, x in called(name)[1].items() if x is not None}
    assert _tegula.faults(table.number, text, SEED, results) == ""


@every_call
def test_outputs_are_written(name):
    table, text = CALLS[name]
    call, results = called(name)
    given = {x.name: results[x.name] for x in table.outputs if results[x.name] is not None}
    values = {key: exact(array).copy() for key, array in given.items()}
    again = by_name(table, getattr(tegula, table.name)(**example(table, text).keywords, **given))
    formula = call.exact()
    for key, array in given.items():
        assert again[key] is array
        written = is_written(np.from_dlpack(formula[key]))
        np.testing.assert_array_equal(exact(array)[written], values[key][written])


@every_call
def test_dims_of_results_are_those_of_the_library(name):
    """The arithmetic of dims in Python, of which fake tensors are made, against the library's."""
    table, _ = CALLS[name]
    call, results = called(name)
    shapes = [None if x is None else np.from_dlpack(x.float64()).shape for x in call.tensors]
    dims = Dims(table, shapes, call.options)
    for output in table.outputs:
        assert dims.has(output) == (results[output.name] is not None)
        if dims.has(output):
            assert dims.shape(output) == exact(results[output.name]).shape
    derived, needed = dict(table.derived), set()
    bound = [x for x, tensor in zip(table.inputs, call.tensors) if tensor is not None]
    bound += [x for x in table.outputs if dims.has(x)]
    waiting = [item["extent"] for x in bound for item in x.dims(dims.values)]
    waiting += [x.when for x in table.outputs if x.when is not None]
    while waiting:
        new = names_of(waiting.pop()) - needed
        needed |= new
        waiting += [derived[key] for key in new if key in derived]
    # Comparisons that only rules need would tie graphs of symbolic extents to their outcome.
    assert set(derived) & set(dims.values) <= needed


@every_table
def test_signature_and_documentation(table):
    function = getattr(tegula, table.name)
    parameters = inspect.signature(function).parameters
    names = [x.name for x in (*table.inputs, *table.options, *table.outputs)] + ["target"]
    assert set(parameters) == {*names, "others"}
    for x in (*table.inputs, *table.options):
        needed = not x.optional if x in table.inputs else x.needed
        assert (parameters[x.name].default is inspect.Parameter.empty) == needed
        assert f"{x.name}: " in function.__doc__
        assert needed or parameters[x.name].kind is inspect.Parameter.KEYWORD_ONLY
    assert all(section in function.__doc__ for section in ("Args:", "Returns:", "Raises:"))
    assert function.__module__ == "tegula" and table.name in tegula.__all__


def raised(function):
    with pytest.raises((TypeError, ValueError)) as error:
        function()
    return str(error.value)


def refusals(table):
    """Wrong calls of every kind, and what the text must name."""
    call = example(table, table.examples[0][1])
    function, good = getattr(tegula, table.name), call.keywords
    first = table.inputs[0]
    numbers = exact(good[first.name])

    def refused(name, value):
        return raised(lambda: function(**{**good, name: value}))

    yield first.name, refused(first.name, None)
    yield first.name, refused(first.name, "no array")
    yield first.name, refused(first.name, numbers.astype(np.complex64))
    yield table.name, raised(lambda: function(**good, not_an_argument=1))
    yield "target", refused("target", "abacus")
    for x in table.inputs:
        if not x.lists[0]["items"][0]["leading"]:
            yield x.name, refused(x.name, np.zeros((2,) * 9, np.float32))
        if "uint32" not in x.dtypes:
            yield x.name, refused(x.name, np.zeros(3, np.uint32))
    for option in table.options:
        yield option.name, refused(option.name, object())
        if option.kind == "number":
            yield option.name, refused(option.name, float("nan"))
        if option.kind in ("choice", "dtype"):
            yield option.name, refused(option.name, "never")
    for output in table.outputs:
        if output.when is None:
            yield output.name, refused(output.name, np.zeros((2,) * 9, np.float32))
            locked = np.zeros((2,) * 9, np.float32)
            locked.flags.writeable = False
            yield output.name, refused(output.name, locked)


@every_table
def test_refusals_name_the_operator_and_the_argument(table):
    for argument, text in refusals(table):
        assert table.name in text and argument in text, text


@every_table
def test_wrong_extents_name_the_tensor_and_the_dim(table):
    call = example(table, " ".join([table.examples[0][1], *optional_names(table)]))
    for x, array in zip(table.inputs[1:], call.tensors[1:]):
        numbers = exact(array)
        wrong = np.zeros([extent + 1 for extent in numbers.shape], np.float32)
        text = raised(lambda: getattr(tegula, table.name)(**{**call.keywords, x.name: wrong}))
        assert text.startswith(f"{table.name}, argument '"), text


def test_texts_are_those_of_the_library():
    x = np.ones((4, 6), np.float32)
    with pytest.raises(ValueError) as error:
        tegula.rms_norm(x, weight=np.ones(5, np.float32))
    assert str(error.value) == (
        "rms_norm, argument 'weight': expected [d] with d = 6, as x, given f32 [5] strides [1]; give it that shape"
    )
    with pytest.raises(TypeError, match="did you mean 'weight'"):
        tegula.rms_norm(x, weights=x)


def test_dtypes_have_all_their_names():
    x = np.ones((4, 4), np.float32)
    for dtype in ("float16", np.float16, np.dtype(np.float16), "f16"):
        assert tegula.gemm(x, x, out_dtype=dtype).dtype == np.float16


def test_several_results_have_names():
    x = np.ones((4, 6), np.float32)
    result = tegula.rms_norm_backward(x, x)
    assert result.dx is result[0] and result.dweight is None and type(result).__name__ == "RmsNormBackwardResult"
    assert tegula.rms_norm_backward(x, x, weight=x[0]).dweight.shape == (6,)


@every_table
def test_explain_takes_the_same_calls(table):
    call = example(table, table.examples[0][1])
    assert "(interpreter)" in tegula.explain(table.name, **call.keywords)


def test_stubs_are_what_the_tables_say():
    path = os.pathsep.join(sys.path)
    command = [sys.executable, str(ROOT / "scripts" / "print-stubs"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stdout + done.stderr


def test_numbers_of_tables_are_checked():
    with pytest.raises(IndexError):
        _tegula.call(len(tables))
