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
_classes = (Tensor, torch.nn.Parameter)  # others, such as fake tensors, see every call


class Operator:
    """``run`` as ``tegula::name`` of torch.library, and as a function of autograd.

    Custom operators are what tracers understand, but they cost tens of microseconds a call. So where nothing traces,
    ``run`` is called at once, or by way of a function of autograd if a gradient is wanted.

    Args:
        tensors: how many of the arguments, the first ones, are tensors or None.
        run: calls the library; its annotations are the operator's schema.
        fake: results of the right shapes and dtypes, without elements.
        setup: keeps in a context what backward needs.
        backward: the gradients of the arguments from those of the results. Without it the operator has none.
        at_once: as run, where the caller takes fewer results than the schema has.
    """

    def __init__(
        self,
        name: str,
        tensors: int,
        run: Callable[..., Any],
        fake: Callable[..., Any],
        setup: Optional[Callable[..., None]] = None,
        backward: Optional[Callable[..., Any]] = None,
        at_once: Optional[Callable[..., Any]] = None,
    ) -> None:
        self.name, self.tensors = name, tensors
        self.at_once = at_once or run
        self.custom: Any = None
        if _custom_op is not None:
            self.custom = _custom_op(f"tegula::{name}", run, mutates_args=())
            self.custom.register_fake(fake)
            if setup is not None and backward is not None:
                self.custom.register_autograd(backward, setup_context=setup)
        self.plain, self.composable = _functions(
            name, tensors, run, self.at_once, setup or _keep_nothing, backward or _refuse(name)
        )

    def __call__(self, *inputs: Any) -> Any:
        if self.custom is not None and (_is_compiling() or _modes()):
            return self.custom(*inputs)
        gradients = False
        for x in inputs[: self.tensors]:
            if x is None:
                continue
            if type(x) not in _classes and self._sees_calls(x):
                return self.custom(*inputs)
            gradients = gradients or x.requires_grad
        if _transforms():
            return self.composable.apply(*inputs)
        if gradients and torch.is_grad_enabled():
            return self.plain.apply(*inputs[: self.tensors], inputs[self.tensors :])
        return self.at_once(*inputs)

    def _sees_calls(self, x: Any) -> bool:
        if isinstance(x, Tensor):
            return self.custom is not None
        raise TypeError(
            f"tegula.torch.{self.name}: expected tensors of PyTorch, given {type(x).__name__}; the function of this "
            "name in tegula takes arrays of other libraries"
        )


def _functions(
    name: str,
    tensors: int,
    run: Callable[..., Any],
    at_once: Callable[..., Any],
    setup: Callable[..., None],
    backward: Callable[..., Any],
) -> tuple[Any, Any]:
    """Two functions of autograd that do the same: one that is fast, one that transforms understand.

    The fast one takes all arguments that are no tensors as one, since each costs time, and has the results of at_once.
    """

    def forward(ctx: Any, *inputs: Any) -> Any:
        inputs = (*inputs[:-1], *inputs[-1])
        output = at_once(*inputs)
        setup(ctx, inputs, output)
        return output

    def packed_backward(ctx: Any, *gradients: Any) -> Any:
        return backward(ctx, *gradients)[: tensors + 1]

    def make(**members: Callable[..., Any]) -> Any:
        return type(name, (torch.autograd.Function,), {key: staticmethod(value) for key, value in members.items()})

    return (
        make(forward=forward, backward=packed_backward),
        make(forward=run, setup_context=setup, backward=backward),
    )


def _keep_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    pass


def _refuse(name: str) -> Callable[..., Any]:
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(f"tegula::{name} has no gradient; those of gradients are not implemented")

    return backward
