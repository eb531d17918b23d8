"""Tests that take turns: `scripts/test` runs one part of 48, which TEGULA_TEST_ROWS names."""

import os
import string

PARTS = string.ascii_lowercase + string.ascii_uppercase[:22]


def sixth(items, part=None):
    """Those of the part, which every sixth part has; all where none is named."""
    items = list(items)
    part = part or os.environ.get("TEGULA_TEST_ROWS", "")
    if part == "" or part not in PARTS:
        return items
    return items[PARTS.index(part) % 6 :: 6]
