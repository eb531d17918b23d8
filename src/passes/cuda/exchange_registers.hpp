// Fragments of which an iteration of a loop touches several elements: butterflies, rotations, transforms.
//
// Where all extents are powers of two, such a loop needs certain bits of the elements' number to count
// registers (element_bits.hpp). The statements that use a fragment are cut into runs for which the registers
// suffice; each run has a fragment of its own, held as it needs, and between two runs the elements change
// their threads once. Without that every such loop would go through shared memory, there and back.
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
