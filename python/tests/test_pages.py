"""The examples of the pages run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
EXAMPLES = {
    f"{page} {number}": text
    for page in PAGES
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
}

# What an example that imports nothing goes on from.
TENSORS = """
import torch, tegula.torch
normal = torch.randn
"""
BEFORE = {
    "docs/deepseek-sparse-attention.md 1": "import tegula.torch as tt, torch",
    "docs/gemm-families.md 1": "import torch; n = 4; b = torch.zeros(4, 64, dtype=torch.uint8)",
    "docs/gemm-families.md 2": TENSORS
    + "x, w, scales = normal(16, 256), torch.zeros(32, 64, dtype=torch.uint8), torch.rand(1, 32)",
    "docs/gemm-families.md 4": TENSORS
    + "x, router = normal(32, 64), normal(16, 64); w1, w2 = normal(16, 96, 64), normal(16, 64, 48)",
    "docs/relatives.md 0": TENSORS
    + "q, k, v = (normal(1, 16384, 1, 16) for _ in range(3)); scores = normal(1, 1, 16, 128)",
    "docs/rows.md 0": TENSORS
    + "x, residual, weight = normal(4, 64), normal(4, 64), torch.ones(64); q = normal(1, 4, 2, 32)\n"
    + "cosine = sine = torch.ones(8, 16); positions = torch.arange(4, dtype=torch.int32)[None]\n"
    + "logits, labels = normal(4, 100).requires_grad_(), torch.tensor([1, 2, 3, 4])",
    "docs/sparse-attention.md 0": TENSORS
    + "q = normal(1, 256, 16, 32); k = v = normal(1, 256, 1, 32); gates = torch.rand(1, 256, 16, 3)\n"
    + "x = prompt = normal(1, 100, 1024); next_token = normal(1, 1, 1024)",
    "docs/tuning.md 0": "import numpy, tegula; x = numpy.ones((4, 64), numpy.float32)",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    names = {}
    try:
        for text in (BEFORE.get(name, ""), EXAMPLES[name]):
            exec(compile(text, name, "exec"), names)
    except ModuleNotFoundError as error:
        if error.name == "tegula":
            raise
        pytest.skip(f"{error.name} is not installed")


def test_what_stands_before_an_example_is_used():
    assert BEFORE.keys() <= EXAMPLES.keys()
