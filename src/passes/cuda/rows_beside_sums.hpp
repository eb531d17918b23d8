// Tiles of 16-bit floats of which loops over a sum of tensor cores take elements along rows. The lanes of a
// warp hold eight rows of such a sum, and rows of 128 bytes or more begin in the same bank: a swizzle keeps
// these rows in banks of their own.
#pragma once
#include "passes/cuda/fragment_forms.hpp"

namespace tegula::passes {

// A fragment counts as a sum if a loop uses it element by element with one.
Buffers tiles_beside_sums(const ir::Body& body);
// Those and turned_tiles(): what is swizzled though no tensor core reads it.
Buffers tiles_with_conflicts(const ir::Body& body);

}  // namespace tegula::passes
