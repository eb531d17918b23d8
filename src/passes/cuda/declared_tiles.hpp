// Where tiles are declared.
#pragma once
#include <algorithm>

#include "ir/ir.hpp"

namespace tegula::passes {

// The statement of the body that declares the tile, not one inside of a loop or a branch; null if there is
// none.
inline ir::Stmt declaration_of(const ir::Body& body, const ir::BufferPtr& tile) {
  const auto found = std::find_if(body.begin(), body.end(), [&](const ir::Stmt& s) {
    const auto* declared = ir::as<ir::Declare>(s);
    return declared && declared->tile == tile;
  });
  return found == body.end() ? nullptr : *found;
}

}  // namespace tegula::passes
