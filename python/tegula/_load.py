"""Kernels written in C++: compiled with the headers and the library of this package, and cached."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from . import _tegula
from ._kernel import Kernel

_SOURCE = """\
#define main tegula_main_of_the_file
#include {file}
#undef main
#include <exception>
#include <tegula/tegula.hpp>
extern "C" __attribute__((visibility("default"))) void tegula_python_kernels(
    void* loaded, void (*add)(void*, const void*), void (*fail)(void*, const char*)) {{
  try {{
    for (const auto& kernel : tegula_kernels()) add(loaded, &kernel.ir());
  }} catch (const std::exception& error) {{ fail(loaded, error.what()); }}
}}
"""
# Of a compiler's message; what follows are other functions that do not fit either.
_message_lines = 12


class Kernels:
    """The kernels of a file, as attributes by name and as a sequence in the file's order."""

    def __init__(self, file: str, kernels: Sequence[Kernel]) -> None:
        self._file, self._kernels = file, tuple(kernels)

    def __getattr__(self, name: str) -> Kernel:
        numbers = [i for i, kernel in enumerate(self._kernels) if kernel.name == name]
        if len(numbers) == 1:
            return self._kernels[numbers[0]]
        if numbers:
            raise AttributeError(
                f"{self._file} has {len(numbers)} kernels '{name}'; put their parameters into the names, or take one by "
                f"its number, as kernels[{numbers[0]}]"
            )
        raise AttributeError(f"{self._file} has no kernel '{name}'; it has {', '.join(k.name for k in self._kernels)}")

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *(kernel.name for kernel in self._kernels)]

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    def __getitem__(self, number: int) -> Kernel:
        return self._kernels[number]

    def __repr__(self) -> str:
        return f"<kernels of {self._file}: {', '.join(kernel.name for kernel in self._kernels)}>"


def load(file: Union[str, os.PathLike[str]], *, flags: Sequence[str] = ()) -> Kernels:
    """Loads the kernels that a C++ file lists, as in ``TEGULA_KERNELS(gemm_relu(128, 128, 64))``.

    The file is compiled by the system's C++ compiler (``TEGULA_CXX`` names another) once: the result is cached in
    ``TEGULA_CACHE_DIR`` until the file, a header that it includes, the flags or the compiler change.

    Args:
        file: path of the file; a ``main`` in it is ignored.
        flags: additional compiler flags, such as ``-Iinclude``.

    Returns:
        The kernels, as attributes by name and as a sequence; each is called like a kernel written in Python.

    Raises:
        FileNotFoundError, ValueError: there is no such file, it lists no kernels, or it cannot be compiled.
        RuntimeError: there is no compiler. tegula.ProgramError: a program in it is wrong.

    Source: as ``tegula show mine.cpp`` of the command line.
    """
    path = Path(file).resolve()
    if "TEGULA_KERNELS" not in path.read_text(encoding="utf-8", errors="replace"):
        raise ValueError(
            f"load: {file} lists no kernels; add a line such as TEGULA_KERNELS(gemm_relu(128, 128, 64)) outside its functions"
        )
    return Kernels(str(file), [Kernel(built) for built in _tegula.load_library(_compiled(path, list(flags)))])


def _development() -> Tuple[Path, Path]:
    """The headers and the folder of the shared library: those of the package, or of the build that made the module."""
    installed = Path(__file__).parent / "_sdk"
    folders = [(installed / "include", installed / "lib")]
    if _tegula.build_folders[0]:
        folders.append((Path(_tegula.build_folders[0]), Path(_tegula.build_folders[1])))
    for include, libraries in folders:
        if (include / "tegula" / "version.hpp").exists() and (libraries / "libtegula.so").exists():
            return include, libraries
    looked = ", ".join(f"{include} and {libraries}" for include, libraries in folders)
    raise RuntimeError(f"load: this package has no headers and no libtegula.so to compile with (looked in {looked})")


def _compiled(path: Path, flags: List[str]) -> str:
    compiler = _tegula.host_compiler()
    if compiler is None:
        raise RuntimeError(f"load: no C++ compiler was found for {path}; install g++, or name one in TEGULA_CXX")
    include, libraries = _development()
    library = (libraries / "libtegula.so").stat()
    key = _digest([str(path), *compiler, *flags, _tegula.version, str(libraries), str(library.st_mtime_ns)])
    folder = _folder()
    record = folder / f"{key}.json"
    known = _known(record)
    if known is None:
        known = _compile(path, flags, compiler[0], include, libraries, folder, key)
        _replace(record, json.dumps(known))
    return str(folder / known["library"])


def _known(record: Path) -> Optional[Dict[str, Any]]:
    """The cached result, if none of its sources has changed."""
    try:
        known = json.loads(record.read_text(encoding="utf-8"))
        fresh = all(_digest_of_file(file) == digest for file, digest in known["files"].items())
        return known if fresh and (record.parent / known["library"]).exists() else None
    except (OSError, ValueError, KeyError):
        return None


def _compile(
    path: Path, flags: List[str], compiler: str, include: Path, libraries: Path, folder: Path, key: str
) -> Dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=folder) as build:
        source, made, rules = (os.path.join(build, name) for name in ("program.cpp", "made.so", "made.d"))
        Path(source).write_text(_SOURCE.format(file=json.dumps(str(path), ensure_ascii=False)), encoding="utf-8")
        command = [compiler, "-std=c++20", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", "-DTEGULA_SHARED",
                   "-MMD", "-MF", rules, "-I", str(include), *flags, source, "-o", made,
                   f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ltegula"]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if result.returncode != 0:
            first = "\n".join(result.stderr.splitlines()[:_message_lines])
            raise ValueError(f"load: {path} cannot be compiled:\n{first}")
        files = {file: _digest_of_file(file) for file in _dependencies(rules) if file != source}
        name = f"{key}-{_digest(sorted(files.values()))[:16]}.so"
        os.replace(made, folder / name)
    return {"library": name, "files": files}


def _dependencies(rules: str) -> List[str]:
    """The files in a make rule, `made.so: a b \\`, in which spaces of names are `\\ `."""
    text = Path(rules).read_text(encoding="utf-8").partition(":")[2].replace("\\\n", " ").replace("\\ ", "\0")
    return [os.path.abspath(name.replace("\0", " ")) for name in text.split()]


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def _digest_of_file(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _replace(file: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as out:
        out.write(text)
    os.replace(out.name, file)


def _folder() -> Path:
    """A folder to which only the user can write, because its contents are executed."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("TEGULA_CACHE_DIR") or os.path.join(cache, "tegula")) / "files"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
        is_own = state.st_uid == os.getuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if is_own and os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    global _temporary
    if _temporary is None:
        _temporary = Path(tempfile.mkdtemp(prefix="tegula-"))
        atexit.register(shutil.rmtree, _temporary, ignore_errors=True)
    return _temporary


_temporary: Optional[Path] = None
