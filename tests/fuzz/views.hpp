// Parts of views, made as the language's slice(), at(), T() and reshape() make them.
#pragma once
#include "ir/view.hpp"

namespace tegula::fuzz {

// The sum, without needless zeros.
ir::Expr plus(const ir::Expr& a, const ir::Expr& b);
void slice_range(ir::View& view, int axis, const ir::Expr& begin, const ir::Expr& end);
// The axis is fixed at an index and disappears.
void fix(ir::View& view, int axis, const ir::Expr& index);
void shift(ir::View& view, int axis, const ir::Expr& offset);
void swap_axes(ir::View& view, int a, int b);
ir::View reshaped(const ir::BufferPtr& buffer, const std::vector<ir::Expr>& shape);

}  // namespace tegula::fuzz
