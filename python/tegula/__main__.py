"""The command ``tegula`` of the package, also as ``python -m tegula``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_tool = Path(__file__).parent / "_sdk" / "bin" / "tegula"


def main() -> None:
    """Becomes the tool, with the arguments of this program."""
    if not _tool.exists():
        sys.exit(
            "tegula: this package was built without the command. Install a wheel that has it, or build one by "
            "scripts/wheel, or with the packages libcli11-dev and libpng-dev:\n"
            '  pip install --config-settings=cmake.define.TEGULA_TOOL=true "path of the clone"'
        )
    if not os.access(_tool, os.X_OK):  # as some installers leave it
        _tool.chmod(0o755)
    os.execv(_tool, ["tegula", *sys.argv[1:]])


if __name__ == "__main__":
    main()
