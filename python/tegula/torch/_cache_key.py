"""Keeps compiled graphs of one version of this package from another.

PyTorch keeps what torch.compile made by the names of the operators that a function calls
(https://github.com/pytorch/pytorch/issues/144344). Their arguments, the shapes of their results and their gradients are
compiled in, but are no part of that key, so a version in which they differ would run graphs of the one before.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from .. import _tegula


def fingerprint() -> str:
    """Of all that tracers see: the sources of this package, and of the one around it, and the tables of operators."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted((*here.glob("*.py"), *here.parent.glob("*.py"))):
        digest.update(source.read_bytes())
    digest.update(repr(_tegula.tables()).encode())
    return digest.hexdigest()[:16]


def add_to_cache_key() -> None:
    """Makes the fingerprint a part of PyTorch's tag of all cached graphs, beside that of the user."""
    try:
        from torch.compiler import config
    except ImportError:  # PyTorch before 2.6
        return
    if hasattr(config, "cache_key_tag"):
        others = [tag for tag in config.cache_key_tag.split() if not tag.startswith("tegula-")]
        config.cache_key_tag = " ".join((*others, f"tegula-{fingerprint()}"))
