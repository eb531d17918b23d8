// Tiles whose rows end within pieces of 16 bytes, and which all threads bring ahead: as runs of memory.
//
// Rows of a contiguous matrix follow each other: those of a tile are one interval of memory. The pieces
// around it are aligned, and come without waiting; the first and the last one have elements of neighbours,
// too. So the tile begins anywhere in its slot, and what reads it takes pieces wherever they begin.
#pragma once
#include <unordered_set>

#include "ir/kernel.hpp"

namespace tegula::passes {

// Bytes of a slot beside those of such a tile: in front of it, for where it begins and for elements of a
// neighbour; behind it, for what is read of the last pieces.
inline constexpr std::int64_t bytes_beside_run = 80, bytes_before_run = 16;
std::int64_t slot_bytes_of_run(const ir::Buffer& tile);

// Whether the copy fills the tile with rows of a tensor that are as long as those of the tile, or with a part
// of one row, and a number of bytes that is known and no multiple of a piece is from one row to the next.
bool is_run(const ir::Copy& copy);
// Whether statements other than those that fill the tile only load elements of it, in loops over elements.
bool is_read_by_elements(const ir::Body& body, const ir::Buffer& tile,
                         const std::unordered_set<const ir::StmtNode*>& fills);
// Whether more than one loop over elements reads such a tile of one row: then threads shift it once.
bool is_read_again(const ir::Body& body, const ir::Buffer& tile);
// Tiles that such loops read beside runs: one copy fills each, and its rows end within pieces, too.
std::unordered_set<const ir::Buffer*> tiles_beside_runs(const ir::Body& body,
                                                        const std::unordered_set<const ir::Buffer*>& runs);

}  // namespace tegula::passes
