"""Kernels written in Python: building, inspecting and calling them."""

from __future__ import annotations

import functools
import inspect
import operator
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from . import _arrays, _tegula

_Tree = Union[int, float, str, Tuple[Any, ...]]
_largest_extent = 2**31 - 1


class Parameter(NamedTuple):
    """One of a kernel's parameters: its role is "input", "output", "inout" or "scalar"."""

    name: str
    role: str
    dtype: Any
    shape: Optional[Tuple[_Tree, ...]]


def _quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_operations: Dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _quotient,
    "mod": lambda a, b: a - _quotient(a, b) * b,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "ceildiv": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
    "neg": operator.neg,
    "abs": abs,
    "cast": lambda a: a,
}


def extent_of(tree: _Tree, values: Dict[str, Any]) -> Any:
    """An extent of a signature for these values of dims and scalars, which may be numbers or PyTorch's symbols."""
    if isinstance(tree, str):
        return values[tree]
    if not isinstance(tree, tuple):
        return tree
    if tree[0] not in _operations:
        raise ValueError(f"the extent of an output is computed by {tree[0]}; give the output to the call")
    return _operations[tree[0]](*(extent_of(each, values) for each in tree[1:]))


class Kernel:
    """A tile program. A call compiles it once for the device of the arrays, and runs it."""

    def __init__(self, built: Any) -> None:
        self._built = built
        self.name: str = built.name
        self.parameters = tuple(Parameter(*each) for each in built.parameters)
        self.__name__ = self.name
        self._given = [p for p in self.parameters if p.role != "output"]
        self._outputs = [p for p in self.parameters if p.role == "output"]

    def __str__(self) -> str:
        return self._built.text

    def __repr__(self) -> str:
        return f"<tegula.Kernel {self.name}({', '.join(p.name for p in self.parameters)})>"

    def __call__(self, *args: Any, out: Any = None, target: str = "automatic", **named: Any) -> Any:
        """Calls the kernel.

        Args:
            args: the parameters that the kernel reads, in the order of declaration; or all parameters, including
                outputs.
            out: the output, or a tuple of them. Missing outputs are allocated by the library of the first array.
            target: "automatic", "cpu", "cuda", "interpreter", or "emulated_sm90", which runs GPU code on the CPU,
                slowly; and, for GPUs before Hopper, "cuda_sm80" and "emulated".
            named: parameters by name, and dims that no array determines.

        Returns:
            The output, or a tuple of them; None if the kernel has none.
        """
        given, dims = self._bind(args, out, named)
        self._refuse_recording([given[p.name] for p in self._given if p.role != "scalar"])
        shapes = self._shapes(given, dims)
        return self._built.call([given.get(p.name) for p in self.parameters], shapes, target)

    def _refuse_recording(self, tensors: Sequence[Any]) -> None:
        try:
            _tegula.refuse_recording(*tensors)
        except TypeError:
            raise TypeError(
                f"{self.name}() gives no gradients, and an argument requires them; make it an operator that has some, "
                "by tegula.torch.custom_op(kernel, backward=…), or pass tensor.detach()"
            ) from None

    def _bind(self, args: Sequence[Any], out: Any, named: Dict[str, Any]) -> Tuple[Dict[str, Any], Dict[str, int]]:
        order = self.parameters if self._outputs and len(args) == len(self.parameters) else self._given
        if len(args) > len(order):
            names = ", ".join(p.name for p in self._given)
            raise TypeError(f"{self.name}() takes {len(self._given)} arguments ({names}), or with outputs "
                            f"{len(self.parameters)}; given {len(args)}")  # fmt: skip
        given = {p.name: value for p, value in zip(order, args)}
        if out is not None:
            outs = out if isinstance(out, (tuple, list)) else (out,)
            if len(outs) != len(self._outputs):
                raise TypeError(f"{self.name}(): out has {len(outs)} arrays, and the kernel {len(self._outputs)} outputs")
            given.update(zip((p.name for p in self._outputs), outs))
        names = {p.name for p in self.parameters}
        for name in named:
            if name in given:
                raise TypeError(f"{self.name}() got two values for '{name}'")
        given.update((name, value) for name, value in named.items() if name in names and value is not None)
        dims = {name: value for name, value in named.items() if name not in names}
        unknown = sorted(set(dims) - self._dims)
        if unknown:
            raise TypeError(
                f"{self.name}() has no parameter '{unknown[0]}'; it has {', '.join(p.name for p in self.parameters)}; "
                "the call's own options are out and target"
            )
        missing = [p.name for p in self._given if given.get(p.name) is None]
        if missing:
            raise TypeError(f"{self.name}() is called without {', '.join(missing)}; pass what the kernel reads")
        return given, self._checked_dims(given, dims) if dims else dims

    def _checked_dims(self, given: Dict[str, Any], dims: Dict[str, Any]) -> Dict[str, int]:
        """The dims that the call gives by name, which do not contradict its arrays."""
        checked: Dict[str, int] = {}
        known = self.values_of(given)
        for name, value in dims.items():
            label = f"{self.name}, dim '{name}'"
            try:
                checked[name] = operator.index(value)
            except TypeError:
                raise TypeError(f"{label}: expected an integer, given {type(value).__name__}") from None
            if not 0 <= checked[name] <= _largest_extent:
                raise ValueError(f"{label}: expected a number from 0 to {_largest_extent}, given {value}")
            if known.get(name, checked[name]) != checked[name]:
                raise ValueError(f"{label}: the arrays determine {known[name]}, but {value} is given; leave it out")
        return checked

    @functools.cached_property
    def _dims(self) -> Set[str]:
        return self.dims_of(self.parameters)

    def dims_of(self, parameters: Iterable[Parameter]) -> Set[str]:
        """The dims in the extents of these parameters."""
        found: Set[str] = set()

        def collect(tree: _Tree) -> None:
            if isinstance(tree, str):
                found.add(tree)
            elif isinstance(tree, tuple):
                for each in tree[1:]:
                    collect(each)

        for p in parameters:
            for extent in p.shape or ():
                collect(extent)
        return found - {p.name for p in self.parameters if p.role == "scalar"}

    def values_of(self, given: Dict[str, Any]) -> Dict[str, Any]:
        """The dims determined by the shapes of arrays, and the scalars."""
        values: Dict[str, Any] = {}
        for p in self.parameters:
            value = given.get(p.name)
            if value is None:
                continue
            if p.shape is None:
                values[p.name] = value
            else:
                for extent, size in zip(p.shape, self._shape_given(p, value)):
                    if isinstance(extent, str):
                        values.setdefault(extent, size)
        return values

    def _shape_given(self, parameter: Parameter, array: Any) -> Tuple[Any, ...]:
        label, rank = f"{self.name}, argument '{parameter.name}'", len(parameter.shape or ())
        if not hasattr(array, "shape"):
            raise TypeError(f"{label}: expected an array, given {type(array).__name__}; convert it, as by numpy.asarray")
        if len(array.shape) != rank:
            raise ValueError(f"{label}: expected {rank} dimensions, given the shape {list(array.shape)}")
        return tuple(array.shape)

    def _shapes(self, given: Dict[str, Any], dims: Dict[str, int]) -> List[Optional[Tuple[int, ...]]]:
        if all(p.name in given for p in self._outputs):
            return [None] * len(self.parameters)
        values = {**self.values_of(given), **dims}
        shapes: List[Optional[Tuple[int, ...]]] = []
        for p in self.parameters:
            if p.role != "output" or p.name in given or p.shape is None:
                shapes.append(None)
                continue
            shapes.append(self._allocatable(p, self.shape_of(p, values)))
        if not any(p.role in ("input", "inout") for p in self.parameters):
            self._allocate_by_numpy(given, shapes)
        return shapes

    def _allocatable(self, parameter: Parameter, shape: Tuple[int, ...]) -> Tuple[int, ...]:
        # The library of the array would speak of its memory, not of the kernel.
        if any(not 0 <= extent <= _largest_extent for extent in shape):
            raise ValueError(
                f"{self.name}(): the output {parameter.name} would have the shape {list(shape)}, whose extents are not "
                f"all from 0 to {_largest_extent}; check the arrays that determine them, or split the call"
            )
        return shape

    def shape_of(self, parameter: Parameter, values: Dict[str, Any]) -> Tuple[Any, ...]:
        """The shape of a tensor of the signature for these dims and scalars."""
        try:
            return tuple(extent_of(extent, values) for extent in parameter.shape or ())
        except KeyError as error:
            raise TypeError(
                f"{self.name}(): no array determines {error.args[0]}, an extent of the output {parameter.name}; give "
                f"{error.args[0]} by name, or the output"
            ) from None

    def _allocate_by_numpy(self, given: Dict[str, Any], shapes: Sequence[Optional[Tuple[int, ...]]]) -> None:
        # There is no array whose library could make the output.
        import numpy

        for p, shape in zip(self.parameters, shapes):
            if shape is not None:
                given[p.name] = _arrays.empty(numpy.empty(0), shape, p.dtype.python_name)

    def show(
        self,
        *,
        html: Optional[str] = None,
        svg: Optional[str] = None,
        arch: int = 90,
        extents: Optional[Dict[str, float]] = None,
        machine: str = "h100",
        **views: bool,
    ) -> str:
        """What the compiler generates from the kernel; no GPU is needed.

        Args:
            html: a file to which a page with all views is written.
            svg: a folder for pictures of the views ``layout``, ``schedule`` and ``shared_memory``.
            arch: architecture of the GPU, 80 or 90.
            extents: dims and scalars of a call, by name, for the roofline estimate of the page.
            machine: the machine of that estimate: ``h100``, ``h200``, ``a100`` or ``cpu``.
            views: ``ir`` (the program), ``passes``, ``cpp``, ``cuda``, ``layout``, ``schedule``, ``shared_memory``,
                ``resources``; and ``for_gpu``, which selects the GPU's passes.

        Returns:
            The texts, one after the other.
        """
        known = ("ir", "passes", "cpp", "cuda", "layout", "schedule", "shared_memory", "resources", "for_gpu")
        for name in views:
            if name not in known:
                raise TypeError(f"show() has no view '{name}'; it has {', '.join(known)}")
        options = {**views, "architecture": arch}
        if html is not None:
            numbers = {name: float(value) for name, value in (extents or {}).items()}
            with open(html, "w", encoding="utf-8") as file:
                file.write(self._built.report(arch, numbers, machine))
            if not views:
                return html
        if svg is not None:
            drawn = ("layout", "schedule", "shared_memory")
            if not any(views.get(name) for name in drawn):
                raise ValueError(f"show: svg draws pictures; ask for one of {', '.join(drawn)}, as {drawn[1]}=True")
            return "\n".join(self._draw(svg, options))
        return self._built.show(options)

    def _draw(self, folder: str, options: Dict[str, Any]) -> List[str]:
        import os

        os.makedirs(folder, exist_ok=True)
        paths = []
        for name, picture in self._built.draw(options).items():
            paths.append(os.path.join(folder, f"{name}.svg"))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(picture)
        return paths

    def notes(self, target: str = "cuda") -> List[str]:
        """Where the kernel falls back to slower code on a target: each note has the line and the remedy."""
        return list(self._built.notes(target))

    def explain(self, target: str = "cuda") -> str:
        """How each grid is executed on a target, and the notes."""
        return self._built.explain(target)

    def analyze(self, machine: str = "h100", **extents: float) -> str:
        """The work of the kernel for these dims and scalars, and the minimum time that a machine needs for it."""
        return self._built.analyze({name: float(value) for name, value in extents.items()}, machine)[0]


class KernelFunction:
    """A function decorated with ``@kernel``. Calling it with compile-time parameters returns a Kernel.

    A kernel is built once per set of arguments.
    """

    def __init__(self, function: Callable[..., Any], name: Optional[str]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._name = function, name
        self._kernels: Dict[Any, Kernel] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Kernel:
        signature = inspect.signature(self._function)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"{self._function.__name__}{signature}: {error}; "
                "these arguments build the kernel, whose result takes the arrays"
            ) from None
        bound.apply_defaults()
        try:
            key: Any = tuple((name, type(value), value) for name, value in bound.arguments.items())
            known = self._kernels.get(key)
        except TypeError:  # an argument that cannot be looked up
            return self._build(bound)
        if known is None:
            known = self._kernels[key] = self._build(bound)
        return known

    def _build(self, bound: inspect.BoundArguments) -> Kernel:
        code = self._function.__code__
        place = (code.co_filename, code.co_name, code.co_firstlineno)
        name = self._name.format(**bound.arguments) if self._name else self._function.__name__
        return Kernel(_tegula.build_kernel(name, functools.partial(self._function, *bound.args, **bound.kwargs), place))


def kernel(function: Optional[Callable[..., Any]] = None, /, *, name: Optional[str] = None) -> Any:
    """Turns a function that describes a tile program into a function that returns kernels.

    Args:
        function: declares the signature and the grids, with ``tegula.lang``. Its arguments are compile-time parameters;
            a kernel is built for each set of them.
        name: the name of the kernels, an identifier in which ``{argument}`` is replaced by an argument; by default
            the function's name.

    Returns:
        A function with the same arguments that returns a ``tegula.Kernel``.

    Raises:
        tegula.ProgramError: the program is invalid; the message begins with the file and line of the error.

    Source: the language of docs/language.md.
    """
    if function is None:
        return functools.partial(kernel, name=name)
    return KernelFunction(function, name)
