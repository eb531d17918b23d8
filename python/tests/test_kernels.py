"""Kernels written in Python: their results, their calls, and what is shown of them."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tegula
from tegula.lang import *  # noqa: F403

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))
import lessons
import programs

TARGETS = ["interpreter", "cpu"]


def whole_numbers(shape, dtype=np.float32, seed=0, low=-4, high=5):
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def bfloat16(array):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return array.astype(ml_dtypes.bfloat16)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def packed_attention(q, k, v, begin):
    out = np.zeros_like(q)
    for low, high in zip(begin, begin[1:]):
        scores = q[low:high] @ k[low:high].T / 4
        scores[np.triu_indices(high - low, 1)] = -np.inf
        if high > low:
            out[low:high] = softmax(scores) @ v[low:high]
    return out


def collatz(x):
    steps = 0
    while x > 1:
        x, steps = (x // 2 if x % 2 == 0 else 3 * x + 1), steps + 1
    return steps


def vector_add_case():
    x, y = whole_numbers(1000, seed=1), whole_numbers(1000, seed=2)
    return lessons.vector_add(), (x, y), {}, x + y


def gemm_case():
    a, b = whole_numbers((50, 33), seed=1), whole_numbers((70, 33), seed=2)
    return lessons.gemm_relu(32, 32, 16), (bfloat16(a), bfloat16(b)), {}, np.maximum(a @ b.T, 0)


def softmax_case():
    x = np.random.default_rng(1).standard_normal((9, 77)).astype(np.float32)
    return lessons.softmax_rows(4, 32), (x,), {}, softmax(x)


def histogram_case():
    x = whole_numbers(2000, np.int32, low=0, high=16)
    return lessons.histogram(16), (x,), {}, np.cumsum(np.bincount(x, minlength=16))


def attention_case():
    q, k, v = np.random.default_rng(1).standard_normal((3, 60, 16)).astype(np.float32)
    begin = np.array([0, 5, 5, 42, 60], np.int32)
    return lessons.packed_attention(16, 16, 8), (q, k, v, begin), {"longest": 37}, packed_attention(q, k, v, begin)


def dequantised_case():
    a, q = whole_numbers((20, 40), np.float16, 1), whole_numbers((70, 40), np.uint8, 2, 0, 16)
    rows, scales = whole_numbers(30, np.int32, 3, 0, 20), whole_numbers(70, np.float32, 4)
    return programs.dequantised_rows(64, 64, 32), (a, rows, q, scales), {}, a[rows] @ (q - 8.0).T * scales


def collatz_case():
    x, longest = whole_numbers(150, np.int32, low=1, high=100), np.zeros(1, np.int32)
    return programs.collatz(1000), (x, longest), {}, np.array([collatz(int(each)) for each in x])


@tegula.kernel
def sparse_product(rows, n, k):
    M, N, K = Dim("M"), Dim("N"), Dim("K")
    V, W, B = input("V", (M, K // 2), f16), input("W", (M, K // 8), u8), input("B", (N, K), f16)
    C = output("C", (M, N), f32)
    with grid(ceildiv(N, n), ceildiv(M, rows)) as (x, y):
        sum = Fragment((rows, n), f32, 0)
        with pipelined(ceildiv(K, k)) as step:
            values, places, b = Shared((rows, k // 2), f16), Shared((rows, k // 8), u8), Shared((n, k), f16)
            copy(V.at(y * rows, step * (k // 2)), values)
            copy(W.at(y * rows, step * (k // 8)), places)
            copy(B.at(x * n, step * k), b)
            gemm_sparse(values, places, b.T, sum)
        copy(sum, C.at(y * rows, x * n))


def sparse_case():
    dense, b = whole_numbers((70, 128), np.float16, 1), whole_numbers((50, 128), np.float16, 2)
    values, metadata = tegula.compress_24(dense)
    kept = np.zeros_like(dense)
    first, second = metadata[..., None] >> np.array([0, 4]) & 3, metadata[..., None] >> np.array([2, 6]) & 3
    for place, offset in ((first, 0), (second, 1)):
        columns = np.arange(0, 128, 4) + place.reshape(70, 32)
        np.put_along_axis(kept, columns, values[:, offset::2], 1)
    return sparse_product(64, 64, 64), (values, metadata, b), {}, kept @ b.T


CASES = [vector_add_case, gemm_case, softmax_case, histogram_case, attention_case, dequantised_case, sparse_case,
         collatz_case]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_results(case, target):
    kernel, args, named, expected = case()
    np.testing.assert_allclose(kernel(*args, **named, target=target), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_parameters_of_every_kind(target):
    x, ends, total = whole_numbers((3, 100), np.float16), np.array([0, 2, 3, 7], np.int32), np.ones(1, np.float32)
    rows = programs.sums()(X=x, ends=ends, total=total, scale=0.5, target=target)
    np.testing.assert_array_equal(rows, x.sum(-1) * 0.5)
    assert total[0] == 1 + (rows * np.diff(ends)).sum()
    with pytest.raises(ValueError, match="the scale must be positive"):
        programs.sums()(x, ends, total, -1.0)
    with pytest.raises(ValueError, match="multiple"):
        programs.sums()(x[:, :99], ends, total, 1.0)


# Reads are where they are written, whatever is stored before their value is used.
@tegula.kernel
def reads():
    N = Dim("N")
    X, Y, Z = inout("X", N, f32), output("Y", N, f32), inout("Z", 1, i32)
    with grid(N) as b:
        old = X[b]
        count = Var(2)
        seen = count + 0
        count *= 5
        X[b] = 10
        new = X[b]
        new += 1  # a value of its own: nothing is stored
        Y[b] = old * 100 + new + f32(count - seen)
        X[b] -= 3
        atomic_add(Z[0], 1)


@pytest.mark.parametrize("target", TARGETS)
def test_reads_are_where_they_are_written(target):
    x, z = np.array([1, 2], np.float32), np.zeros(1, np.int32)
    np.testing.assert_array_equal(reads()(x, z, target=target), [119, 219])
    np.testing.assert_array_equal(x, [7, 7])
    assert z[0] == 2


@tegula.kernel(name="table_{rows}")
def table(rows, dtype=i32):
    N = Dim("N")
    Y = output("Y", (N, rows), dtype)
    with grid(N) as b:
        for i in range(rows):  # written out by Python
            Y[b, i] = b * rows + i


def test_calls():
    """Dims that no array tells, outputs that are given, and one kernel for each set of parameters."""
    expected = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(table(3)(N=2), expected)
    out = np.empty((2, 3), np.int32)
    assert table(3)(out=out) is out and table(3)(Y=out) is out and table(3)(out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(table(3)(Y=None, N=2), expected)
    assert table(3) is table(rows=3) and table(3) is not table(4) and table(4).name == "table_4"
    assert [p.role for p in programs.sums().parameters] == ["input", "input", "output", "inout", "scalar"]


WRONG_CALLS = {
    "missing a required argument: 'rows'": lambda x: table(),
    "takes 2 arguments": lambda x: lessons.vector_add()(x, x, x, x),
    "is called without Y": lambda x: lessons.vector_add()(x),
    "no parameter 'W'; it has X, Y, Z": lambda x: lessons.vector_add()(x, x, W=x),
    "two values for 'X'": lambda x: lessons.vector_add()(x, x, X=x),
    "no array determines N": lambda x: table(3)(),
    "out has 2 arrays": lambda x: lessons.vector_add()(x, x, out=(x, x)),
    "argument 'Y': expected an array": lambda x: lessons.vector_add()(x, 3),
    "must have dtype float32": lambda x: lessons.vector_add()(x, x.astype(np.float64)),
    "N": lambda x: lessons.vector_add()(x, x[:3]),
    "argument 'longest': expected a number": lambda x: lessons.packed_attention(16, 16, 8)(
        *[x.reshape(1, 8)] * 3, x, longest="many", O=x
    ),
}


@tegula.kernel
def gaps():
    N, M = Dim("N"), Dim("M")
    X, Y, Z = input("X", N, f32), output("Y", N - 1, f32), output("Z", M, f32)
    with grid(N - 1) as b:
        Y[b] = X[b + 1] - X[b]
    with grid(M) as b:
        Z[b] = 0


WRONG_CALLS.update({
    "dim 'M': expected an integer, given float": lambda x: gaps()(x, M=5.0),
    "dim 'M': expected a number from 0 to 2147483647, given -1": lambda x: gaps()(x, M=-1),
    "2147483647, given 1099511627776": lambda x: gaps()(x, M=2**40),
    "dim 'N': the arrays determine 8, but 9 is given": lambda x: gaps()(x, M=3, N=9),
    "the output Y would have the shape [-1]": lambda x: gaps()(x[:0], M=3),
    "the output Y would have the shape [2147483648]": lambda x: gaps()(np.broadcast_to(x[0], 2**31 + 1), M=3),
})  # fmt: skip


def test_dims_given_by_name_are_those_of_the_arrays():
    first, second = gaps()(np.arange(8, dtype=np.float32), M=np.int64(3), N=8)
    assert first.tolist() == [1] * 7 and second.tolist() == [0] * 3


def test_notes_in_the_view_of_resources_are_spelled_as_python():
    @tegula.kernel
    def one_group():
        X, Y, Z = input("X", (640, 128), bf16), output("Y", (128, 192), f32), output("Z", (128, 32), f32)
        scale = scalar("scale", f32)
        with grid(1, threads=128):
            sums, ramp = Fragment((128, 192), f32, 0), Fragment((128, 32), f32)
            with parallel(ramp) as (i, j):
                ramp[i, j] = scale * f32(i + j)
            with pipelined(10) as step:
                a, b = Shared((64, 128), bf16), Shared((64, 192), bf16)
                copy(X.at(step * 64), a)
                copy(X.at(step * 64), b)
                gemm(a.T, b, sums)
            copy(sums, Y.at(0))
            copy(ramp, Z.at(0))

    for text in (one_group().show(resources=True), *one_group().notes()):
        assert "use threads=256" in text and " .threads" not in text, text


@pytest.mark.parametrize("message", WRONG_CALLS)
def test_wrong_calls_are_refused(message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        WRONG_CALLS[message](np.zeros(8, np.float32))


def test_shown(tmp_path):
    kernel = lessons.gemm_relu(128, 128, 64)
    assert str(kernel).startswith("kernel gemm_relu {") and "// lessons.py:" in str(kernel)
    assert kernel.show().strip() == str(kernel).strip()
    assert "wgmma" in kernel.show(cuda=True, layout=True) and "TegulaCall" in kernel.show(cpp=True)
    assert kernel.show(html=str(tmp_path / "page.html")) and "gemm_relu" in (tmp_path / "page.html").read_text()
    kernel.show(html=str(tmp_path / "call.html"), extents={"M": 4096, "N": 4096, "K": 4096}, machine="h200")
    assert "on H200 SXM, 141 GB: " in (tmp_path / "call.html").read_text()
    assert "gemm_relu_0.schedule.svg" in kernel.show(svg=str(tmp_path), schedule=True)
    assert "h100" not in kernel.analyze(M=4096, N=4096, K=4096) and "bound" in kernel.analyze(M=64, N=64, K=64)
    assert kernel.explain().startswith("gemm_relu") and isinstance(kernel.notes(), list)
    with pytest.raises(TypeError, match="no view 'ptx'"):
        kernel.show(ptx=True)
    with pytest.raises(ValueError, match="ask for one of layout, schedule, shared_memory"):
        kernel.show(svg=str(tmp_path))


def test_tiles_have_names():
    @tegula.kernel
    def named():
        X, Y = input("X", 64, f32), output("Y", 64, f32)
        with grid(1):
            tile, other = Shared(64, f32, name="rows"), Fragment(64, f32, name="rows")
            copy(X, tile)
            copy(tile, other)
            copy(other, Y)

    assert "rows" in str(named()) and "rows1" in str(named()) and "rows_" in named().show(cuda=True)
    with pytest.raises(tegula.ProgramError, match="must be an identifier"):

        @tegula.kernel
        def wrong():
            with grid(1):
                Shared(64, f32, name="my rows")

        wrong()


# What C++ declares and Python says otherwise, with the reason.
OTHERWISE = {
    "kernel": "the decorator tegula.kernel",
    "range": "a slice, or the two arguments of serial()",
    "floordiv": "//",
    "floormod": "%",
    "map": "Python's own; a Fragment is filled in parallel()",
    "all": "a colon in a slice",
    "Group": "a string", "Warps": "a string", "Accumulate": "a string", "Precision": "a string",
    "Index": "an Expr", "Subscript": "an argument of a slice",
    "All": "a colon in a slice", "Range": "a slice", "When": "with otherwise()", "Kernel": "tegula.Kernel",
    "Trace": "errors name the caller's line by themselves",
    "Source": "what copy() reads", "Target": "what copy() writes",
    "PackedSource": "what copy() reads", "PackedTarget": "what copy() writes",
    "PackedView": "a PackedTensor or PackedShared",
}  # fmt: skip


def test_has_what_cpp_has():
    folder = Path(__file__).parents[2] / "include" / "tegula" / "lang"
    names = set()
    for header in folder.glob("*.hpp"):
        text = re.sub(r"namespace detail \{.*?\n\}  // namespace detail", "", header.read_text(), flags=re.S)
        names |= set(re.findall(r"^(?:\[\[nodiscard\]\] |inline |constexpr )*[\w:]+(?: ?[&*])? (\w+)\(", text, re.M))
        names |= set(re.findall(r"^(?:struct|class|enum class) (\w+)(?: : public \w+)? \{", text, re.M))
        names |= set(re.findall(r"^inline constexpr \w+ (\w+)", text, re.M))
    assert {"reduce_sum", "scan_max", "philox", "grid", "Fragment", "inf", "print"} <= names
    names = {name for name in names if not name.endswith("Options")}
    missing = sorted(name for name in names - set(OTHERWISE) if not hasattr(tegula.lang, name))
    assert not missing
    stale = sorted(name for name in OTHERWISE if name not in names)
    assert not stale


def test_scans_places_and_random_numbers(capfd):
    x = whole_numbers((6, 64), seed=3)
    results = [programs.drawn(4, 64)(x, target=target) for target in TARGETS]
    np.testing.assert_array_equal(results[0][1], 100 * x.argmax(-1) + x.argmin(-1))
    np.testing.assert_array_equal(results[1][1], results[0][1])
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-5, atol=1e-5)
    assert f"i0 = 3] places = {results[0][1][3]}" in capfd.readouterr().out
    with pytest.raises(ValueError, match="counter of 4 words"):
        philox((1, 2), (3, 4))


@tegula.kernel
def unpack(type):
    N = Dim("N")
    counts = input("counts", (N,), i32)
    W, out, packed = input("W", (N, 64), type), output("out", (N, 64), f32), output("packed", (N, 64), type)
    with grid(ceildiv(N, 16)) as block:
        tile = PackedShared((16, 64), type, name="weights")
        copy(W.at(block * 16), tile)
        numbers = load(tile, (16, 64), f32)
        with parallel(numbers) as (i, j):
            numbers[i, j] += tile.as_f32(i, 63 - j) * 0 + f32(W[block * 16 + i, j]) * f32(counts[block * 16 + i])
        copy(numbers, out.at(block * 16))
        whole = Fragment((16, 64), i32)
        copy(tile, whole)
        copy(whole, packed.at(block * 16))


def test_packed_numbers():
    bytes_ = np.random.default_rng(1).integers(0, 256, (21, 32), dtype=np.uint8)
    codes = np.stack([bytes_ & 15, bytes_ >> 4], -1).reshape(21, 64).astype(np.float32)
    signed = np.where(codes < 8, codes, codes - 16)
    for type, wanted in ((u4, codes), (i4, signed), (u4.minus(8), codes - 8)):
        for target in ("interpreter", "cpu"):
            out, packed = unpack(type)(np.full(21, 2, np.int32), bytes_, target=target)
            np.testing.assert_array_equal(out, 3 * wanted)
            np.testing.assert_array_equal(packed, bytes_)
    assert u4.minus(8).in_words().name == "u4 minus 8 in words"
    with pytest.raises(tegula.ProgramError, match="copy from u4 to i4; packed types"):

        @tegula.kernel
        def mixed():
            W = input("W", (16, 64), u4)
            with grid(1):
                copy(W, PackedShared((16, 64), i4))

        mixed()
