"""Gradients that consist of calls of other operators, for tables that name no operator for them."""

from __future__ import annotations

from typing import Any, Callable, Dict, Set

from torch import Tensor

# By the operator's name: from its tensors, its options, the gradients of its results (dout) and the names of the
# tensors whose gradients are needed, these gradients by name.
composed: Dict[str, Callable[[Dict[str, Any], Dict[str, Any], Dict[str, Any], Set[str]], Dict[str, Tensor]]] = {}
