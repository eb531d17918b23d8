// How a loop over elements meets a fragment: which of its indices goes over which dimension, and the layouts
// that both must have so that every thread finds its elements in its own registers.
#pragma once
#include <optional>
#include <vector>

#include "ir/stmt.hpp"
#include "layout/layout.hpp"

namespace tegula::passes {

// For each dimension of the fragment the loop's index that goes over all of it; nothing if the access is not
// of this kind.
std::optional<std::vector<int>> loop_axes(const ir::For& loop, const ir::Access& access);
// The layout that a fragment must have to be met in that loop register by register.
layout::Layout projected(const layout::Layout& loop, const std::vector<int>& axes);

// The layout of a loop whose iterations touch several elements of such a fragment, all of them in registers
// of one thread; nothing where there is none.
std::optional<layout::Layout> layout_around(const ir::For& loop, const ir::Access& access,
                                            const layout::Layout& fragment);

// The element accesses of a statement of a parallel loop.
const ir::Access* fragment_access(const ir::Stmt& stmt);

}  // namespace tegula::passes
