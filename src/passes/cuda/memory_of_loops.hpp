// How loops over elements meet memory.
#pragma once
#include "ir/stmt.hpp"

namespace tegula::passes {

// Whether neighbours along the loop's last index are apart in a row of memory: no piece holds several.
bool is_spread(const ir::For& loop, const ir::Access& access);

// Whether it reads or writes what is no fragment.
bool touches_memory(const ir::For& loop);

// The loop's index that goes along rows of a tensor to which it stores elements, or its last one; -1 where it
// stores none.
int along_stored_rows(const ir::For& loop);

}  // namespace tegula::passes
