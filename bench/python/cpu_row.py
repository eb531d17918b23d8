"""A row of cpu_table.py, and what rows have in common."""

import dataclasses
from typing import Callable

import torch

BYTES = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}


@dataclasses.dataclass
class Row:
    name: str
    call: Callable
    rival: Callable
    check: Callable  # gives results and what they should be
    aim: float
    work: float = 1
    rival_work: float = 1
    tolerance: float = 1e-4
    group: str = ""


def against(call, expected):
    """A check of one result, which a call may give together with others."""

    def check():
        result = call()
        return [result if isinstance(result, torch.Tensor) else result[0]], [expected()]

    return check


def copy_of(count):
    """A copy that reads and writes `count` bytes in all, into memory that it allocates, as operators do."""
    source = torch.randn(int(count) // 8)
    return source.clone


def read_of(count):
    """Reads `count` bytes."""
    x = torch.randn(int(count) // 4)
    return lambda: torch.dot(x, x)
