// Loops over the rows of tiles, beside those that go over the same rows before: both become one pass.
#pragma once
#include "ir/ir.hpp"

namespace tegula::codegen {

// The statements in an order in which loops over tiles stand behind the last loop over the same rows that
// touches one of their tiles, wherever nothing in between touches what they do. Tiles are declared in time.
ir::Body rows_together(const ir::Body& body);

}  // namespace tegula::codegen
