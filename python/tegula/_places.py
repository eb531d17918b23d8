"""Locations in the user's Python program, which kernels, errors and notes refer to."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import sys
from types import CodeType
from typing import Any, Dict, Optional, Tuple

_package = __name__.partition(".")[0]


def here() -> Tuple[str, str, int, int, int]:
    """File, function, line and column in the innermost function outside this package, and the line of its statement."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _package:
        frame = frame.f_back
    code, line = frame.f_code, frame.f_lineno or 0
    statement = _statements(code.co_filename).get(line, line)
    return code.co_filename, code.co_name, line, _column(code, frame.f_lasti), statement


@functools.lru_cache(maxsize=4096)
def _column(code: CodeType, instruction: int) -> int:
    positions = getattr(code, "co_positions", None)  # from Python 3.11 on
    if positions is None or instruction < 0:
        return 0
    place: Optional[Tuple[Any, ...]] = next(itertools.islice(positions(), instruction // 2, None), None)
    return 0 if place is None or place[2] is None else place[2] + 1


@functools.lru_cache(maxsize=64)
def _statements(file: str) -> Dict[int, int]:
    """Maps the lines of multi-line statements to their first line."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    first: Dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1):
                first[line] = node.lineno
    return first
