// Fragments of which a loop iteration accesses several elements: butterflies, rotations, transforms.
//
// If all extents are powers of two, such a loop needs certain bits of the element's number to number
// registers (element_bits.hpp). The statements that use a fragment are divided into runs for which the
// registers suffice. Each run has its own fragment in the layout that it needs, and between two runs the
// elements are exchanged between threads once. Without this, every such loop would go through shared memory
// and back.
#pragma once
#include <unordered_map>

#include "ir/kernel.hpp"
#include "layout/layout.hpp"

namespace tegula::passes {

// How fragments are held, whatever else meets them.
using HeldFragments = std::unordered_map<const ir::Buffer*, layout::Layout>;

// Returns the body of a grid without roles and products with one fragment per run and copies between them.
ir::Body exchange_registers(const ir::Grid& grid, HeldFragments& held);

}  // namespace tegula::passes
