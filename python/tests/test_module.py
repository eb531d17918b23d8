"""The extension module itself."""

import shutil
import subprocess

import pytest

from tegula import _tegula


def test_exports_its_entry_alone():
    """Another C++ runtime, as one that is linked into a wheel beside PyTorch's, would share its symbols otherwise."""
    if shutil.which("nm") is None:
        pytest.skip("nm was not found")
    command = ["nm", "-D", "--defined-only", "--format=posix", _tegula.__file__]
    names = [line.split()[0] for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()]
    assert names == ["PyInit__tegula"]
