"""The examples of the pages run as they stand."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    f"{page} {number}": text
    for page in ("README.md", "docs/python.md", "docs/python-kernels.md", "docs/pytorch.md")
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    try:
        exec(compile(EXAMPLES[name], name, "exec"), {})
    except ModuleNotFoundError as error:
        if error.name == "tegula":
            raise
        pytest.skip(f"{error.name} is not installed")
