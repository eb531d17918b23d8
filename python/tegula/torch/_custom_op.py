"""User-defined kernels as operators of PyTorch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from .._kernel import Kernel, Parameter

_scalar_types = {"f32": "float", "f64": "float", "bool": "bool"}


def custom_op(
    kernel: Kernel,
    *,
    name: Optional[str] = None,
    backward: Optional[Callable[..., Any]] = None,
    save: Optional[Sequence[str]] = None,
    target: str = "automatic",
) -> Any:
    """Turns a kernel into an operator of PyTorch that supports ``torch.compile``, fake tensors and gradients.

    The operator takes the tensors that the kernel reads and its scalars, in the order of declaration, then the dims
    that no input determines. It returns the outputs and updates the kernel's ``inout`` tensors.

    Args:
        kernel: such as ``gemm_relu(64, 64, 32)``.
        name: ``"library::operator"``; default: ``tegula_kernels::`` and the kernel's name. An existing operator of that
            name is replaced.
        backward: ``backward(saved, *gradients)`` with the gradients of the outputs. ``saved`` has inputs, scalars and
            outputs as attributes by their names. It returns the gradients of the tensors that the kernel reads, in
            order, with None for no gradient; or a dict by name.
        save: names of the tensors that backward uses; default: all inputs and outputs.
        target: target of the kernel's calls.

    Returns:
        The operator, which is called with tensors; ``torch.ops.library.operator`` is the same.

    Raises:
        ValueError: gradients of a kernel that changes its inputs, or a name in ``save`` that the kernel does not have.

    Source: as ``torch.library.custom_op``.
    """
    return _Definition(kernel, target).register(name or f"tegula_kernels::{kernel.name}", backward, save)


class _Definition:
    def __init__(self, kernel: Kernel, target: str) -> None:
        self.kernel, self.target = kernel, target
        self.inputs = [p for p in kernel.parameters if p.role != "output"]
        self.outputs = [p for p in kernel.parameters if p.role == "output"]
        told = {e for p in self.inputs for e in p.shape or () if isinstance(e, str)}
        self.dims = sorted(kernel.dims_of(self.outputs) - told - {p.name for p in self.inputs})
        self.names = [p.name for p in self.inputs] + self.dims

    def schema(self) -> str:
        arguments = []
        for number, p in enumerate(self.inputs):
            if p.role == "scalar":
                arguments.append(f"{_scalar_types.get(p.dtype.name, 'SymInt')} {p.name}")
            else:
                arguments.append(f"Tensor(a{number}!) {p.name}" if p.role == "inout" else f"Tensor {p.name}")
        arguments += [f"SymInt {dim}" for dim in self.dims]
        results = ["Tensor"] * len(self.outputs)
        return f"({', '.join(arguments)}) -> {results[0] if len(results) == 1 else '(' + ', '.join(results) + ')'}"

    def run(self, *arguments: Any) -> Any:
        # Below PyTorch's gradients: older versions export no tensor that has a history.
        given = {n: x.detach() if isinstance(x, torch.Tensor) else x for n, x in zip(self.names, arguments)}
        return self.kernel(target=self.target, **given)

    def fake(self, *arguments: Any) -> Any:
        given = dict(zip(self.names, arguments))
        values = {**self.kernel.values_of(given), **{dim: given[dim] for dim in self.dims}}
        like = next((x for x in arguments if isinstance(x, torch.Tensor)), torch.empty(0))
        made = [
            like.new_empty(self.kernel.shape_of(p, values), dtype=getattr(torch, p.dtype.python_name))
            for p in self.outputs
        ]
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    def register(self, name: str, backward: Optional[Callable[..., Any]], save: Optional[Sequence[str]]) -> Any:
        changed = [p.name for p in self.inputs if p.role == "inout"]
        if backward is not None and changed:
            raise ValueError(
                f"{name}: backward of a kernel that changes {', '.join(changed)}; write the result into an output"
            )
        operator = torch.library.custom_op(name, self.run, mutates_args=changed, schema=self.schema())
        operator.register_fake(self.fake)
        if backward is not None:
            gradient = _Gradient(name, backward, self.inputs, self.outputs, self.dims, save)
            operator.register_autograd(gradient.run, setup_context=gradient.setup)
        return operator


class _Gradient:
    """The user's function in the form in which PyTorch calls it."""

    def __init__(
        self,
        name: str,
        backward: Callable[..., Any],
        inputs: List[Parameter],
        outputs: List[Parameter],
        dims: List[str],
        save: Optional[Sequence[str]],
    ) -> None:
        self.name, self.backward, self.inputs, self.outputs, self.dims = name, backward, inputs, outputs, dims
        tensors = [p.name for p in (*inputs, *outputs) if p.role != "scalar"]
        for each in save or ():
            if each not in tensors:
                raise ValueError(f"{name}: save has '{each}', and the kernel the tensors {', '.join(tensors)}")
        self.saved = tensors if save is None else list(save)

    def setup(self, ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        names = [p.name for p in self.inputs] + self.dims + [p.name for p in self.outputs]
        values: Dict[str, Any] = dict(zip(names, (*inputs, *results)))
        ctx.save_for_backward(*(values[name] for name in self.saved))
        ctx.numbers = {n: x for n, x in values.items() if not isinstance(x, torch.Tensor)}

    def run(self, ctx: Any, *gradients: Any) -> Tuple[Any, ...]:
        saved = SimpleNamespace(**ctx.numbers, **dict(zip(self.saved, ctx.saved_tensors)))
        results = self.backward(saved, *gradients)
        tensors = [p.name for p in self.inputs if p.role != "scalar"]
        if not isinstance(results, Mapping):
            given = results if isinstance(results, (tuple, list)) else (results,)
            if len(given) != len(tensors):
                raise ValueError(
                    f"{self.name}: backward gives {len(given)} gradients, and the kernel reads {len(tensors)} "
                    f"tensors: {', '.join(tensors)}"
                )
            results = dict(zip(tensors, given))
        return (*(results.get(p.name) for p in self.inputs), *(None for _ in self.dims))
