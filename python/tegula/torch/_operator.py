"""An operator as PyTorch wants it, called in the cheapest way that serves."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from torch import Tensor

# PyTorch before 2.4 has no custom operators of this kind: there all calls go by functions of autograd.
_custom_op = getattr(torch.library, "custom_op", None)
_is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
# Modes that see every call, as make_fx does, and the transforms of torch.func. PyTorch tells of both by these alone.
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_values = frozenset((type(None), bool, int, float, str))  # of arguments that are no tensors


class Operator:
    """``run`` as ``tegula::name`` of torch.library, and as a function of autograd.

    Custom operators are what tracers understand, but they cost tens of microseconds a call. So where nothing traces,
    ``run`` is called at once, or by way of a function of autograd if a gradient is wanted.

    Args:
        run: calls the library; its annotations are the operator's schema.
        fake: results of the right shapes and dtypes, without elements.
        setup: keeps in a context what backward needs.
        backward: the gradients of the arguments from those of the results. Without it the operator has none.
        at_once: as run, where the caller takes fewer results than the schema has.
    """

    def __init__(
        self,
        name: str,
        run: Callable[..., Any],
        fake: Callable[..., Any],
        setup: Optional[Callable[..., None]] = None,
        backward: Optional[Callable[..., Any]] = None,
        at_once: Optional[Callable[..., Any]] = None,
    ) -> None:
        self.at_once = at_once or run
        self.custom: Any = None
        if _custom_op is not None:
            self.custom = _custom_op(f"tegula::{name}", run, mutates_args=())
            self.custom.register_fake(fake)
            if setup is not None and backward is not None:
                self.custom.register_autograd(backward, setup_context=setup)
        self.plain, self.composable = _functions(name, run, setup or _keep_nothing, backward or _refuse(name))

    def __call__(self, *inputs: Any) -> Any:
        if self.custom is not None and (_is_compiling() or _modes()):
            return self.custom(*inputs)
        gradients = False
        for x in inputs:
            kind = type(x)
            if kind is Tensor or kind is torch.nn.Parameter:
                gradients = gradients or x.requires_grad
            elif kind not in _values and isinstance(x, Tensor):
                if self.custom is not None:
                    return self.custom(*inputs)
                gradients = gradients or x.requires_grad
        if _transforms():
            return self.composable.apply(*inputs)
        if gradients and torch.is_grad_enabled():
            return self.plain.apply(*inputs)
        return self.at_once(*inputs)


def _functions(
    name: str, run: Callable[..., Any], setup: Callable[..., None], backward: Callable[..., Any]
) -> tuple[Any, Any]:
    """Two functions of autograd that do the same: one that is fast, one that transforms understand."""

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = run(*inputs)
        setup(ctx, inputs, output)
        return output

    def make(**members: Callable[..., Any]) -> Any:
        return type(name, (torch.autograd.Function,), {key: staticmethod(value) for key, value in members.items()})

    return make(forward=forward, backward=backward), make(forward=run, setup_context=setup, backward=backward)


def _keep_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    pass


def _refuse(name: str) -> Callable[..., Any]:
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(f"tegula::{name} has no gradient; those of gradients are not implemented")

    return backward
