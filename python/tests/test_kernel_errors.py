"""Kernels written in Python that are wrong: they are refused, and the error names their line."""

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tegula
from tegula.lang import *  # noqa: F403

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))
import lessons


def program(body):
    """Builds a kernel of one block with the tensors X and Y around the body."""

    def built():
        N = Dim("N")
        X, Y = input("X", N, f32), output("Y", N, f32)
        with grid(ceildiv(N, 32)) as b:
            body(X, Y, b)

    return tegula.kernel(built)()


def python_if(X, Y, b):
    if b > 3:  # HERE
        Y[b] = 1


def chain(X, Y, b):
    with when(0 <= b < 3):  # HERE
        Y[b] = 1


def mixed_kinds(X, Y, b):
    Y[b] = (X[b] +
            b)  # fmt: skip


def store_to_input(X, Y, b):
    X[b] = 1  # HERE


def store_that_changes_the_kind(X, Y, b):
    Y[b] = b  # HERE


def left_scope(X, Y, b):
    with serial(3) as i:
        x = X[i] * 2
    Y[b] = x  # HERE


def symbolic_tile(X, Y, b):
    Fragment((b, 4), f32)  # HERE


def fragment_outside_parallel(X, Y, b):
    f = Fragment(32, f32, 0)
    Y[b] = f[0]  # HERE


def otherwise_alone(X, Y, b):
    with when(b > 1):
        Y[b] = 1
    Y[b] = 2
    with otherwise():  # HERE
        Y[b] = 3


def integer_division(X, Y, b):
    Y[b / 2] = 1  # HERE


def tile_in_arithmetic(X, Y, b):
    Fragment(32, f32) * 2  # HERE


def rank(X, Y, b):
    Y[b, b] = 1  # HERE


def branch_without_with(X, Y, b):
    when(X[b] > 0)  # HERE
    Y[b] = X[b]


def loop_without_with(X, Y, b):
    serial(3)  # HERE
    Y[b] = X[b]


def end_from_the_back(X, Y, b):
    copy(X[:-1].at(0), Shared(32, f32))  # HERE


WRONG = {
    branch_without_with: "write `with` in front of it",
    loop_without_with: "write `with` in front of it",
    end_from_the_back: "write extent(dim) - 1",
    python_if: "write `with when(c):`",
    chain: "(0 <= i) & (i < n)",
    mixed_kinds: "cast the integer: f32(i)",
    store_to_input: "X is an input",
    store_that_changes_the_kind: "cast it with f32(x)",
    left_scope: "outside the loop or branch",
    symbolic_tile: "Python numbers",
    fragment_outside_parallel: "use them inside parallel()",
    otherwise_alone: "must follow its when() directly",
    integer_division: "a // b",
    rank: "has rank 1",
}


@pytest.mark.parametrize("body", WRONG)
def test_wrong_programs_are_refused_with_their_line(body):
    with pytest.raises(tegula.ProgramError, match=re.escape(WRONG[body])) as caught:
        program(body)
    code = body.__code__
    lines = Path(__file__).read_text().splitlines()
    line = next((n for n in range(code.co_firstlineno, len(lines)) if "HERE" in lines[n - 1]), 0)
    if body is mixed_kinds:
        line = code.co_firstlineno + 1
    assert str(caught.value).startswith(f"{__file__}:{line}: ")


def loop_of_python(X, Y, b):
    for i in range(b):
        Y[i] = 0


def function_of_math(X, Y, b):
    Y[b] = math.exp(X[b])


def function_of_numpy(X, Y, b):
    Y[b] = np.exp(X[b])


def power(X, Y, b):
    Y[b] = X[b] ** 2


def product_of_elements(X, Y, b):
    Y[b] = X[b] @ X[b]


def loop_by_for(X, Y, b):
    for i in serial(3):
        Y[i] = 0


def index_in_two(X, Y, b):
    with serial(3) as (i, j):
        Y[i] = 0


def indices_in_one(X, Y, b):
    with parallel(3, 4) as i:
        Y[i, 0] = 0


def loop_as_index(X, Y, b):
    Y[serial(3)] = 0


def sum_as_number(X, Y, b):
    Y[b] = reduce_sum(load(X.at(0), 32))


OF_OTHER_TYPES = {
    tile_in_arithmetic: "parallel",
    loop_of_python: "with serial(n) as i:",
    function_of_math: "the functions of tegula.lang",
    function_of_numpy: "does not support ufuncs",
    power: "write x * x, or pow(x, y)",
    product_of_elements: "gemm(a, b, c) multiplies tiles",
    loop_by_for: "open a grid or a loop by `with`",
    index_in_two: "one index has one name",
    indices_in_one: "as (i, j)",
    loop_as_index: "as i:",
    sum_as_number: "tile.scalar()",
}


@pytest.mark.parametrize("body", OF_OTHER_TYPES)
def test_objects_in_the_wrong_place_are_refused_with_a_remedy(body):
    with pytest.raises(TypeError, match=re.escape(OF_OTHER_TYPES[body])):
        program(body)


def test_an_option_of_a_grid_is_named_as_python_spells_it():
    @tegula.kernel
    def odd_threads():
        Y = output("Y", 4, f32)
        with grid(4, threads=100) as b:
            Y[b] = 0

    with pytest.raises(tegula.ProgramError, match="grid option threads: a multiple of 32"):
        odd_threads()


def test_a_kernel_returns_nothing():
    @tegula.kernel
    def first():
        X = input("X", 4, f32)
        with grid(1):
            x = X[0]
        return x

    with pytest.raises(tegula.ProgramError, match="returns nothing, but this one returns .*; declare an output"):
        first()


def test_remedies_are_in_the_words_of_python():
    @tegula.kernel
    def product():
        A, C = input("A", (64, 64), f32), output("C", (64, 64), f32)
        with grid(1):
            a, c = Shared((64, 64), f32), Fragment((64, 64), f32, 0)
            copy(A.at(0), a)
            gemm(a, a.T, c)
            copy(c, C.at(0))

    assert any('request precision="tf32x3"' in note for note in product().notes())
    with pytest.raises(tegula.ProgramError, match=re.escape(", and .T transposes")):
        program(lambda X, Y, b: gemm(Shared((8, 4), f32), Shared((8, 4), f32), Fragment((8, 8), f32)))


def test_numbers_of_numpy_are_numbers():
    @tegula.kernel
    def scaled():
        X, Y = input("X", 4, f32), output("Y", 4, f32)
        with grid(4) as i:
            Y[i] = np.float32(2) * X[i] + np.int64(1)

    np.testing.assert_array_equal(scaled()(np.ones(4, np.float32), target="interpreter"), np.full(4, 3, np.float32))


def test_other_objects_are_no_values():
    with pytest.raises(tegula.ProgramError, match="no kernel is being built"):
        Fragment(32, f32)
    # An error ends the kernel: the next one is built from the beginning.
    assert lessons.histogram(5).name == "histogram"
    # Python's own functions are there where no value is among the arguments.
    assert max(1, 2, 3) == 3 and min([4, 5]) == 4 and abs(-1) == 1 and round(2.567, 1) == 2.6 and ceildiv(7, 2) == 4


@tegula.kernel
def asserts():
    N = Dim("N")
    X, Y = input("X", N, f32), output("Y", N, f32)
    with grid(N) as b:
        assert_that(X[b] > 0, "positive")
        Y[b] = X[b]


def test_errors_of_running_programs_name_the_line():
    with pytest.raises(tegula.ProgramError, match=r"test_kernel_errors\.py:\d+: .*positive"):
        asserts()(np.zeros(3, np.float32), target="interpreter")
