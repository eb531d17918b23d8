"""Separates compiled graphs of different versions of this package.

PyTorch caches results of torch.compile by the names of the operators that a function calls
(https://github.com/pytorch/pytorch/issues/144344). Their arguments, the shapes of their results and their gradients are
compiled in but do not belong to that key, so a version in which they differ would run graphs of an earlier one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from .. import _tegula


def fingerprint() -> str:
    """A hash of everything that tracers see: the sources of this package and its parent, and the tables of
    operators."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted((*here.glob("*.py"), *here.parent.glob("*.py"))):
        digest.update(source.read_bytes())
    digest.update(repr(_tegula.tables()).encode())
    return digest.hexdigest()[:16]


def add_to_cache_key() -> None:
    """Adds the fingerprint to PyTorch's tag of all cached graphs, in addition to the user's."""
    try:
        from torch.compiler import config
    except ImportError:  # PyTorch before 2.6
        return
    if hasattr(config, "cache_key_tag"):
        others = [tag for tag in config.cache_key_tag.split() if not tag.startswith("tegula-")]
        config.cache_key_tag = " ".join((*others, f"tegula-{fingerprint()}"))
