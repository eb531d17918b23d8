"""What all tests share."""

import os
import tempfile

# Tests keep kernels in a folder of their own, which ends with them: what an earlier run left in the user's cache decides
# no result. The library reads the variable once, so it is set before anything imports the package.
_kernels = tempfile.TemporaryDirectory(prefix="tegula-kernels-")
os.environ["TEGULA_CACHE_DIR"] = _kernels.name
