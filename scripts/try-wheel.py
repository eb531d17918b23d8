"""What scripts/wheel does with the installed package: an operator, a kernel of Python and one of C++."""

from pathlib import Path

import numpy as np
import tegula

ROOT = Path(__file__).resolve().parents[1]
assert ROOT not in Path(tegula.__file__).parents or "site-packages" in tegula.__file__

x = np.arange(1000, dtype=np.float32)
np.testing.assert_array_equal(tegula.load(ROOT / "examples" / "01_vector_add.cpp").vector_add(x, x), 2 * x)
namespace = {}
source = (ROOT / "examples" / "python" / "lessons.py").read_text()
exec(compile(source, str(ROOT / "examples" / "python" / "lessons.py"), "exec"), namespace)
np.testing.assert_array_equal(namespace["vector_add"]()(x, x), 2 * x)
out, _ = tegula.attention(*np.ones((3, 1, 8, 2, 16), np.float32))
np.testing.assert_allclose(out, 1)
