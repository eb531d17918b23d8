"""An operator as PyTorch wants it, called in the cheapest way that serves."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor

from ._vmap import make_vmap

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
        schema: the arguments and results in the notation of torch.library; tensors come first, then options.
        run: calls the library.
        fake: results of the right shapes and dtypes, without elements.
        backward: the gradients of the tensors from a context with the options, the tensors, the results and the
            gradients of the results. Without it there are no gradients.
        at_once: as run, where the caller takes fewer results than the schema has.
        keep_results: whether backward has the results.
        unbatched: numbers of the tensors that have no batch; where one of them is given, or any if this is None, the
            entries of a torch.vmap are calls of their own instead of one larger batch.
    """

    def __init__(
        self,
        name: str,
        schema: str,
        run: Callable[..., Any],
        fake: Callable[..., Any],
        backward: Optional[Callable[..., Any]] = None,
        *,
        at_once: Optional[Callable[..., Any]] = None,
        keep_results: bool = True,
        unbatched: Optional[Tuple[int, ...]] = (),
    ) -> None:
        self.name, self.keep_results = name, keep_results
        self.tensors = schema.partition("->")[0].count("Tensor")
        self.at_once = at_once or run
        self.backward = backward or self._refuse
        vmap = make_vmap(self, unbatched)
        # One that is fast and one that transforms understand. The apply of torch.autograd.Function looks for such
        # transforms, one argument after the other; that of its base class does not.
        plain = _function(name, forward=self._forward, backward=self._backward)
        self.plain = super(torch.autograd.Function, plain).apply  # type: ignore[misc]
        self.composable = _function(
            name, forward=run, setup_context=self._setup, backward=self._padded_backward, vmap=vmap
        )
        self.custom: Any = None
        if _custom_op is not None:
            self.custom = _custom_op(f"tegula::{name}", run, mutates_args=(), schema=schema)
            self.custom.register_fake(fake)
            if backward is not None:
                self.custom.register_autograd(self._padded_backward, setup_context=self._setup)
            if hasattr(self.custom, "register_vmap"):
                self.custom.register_vmap(vmap)

    def __call__(self, tensors: Tuple[Any, ...], *options: Any) -> Any:
        if self.custom is not None and (_is_compiling() or _modes()):
            return self.custom(*tensors, *options)
        gradients = False
        for x in tensors:
            if x is None:
                continue
            if type(x) not in _classes and self._sees_calls(x):
                return self.custom(*tensors, *options)
            gradients = gradients or x.requires_grad
        if _transforms():
            return self.composable.apply(*tensors, *options)
        if gradients and torch.is_grad_enabled():
            # Every argument costs time: the options are one.
            return self.plain(*tensors, options)
        return self.at_once(*tensors, *options)

    def _sees_calls(self, x: Any) -> bool:
        if isinstance(x, Tensor):
            return self.custom is not None
        raise TypeError(
            f"tegula.torch.{self.name}: expected tensors of PyTorch, given {type(x).__name__}; the function of this "
            "name in tegula takes arrays of other libraries"
        )

    def _keep(self, ctx: Any, tensors: Tuple[Any, ...], options: Tuple[Any, ...], results: Any) -> None:
        ctx.options = options
        ctx.set_materialize_grads(False)
        # What is not given comes last, as a rule, and takes time to keep as well.
        given = len(tensors)
        while tensors[given - 1] is None:
            given -= 1
        ctx.given = given
        if self.keep_results:
            ctx.save_for_backward(*tensors[:given], *results)
        else:
            ctx.save_for_backward(*tensors[:given])

    def _gradients(self, ctx: Any, gradients: Tuple[Any, ...]) -> Any:
        kept, given = ctx.saved_tensors, ctx.given
        tensors = (*kept[:given], *(None for _ in range(given, self.tensors)))
        return self.backward(ctx, tensors, kept[given:], *gradients)

    def _setup(self, ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        self._keep(ctx, inputs[: self.tensors], inputs[self.tensors :], output)

    def _padded_backward(self, ctx: Any, *gradients: Any) -> Any:
        return (*self._gradients(ctx, gradients), *(None for _ in ctx.options))

    def _forward(self, ctx: Any, *inputs: Any) -> Any:
        tensors, options = inputs[:-1], inputs[-1]
        results = self.at_once(*tensors, *options)
        self._keep(ctx, tensors, options, results)
        return results

    def _backward(self, ctx: Any, *gradients: Any) -> Any:
        return (*self._gradients(ctx, gradients), None)

    def _refuse(self, *arguments: Any) -> Any:
        raise RuntimeError(f"tegula::{self.name} has no gradient; those of gradients are not implemented")


def _function(name: str, **members: Callable[..., Any]) -> Any:
    return type(name, (torch.autograd.Function,), {key: staticmethod(value) for key, value in members.items()})
