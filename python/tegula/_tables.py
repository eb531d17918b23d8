"""The tables of operators: their arguments, and the arithmetic of their dims."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from . import _tegula

_two_sided = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if b != 0 else 0,
    "%": lambda a, b: a % b if b != 0 else a,
    "ceildiv": lambda a, b: -(-a // b) if b != 0 else 0,
    "min": lambda a, b: a if a < b else b,
    "max": lambda a, b: b if a < b else a,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
}


def evaluate(expression: Any, values: Mapping[str, Any]) -> Any:
    """The value of an exported expression; raises KeyError if a name has no value. Extents may be symbolic."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return values[expression]
    operation, *args = expression
    if operation == "is":
        return values[args[0]] == args[1]
    if operation == "?":
        return evaluate(args[1] if evaluate(args[0], values) else args[2], values)
    if operation == "rsqrt":
        return evaluate(args[0], values) ** -0.5
    if operation == "&":
        return evaluate(args[0], values) and evaluate(args[1], values)
    return _two_sided[operation](evaluate(args[0], values), evaluate(args[1], values))


_library_dtypes = dict(_tegula.dtypes())
_python_dtypes = {own: python for python, own in _library_dtypes.items()}


def library_dtype(name: Any) -> str:
    """Tegula's name of a dtype: f32 for float32. Others are returned unchanged."""
    return _library_dtypes.get(name, str(name))


def python_dtype(name: str) -> str:
    """The inverse: float32 for f32 and for float32."""
    return _python_dtypes.get(name, name)


class Tensor:
    """A tensor of a table, with the fields that the module exports."""

    def __init__(self, fields: Dict[str, Any]) -> None:
        self.name: str = fields["name"]
        self.meaning: str = fields["meaning"]
        self.lists: List[Dict[str, Any]] = fields["lists"]
        self.dtypes: List[str] = fields["dtypes"]
        self.like: str = fields["like"]
        self.dtype_option: str = fields["dtype_option"]
        self.of_8_bits: str = fields["of_8_bits"]
        self.optional: bool = fields["optional"]
        self.unit_stride: bool = fields["unit_stride"]
        self.converts: bool = fields["converts"]
        self.written: bool = fields["written"]
        self.steps_of: str = fields["steps_of"]
        self.when: Any = fields["when"]
        self.when_text: str = fields["when_text"]

    def dims(self, values: Mapping[str, Any]) -> List[Dict[str, Any]]:
        """The list of dims whose condition holds."""
        for each in self.lists:
            if each["condition"] is None or evaluate(each["condition"], values):
                return each["items"]
        raise KeyError(self.name)

    @property
    def is_floating(self) -> bool:
        return any("float" in dtype for dtype in self.dtypes)


class Option:
    """An option of a table."""

    def __init__(self, fields: Dict[str, Any]) -> None:
        self.name: str = fields["name"]
        self.meaning: str = fields["meaning"]
        self.kind: str = fields["kind"]
        self.default: Any = fields["default"]
        self.otherwise: str = fields["otherwise"]
        self.needed: bool = fields["needed"]
        self.choices: List[str] = fields["choices"]
        self.expected: str = fields["expected"]
        self.has_rule = bool(fields["rule"]) or fields["low"] is not None or fields["high"] is not None

    @property
    def may_be_none(self) -> bool:
        return self.default is None and not self.needed

    def number(self, value: Any) -> Any:
        """The value in expressions: 0 if the operator decides, or the index of a choice."""
        if value is None:
            return 0
        if self.kind == "dtype":
            return 1
        if self.kind == "choice":
            return self.choices.index(value) if value in self.choices else 0
        return int(value) if isinstance(value, float) else value


class Table:
    """An operator, with its arguments in the order in which the module takes them."""

    def __init__(self, number: int, fields: Dict[str, Any]) -> None:
        self.number = number
        self.name: str = fields["name"]
        self.doc: str = fields["doc"]
        self.source: str = fields["source"]
        self.inputs = [Tensor(each) for each in fields["inputs"]]
        self.outputs = [Tensor(each) for each in fields["outputs"]]
        self.options = [Option(each) for each in fields["options"]]
        self.dims: List[str] = fields["dims"]
        self.derived: List[Tuple[str, Any]] = fields["derived"]
        self.gradient: str = fields["gradient"]
        self.no_gradient: str = fields["no_gradient"]
        self.composed: bool = fields["composed"]
        self.flops: Any = fields["flops"]
        # Argument, what is expected, remedy, and the condition; None where no expression says it.
        self.rules: List[Tuple[str, str, str, Any]] = fields["rules"]
        self.examples: List[Tuple[str, str]] = fields["examples"]

    def input(self, name: str) -> Optional[Tensor]:
        return next((each for each in self.inputs if each.name == name), None)

    def option(self, name: str) -> Optional[Option]:
        return next((each for each in self.options if each.name == name), None)

    @property
    def written(self) -> List[str]:
        """Names of the inputs that the operator updates in place."""
        return [each.name for each in self.inputs if each.written]

    @property
    def result_name(self) -> str:
        """The name of the class of results, such as RmsNormBackwardResult."""
        return "".join(word.capitalize() for word in self.name.split("_")) + "Result"


class _Values(Dict[str, Any]):
    """Values by name. Derived values are computed on demand: with symbolic extents, an unnecessary comparison would add
    a guard to the traced graph."""

    def __init__(self) -> None:
        self.derived: Dict[str, Any] = {}

    def __missing__(self, name: str) -> Any:
        self[name] = evaluate(self.derived[name], self)
        return self[name]


class Dims:
    """The values of dims, options and derived names in a call; extents may be symbolic.

    The library refuses wrong calls; ``solved`` is False if extents cannot be determined.
    """

    def __init__(self, table: Table, shapes: Sequence[Optional[Sequence[Any]]], options: Sequence[Any]) -> None:
        self.table = table
        self.values = _Values()
        self.values.update((o.name, o.number(value)) for o, value in zip(table.options, options))
        self.values.update((x.name, int(shape is not None)) for x, shape in zip(table.inputs, shapes))
        self.leading: Tuple[Any, ...] = ()
        self._waiting: List[Tuple[Any, Any]] = []
        self._repeated: set[str] = set()
        self.solved = True
        for x, shape in zip(table.inputs, shapes):
            if shape is not None:
                self._bind(x, tuple(shape))
        self._solve()
        self._missing = {name for name in table.dims if name not in self.values}
        self.values.update(dict.fromkeys(self._missing, 1))
        if self.solved:
            self.values.derived.update(table.derived)

    def shape(self, output: Tensor) -> Tuple[Any, ...]:
        result: List[Any] = []
        for item in output.dims(self.values):
            if item["leading"]:
                result.extend(self.leading)
            elif not item["optional"] or item["extent"] not in self._missing:
                result.append(evaluate(item["extent"], self.values))
        return tuple(result)

    def has(self, output: Tensor) -> bool:
        """Whether the call has this output."""
        return output.when is None or bool(evaluate(output.when, self.values))

    def _bind(self, x: Tensor, shape: Tuple[Any, ...]) -> None:
        items = x.dims(self.values)
        leads = bool(items) and items[0]["leading"]
        optional = sum(item["optional"] for item in items)
        if len(shape) < len(items) - 1 if leads else len(shape) not in (len(items), len(items) - optional):
            self.solved = False
            return
        count = len(shape) - len(items) + 1
        if leads:
            self._lead(shape[:count])
            items, shape = items[1:], shape[count:]
        elif len(shape) < len(items):
            items = [item for item in items if not item["optional"]]
        for item, extent in zip(items, shape):
            self._extent(item, extent)

    def _lead(self, leading: Tuple[Any, ...]) -> None:
        if "rows" in self.values:
            return
        self.leading, rows = leading, 1
        for extent in leading:
            rows = rows * extent
        self.values["rows"] = rows

    def _extent(self, item: Dict[str, Any], extent: Any) -> None:
        name = item["extent"]
        if not isinstance(name, str):
            self._waiting.append((name, extent))
        elif name not in self.values:
            self.values[name] = extent
            if item["repeats"]:
                self._repeated.add(name)
        elif name in self._repeated and item["repeats"] and self.values[name] == 1:
            self.values[name] = extent

    def _solve(self) -> None:
        """Solves extents that are sums or products with one unknown name."""
        while self._waiting and self.solved:
            left = [each for each in self._waiting if not self._solve_one(*each)]
            self.solved = len(left) < len(self._waiting)
            self._waiting = left

    def _solve_one(self, expression: Any, extent: Any) -> bool:
        unknown = {name for name in names_of(expression) if name not in self.values}
        if not unknown:
            return True
        operation, *args = expression
        if len(unknown) > 1 or len(args) != 2 or not any(isinstance(x, str) and x in unknown for x in args):
            return False
        left = isinstance(args[0], str) and args[0] in unknown
        known = evaluate(args[1 if left else 0], self.values)
        if operation == "+":
            value = extent - known
        elif operation == "-":
            value = extent + known if left else known - extent
        elif operation == "*":
            value = 1 if isinstance(known, int) and known == 0 else extent // known
        else:
            return False
        self.values[unknown.pop()] = value
        return True


def names_of(expression: Any) -> set[str]:
    if isinstance(expression, str):
        return {expression}
    if isinstance(expression, int):
        return set()
    if expression[0] == "is":
        return {expression[1]}
    return set().union(*(names_of(x) for x in expression[1:]))


tables: Dict[str, Table] = {
    fields["name"]: Table(number, fields) for number, fields in enumerate(_tegula.tables())
}
