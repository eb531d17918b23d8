"""An operator for PyTorch, called in the cheapest sufficient way."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, Callable, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd import forward_ad, profiler

from .._tegula import any_requires_grad, refuse_tangents

# PyTorch before 2.4 has no custom operators of this kind: there all calls go by functions of autograd.
_custom_op = getattr(torch.library, "custom_op", None)
_is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
# Modes that see every call, as make_fx does, and the transforms of torch.func. PyTorch tells of both by these alone.
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_is_tracing = getattr(torch._C, "_is_tracing", lambda: False)
_profiler = profiler if hasattr(profiler, "_is_profiler_enabled") else SimpleNamespace(_is_profiler_enabled=False)
# Others export only tensors without a history.
_exports_history = hasattr(Tensor, "__dlpack_c_exchange_api__")


def _is_seen() -> bool:
    """Whether PyTorch must see the call: compilers, tracers and modes, profilers, forward-mode derivatives."""
    return (
        _is_compiling()
        or _modes()
        or _is_tracing()
        or (_profiler._is_profiler_enabled or forward_ad._current_level >= 0)
        and not _transforms()
    )


def _refuse_forward_mode(tensors: Tuple[Any, ...]) -> None:
    """Inside a custom operator, below PyTorch's derivatives, where tangents would be lost silently."""
    refuse_tangents(tensors)
    # The transform of torch.func shows operators no tangents.
    transforms = sys.modules.get("torch._functorch.eager_transforms")
    if getattr(transforms, "JVP_NESTING", 0) > 0:
        _refuse_jvp()


def _refuse_jvp(*arguments: Any) -> Any:
    raise NotImplementedError(
        "forward-mode derivatives (make_dual, torch.func.jvp) are not implemented; use reverse mode"
    )


def side_by_side(gradient: Optional[Tensor]) -> Optional[Tensor]:
    """A gradient in contiguous form: that of a sum, such as ``out.sum()``, is one element with strides of 0."""
    if gradient is None or gradient.dim() == 0 or gradient.stride(-1) == 1 or gradient.shape[-1] == 1:
        return gradient
    return gradient.contiguous()


class Operator:
    """``run`` as ``tegula::name`` of torch.library and as an autograd function.

    Tracers understand custom operators, but these cost tens of microseconds per call. If nothing traces, ``run`` is
    therefore called directly, or through an autograd function if a gradient is required.

    Args:
        schema: the arguments and results in the notation of torch.library; tensors come first, then options.
        run: calls the library.
        fake: results of the right shapes and dtypes, without elements.
        backward: the gradients of the tensors from a context with the options, the tensors, the results and the
            gradients of the results. Without it there are no gradients.
        at_once: like run, for callers that take fewer results than the schema has.
        keep_results: whether backward uses the results.
        of_backward: number of trailing options that are for backward and are not passed to run.
        vmap: makes the operator's torch.vmap rule.
        no_gradient: why the operator has no gradient.
        written: names of the tensors that it updates in place.
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
        of_backward: int = 0,
        vmap: Callable[..., Any],
        no_gradient: str = "",
        written: Sequence[str] = (),
    ) -> None:
        self.name, self.keep_results, self.no_gradient = name, keep_results, no_gradient
        self.tensors = schema.partition("->")[0].count("Tensor")
        arguments = schema.partition(" ->")[0].strip("() ").split(",")
        names = [each.split()[-1] for each in arguments]
        self.written = tuple(names.index(each) for each in written)
        if written:
            run, vmap = self._writing(run), self._refusing_vmap
        if not _exports_history:
            run, at_once = self._detaching(run), at_once and self._detaching(at_once)
        self.at_once = at_once or run
        self.of_run = -of_backward or None
        self.has_backward = backward is not None
        self.backward = backward or self._refuse

        def run_whole(*arguments: Any) -> Any:
            return run(*arguments[: self.of_run])

        def run_custom(*arguments: Any) -> Any:
            if forward_ad._current_level >= 0:
                _refuse_forward_mode(arguments[: self.tensors])
            return run_whole(*arguments)

        rule = vmap(self)
        # One that is fast and one that transforms understand. The apply of torch.autograd.Function looks for such
        # transforms, one argument after the other; that of its base class does not.
        plain = _function(name, forward=self._forward, backward=self._backward)
        self.plain = super(torch.autograd.Function, plain).apply  # type: ignore[misc]
        self.composable = _function(
            name, forward=run_whole, setup_context=self._setup, backward=self._padded_backward, vmap=rule,
            jvp=_refuse_jvp,
        )  # fmt: skip
        self.custom: Any = None
        if _custom_op is not None:
            self.custom = _custom_op(f"tegula::{name}", run_custom, mutates_args=tuple(written), schema=schema)
            self.custom.register_fake(fake)
            if backward is not None:
                self.custom.register_autograd(self._padded_backward, setup_context=self._setup)
            if hasattr(self.custom, "register_vmap"):
                self.custom.register_vmap(rule)
            # By this name: calls of the definition itself are not recorded by PyTorch 2.15 where all arguments are tensors.
            self.custom = getattr(torch.ops.tegula, name)

    def __call__(self, tensors: Tuple[Any, ...], *options: Any) -> Any:
        if _is_seen():
            if not _is_compiling() and forward_ad._current_level >= 0 and not _transforms():
                refuse_tangents(tensors)
            if self.custom is not None:
                return self.custom(*tensors, *options)
            if _is_tracing():
                raise NotImplementedError("torch.jit.trace of tegula.torch needs PyTorch 2.4")
        gradients = any_requires_grad(tensors)
        if gradients is None:
            gradients = self._others_require_grad(tensors)
            if self.custom is not None:
                return self.custom(*tensors, *options)
        if _transforms():
            return self.composable.apply(*tensors, *options)
        if gradients and torch.is_grad_enabled():
            if self.written:
                raise RuntimeError(
                    f"tegula.torch.{self.name}: a tensor requires a gradient, and what is written in place has none; "
                    "call it under torch.no_grad()"
                )
            # Every argument costs time: the options are one, and those at the end that are not given are none.
            given = self.tensors
            while tensors[given - 1] is None:
                given -= 1
            return self.plain(*tensors[:given], (tensors, options))
        return self.at_once(*tensors, *options[: self.of_run])

    def whole(self, tensors: Tuple[Any, ...], *options: Any) -> Any:
        """Calls with all results of the schema, for transforms."""
        if self.custom is not None and (_is_seen() or any_requires_grad(tensors) is None):
            return self.custom(*tensors, *options)
        return self.composable.apply(*tensors, *options)

    def _others_require_grad(self, tensors: Tuple[Any, ...]) -> bool:
        """For tensors of other classes, such as fake tensors, which see every call."""
        for x in tensors:
            if isinstance(x, torch.fx.Proxy):
                raise TypeError(
                    f"tegula.torch.{self.name}: torch.fx.symbolic_trace gives no tensors; trace with torch.export or "
                    "make_fx, or keep the function that calls this one whole with torch.fx.wrap"
                )
            if getattr(x, "is_nested", False):
                raise TypeError(
                    f"tegula.torch.{self.name}: nested tensors are not supported; pass packed sequences, values() with offsets().int() as cu_seqlens"
                )
            if x is not None and not isinstance(x, Tensor):
                raise TypeError(
                    f"tegula.torch.{self.name}: expected tensors of PyTorch, given {type(x).__name__}; the function "
                    "of this name in tegula takes arrays of other libraries"
                )
        return any(x is not None and x.requires_grad for x in tensors)

    def _detaching(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def detached(*arguments: Any) -> Any:
            tensors = (x.detach() if isinstance(x, Tensor) else x for x in arguments[: self.tensors])
            return run(*tensors, *arguments[self.tensors :])

        return detached

    def _writing(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Tells PyTorch that tensors have changed in place."""

        def writing(*arguments: Any) -> Any:
            results = run(*arguments)
            for i in self.written:
                if arguments[i] is not None and not arguments[i].is_inference():
                    torch.autograd.graph.increment_version(arguments[i])
            return results

        return writing

    def _refusing_vmap(self, operator: Any) -> Callable[..., Any]:
        def refuse(*arguments: Any) -> Any:
            raise NotImplementedError(
                f"tegula.torch.{self.name} writes tensors in place, which torch.vmap does not support; pass it the "
                "larger call"
            )

        return refuse

    def _keep(self, ctx: Any, tensors: Tuple[Any, ...], options: Tuple[Any, ...], results: Any) -> None:
        ctx.options = options
        ctx.set_materialize_grads(False)
        if self.keep_results:
            ctx.save_for_backward(*tensors, *results)
        else:
            ctx.save_for_backward(*tensors)

    def _gradients(self, ctx: Any, kept: Tuple[Any, ...], gradients: Tuple[Any, ...]) -> Any:
        if all(x is None for x in gradients):  # what follows the call needs no gradient of it: zeros
            return (None,) * self.tensors
        given = len(kept) - len(gradients) if self.keep_results else len(kept)
        tensors = (*kept[:given], *(None for _ in range(given, self.tensors)))
        return self.backward(ctx, tensors, kept[given:], *(side_by_side(x) for x in gradients))

    def _setup(self, ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        self._keep(ctx, inputs[: self.tensors], inputs[self.tensors :], output)

    def _padded_backward(self, ctx: Any, *gradients: Any) -> Any:
        return (*self._gradients(ctx, ctx.saved_tensors, gradients), *(None for _ in ctx.options))

    def _forward(self, ctx: Any, *inputs: Any) -> Any:
        tensors, options = inputs[-1]
        results = self.at_once(*tensors, *options[: self.of_run])
        self._keep(ctx, inputs[:-1], options, results)
        return results

    def _backward(self, ctx: Any, *gradients: Any) -> Any:
        kept = ctx.saved_tensors
        return (*self._gradients(ctx, kept, gradients)[: len(ctx.needs_input_grad) - 1], None)

    def _refuse(self, *arguments: Any) -> Any:
        why = self.no_gradient or "those of gradients are not implemented"
        raise RuntimeError(f"tegula::{self.name} has no gradient; {why}")


def _function(name: str, **members: Callable[..., Any]) -> Any:
    return type(name, (torch.autograd.Function,), {key: staticmethod(value) for key, value in members.items()})
