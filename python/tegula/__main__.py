"""The command ``tegula`` of the package, also as ``python -m tegula``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_tool = Path(__file__).parent / "_sdk" / "bin" / "tegula"


def main() -> None:
    """Replaces this process by the tool, with the same arguments."""
    if not _tool.exists():
        sys.exit(
            "tegula: this package was built without the command, around the library of another build. Use the "
            "command of that build, or install the package from the clone: pip install ."
        )
    if not os.access(_tool, os.X_OK):  # as some installers leave it
        _tool.chmod(0o755)
    os.execv(_tool, ["tegula", *sys.argv[1:]])


if __name__ == "__main__":
    main()
