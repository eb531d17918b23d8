"""Kernels of C++ files, and the same programs in Python, whose texts are equal byte for byte but for the places."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tegula
from tegula import _load
from turns import PARTS, sixth

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "python"))
import lessons
import programs

PYTHON = {
    "examples/01_vector_add.cpp": [lessons.vector_add()],
    "examples/02_gemm.cpp": [lessons.gemm_relu(32, 32, 16)],
    "examples/03_softmax_rows.cpp": [lessons.softmax_rows(4, 32)],
    "examples/04_histogram.cpp": [lessons.histogram(16)],
    "examples/05_attention.cpp": [lessons.packed_attention(16, 16, 8)],
    "examples/07_reading_a_schedule.cpp": [lessons.product(), lessons.product_with_assertion()],
    "examples/08_decode.cpp": [lessons.decode(4, 16, 8, 3)],
    "examples/09_block_sparse.cpp": [lessons.block_sparse_product(16, 32)],
    "examples/10_dequantise.cpp": [lessons.product_of_nibbles(32, 32)],
    "examples/11_linear_attention.cpp": [lessons.linear_attention(16, 16)],
    "examples/13_copy_engine.cpp": [lessons.matrix_add(32, 64), lessons.columns_scale(32, 64)],
    "examples/python/programs.cpp": [
        programs.sums(),
        programs.dequantised_rows(64, 64, 32),
        programs.collatz(1000),
        programs.sparse_columns(12, 32),
        programs.rescaled(64, 32),
        programs.drawn(4, 64),
    ],
}
PLACE = re.compile(r"[\w./-]+\.(?:cpp|py):\d+")


@pytest.fixture(autouse=True)
def with_compiler():
    try:
        _load._development()
    except RuntimeError as error:
        pytest.skip(str(error))
    if tegula._tegula.host_compiler() is None:
        pytest.skip("there is no C++ compiler")


def without_places(text):
    return PLACE.sub("PLACE", text)


def test_turns_have_every_file():
    assert len(PARTS) == 48
    for first in range(0, 48, 6):
        assert sorted(sum((sixth(PYTHON, part) for part in PARTS[first : first + 6]), [])) == sorted(PYTHON)


# A file is compiled for longer than its texts are compared.
@pytest.mark.parametrize("file", sixth(PYTHON))
def test_texts_are_those_of_cpp(file):
    kernels = tegula.load(ROOT / file)
    assert [kernel.name for kernel in kernels] == [kernel.name for kernel in PYTHON[file]]
    for cpp, python in zip(kernels, PYTHON[file]):
        for views in ({"cuda": True, "arch": 90}, {"cuda": True, "arch": 80}, {"cpp": True}):
            assert without_places(python.show(**views)) == without_places(cpp.show(**views)), (cpp.name, views)


SOURCE = """
#include <tegula/tegula.hpp>
#include "factor.hpp"
using namespace tegula::lang;
Kernel scaled(bool right) {
  return kernel("scaled", [&] {
    Dim N("N");
    Tensor X = input("X", {N}, f32), Y = output("Y", {N}, f32);
    grid(N, [&](Index i) {
      if (right) Y(i) = X(i) * FACTOR;
      else Y(i) = i;
    });
  });
}
TEGULA_KERNELS(scaled(RIGHT))
int main() {}
"""


def test_a_file_is_compiled_when_it_has_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("TEGULA_CACHE_DIR", str(tmp_path / "cache"))
    compiled = []
    compile_file = _load._compile
    monkeypatch.setattr(_load, "_compile", lambda *args: compiled.append(args) or compile_file(*args))
    (tmp_path / "mine.cpp").write_text(SOURCE)
    x = np.arange(3, dtype=np.float32)
    for factor, times in ((2, 1), (2, 1), (3, 2), (2, 3)):
        (tmp_path / "factor.hpp").write_text(f"#define FACTOR {factor}\n")
        kernels = tegula.load(tmp_path / "mine.cpp", flags=["-DRIGHT=true"])
        np.testing.assert_array_equal(kernels.scaled(x, target="interpreter"), factor * x)
        assert len(compiled) == times


def test_wrong_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TEGULA_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "factor.hpp").write_text("#define FACTOR 1\n")
    mine = tmp_path / "mine.cpp"
    with pytest.raises(FileNotFoundError):
        tegula.load(mine)
    mine.write_text("int main() {}")
    with pytest.raises(ValueError, match="TEGULA_KERNELS"):
        tegula.load(mine)
    mine.write_text(SOURCE)
    with pytest.raises(ValueError, match="RIGHT"):
        tegula.load(mine)
    with pytest.raises(tegula.ProgramError, match=r"mine\.cpp:11: .*cast it with f32"):
        tegula.load(mine, flags=["-DRIGHT=false"])


def test_kernels_of_one_name_are_taken_by_number(tmp_path, monkeypatch):
    monkeypatch.setenv("TEGULA_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "factor.hpp").write_text("#define FACTOR 2\n")
    mine = tmp_path / "mine.cpp"
    mine.write_text(SOURCE.replace("scaled(RIGHT)", "scaled(true), scaled(true)"))
    kernels = tegula.load(mine)
    assert [kernel.name for kernel in kernels] == ["scaled", "scaled"] and kernels[1].name == "scaled"
    with pytest.raises(AttributeError, match=r"2 kernels 'scaled'; put their parameters .* kernels\[0\]"):
        kernels.scaled
