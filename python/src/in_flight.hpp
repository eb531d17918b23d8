// Arrays that a GPU may still use after the call has returned. Those of a library that tells its stream are
// freed in the order of that stream; those of others, such as JAX, must not go before the work is done.
#pragma once
#include <nanobind/nanobind.h>

#include <vector>

#include "tegula/stream.hpp"

namespace tegula::python {

// Keeps the objects until the work that the stream has now is done, and lets go of earlier ones whose work
// is.
void keep_until_done(const Stream& stream, std::vector<nanobind::object> objects);

}  // namespace tegula::python
