// Copies that a scan makes itself: it reads the rows of a tensor in place of a tile that a copy fills for it
// alone, and writes its results to the rows of a tensor in place of a tile that is only copied there. Of one
// tensor it does not do both: results would come before elements further on are read.
#pragma once
#include <unordered_map>

#include "codegen/tiles.hpp"

namespace tegula::codegen {

struct ScannedCopies {
  ir::Stmt in, out;  // null where there is none
};

// By the statement of the scan. Tensors that are written must be apart from others.
using CopiesOfScans = std::unordered_map<const ir::StmtNode*, ScannedCopies>;
CopiesOfScans copies_of_scans(const ir::Body& body, const TileUses& uses);

}  // namespace tegula::codegen
