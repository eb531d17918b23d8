"""Tegula: dense and sparse attention, block selection and matrix products.

Every function takes arrays of any library that supports DLPack (NumPy, PyTorch, JAX, CuPy) and returns arrays of the
library of its first argument. Automatic gradients, ``torch.compile`` and the signatures of other libraries are in
``tegula.torch``.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import _functions
from ._devices import synchronize
from ._explain import explain
from ._functions import *  # noqa: F403
from ._kernel import Kernel, kernel
from ._load import load
from ._tegula import ProgramError
from ._time import Timing, time
from ._tune import Tuned, TunedRow, tune

__all__ = ["Kernel", "ProgramError", "Timing", "Tuned", "TunedRow", "explain", "kernel", "load", "synchronize", "time", "tune", *_functions.__all__]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Without an import of their own: tegula.torch would load PyTorch for everybody.
    if name in ("lang", "torch"):
        return importlib.import_module(f"tegula.{name}")
    raise AttributeError(f"module 'tegula' has no attribute '{name}'")
