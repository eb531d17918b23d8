"""Prints the types of the functions that follow from tables, for checkers of types and editors.

    python python/stubs.py [--check]

Writes the stubs beside the package's sources; with --check it only says whether they are what the tables say.
"""

import sys
from pathlib import Path

from tegula._printing import documentation, head, result_class
from tegula._tables import tables

PACKAGE = Path(__file__).parent / "tegula"
BEGIN = """# Printed from the tables of the operators by python/stubs.py.
from typing import Any, Callable, Literal, NamedTuple

"""


def function(text, doc):
    lines = "".join(f"    {line}\n" if line else "\n" for line in doc.splitlines())
    return f'{text}    """{lines[4:]}    """\n'


def numpy_stub():
    text = BEGIN + "from ._arrays import Array\n\nfunctions: dict[str, Callable[..., Any]]\n"
    names = list(tables) + [table.result_name for table in tables.values() if len(table.outputs) > 1]
    text += f"__all__ = [{', '.join(repr(name) for name in names)}]\n".replace("'", '"')
    for table in tables.values():
        text += "\n" + result_class(table, "Any") + ("\n" if len(table.outputs) > 1 else "")
        text += function(head(table, "Array", table.options), documentation(table, table.options))
    return text


def torch_stub():
    from tegula._printing import torch_documentation, torch_options

    text = BEGIN + "from torch import Tensor\n\nfunctions: dict[str, Callable[..., Any]]\n"
    text += f"__all__ = [{', '.join(repr(name) for name in tables)}]\n".replace("'", '"')
    for table in tables.values():
        text += "\n" + result_class(table, "Tensor") + ("\n" if len(table.outputs) > 1 else "")
        options = torch_options(table, tables)
        text += function(head(table, "Tensor", options, outputs=False), torch_documentation(table, options))
    return text


def stubs():
    return {PACKAGE / "_functions.pyi": numpy_stub(), PACKAGE / "torch" / "_functions.pyi": torch_stub()}


def main():
    texts = stubs()
    if "--check" in sys.argv[1:]:
        old = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
        for path in old:
            print(f"{path} is not what the tables say; run python python/stubs.py")
        return 1 if old else 0
    for path, text in texts.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
