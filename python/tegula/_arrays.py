"""Arrays of the caller's library: it allocates outputs if possible, and otherwise takes them over."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Protocol, Sequence

from . import _tegula


class Array(Protocol):
    """The arguments of operators: anything that exports itself through DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_numpy(array: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray)


def is_cupy(array: Any) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def empty(like: Any, shape: Sequence[int], dtype: str | None = None) -> Any:
    """A new array of the library and on the device of ``like``; None if Tegula has to allocate it.

    ``dtype`` is a name; by default, it is that of ``like``.
    """
    if is_torch(like):
        return like.new_empty(shape, dtype=getattr(sys.modules["torch"], dtype)) if dtype else like.new_empty(shape)
    if is_numpy(like):
        return sys.modules["numpy"].empty(shape, _bfloat16_of_numpy() if dtype == "bfloat16" else dtype or like.dtype)
    if is_cupy(like) and dtype != "bfloat16":
        with like.device:
            return sys.modules["cupy"].empty(shape, dtype or like.dtype)
    return None


def _bfloat16_of_numpy() -> Any:
    """NumPy itself has no such dtype."""
    try:
        return importlib.import_module("ml_dtypes").bfloat16
    except ModuleNotFoundError:
        raise ValueError(
            "a result of bfloat16 for NumPy needs the package ml_dtypes; install it, or choose another out_dtype"
        ) from None


def as_kind_of(like: Any, array: Any) -> Any:
    """Converts an array of Tegula to the library of ``like``; returns others unchanged."""
    if not isinstance(array, _tegula.Array):
        return array
    namespace = getattr(like, "__array_namespace__", None)
    if namespace is not None:
        return namespace().from_dlpack(array)
    module = sys.modules[type(like).__module__.partition(".")[0]]
    from_dlpack = getattr(module, "from_dlpack", None)
    return array if from_dlpack is None else from_dlpack(array)


def dtype_name(dtype: Any) -> str | None:
    """``numpy.float32``, ``torch.float32`` or ``"float32"`` as ``"float32"``."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    if isinstance(dtype, type):
        return dtype.__name__
    return str(dtype).rpartition(".")[2]
