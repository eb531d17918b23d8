// Helpers to build loops over the elements of views.
#pragma once
#include <functional>

#include "ir/ir.hpp"

namespace tegula::passes {

ir::VariablePtr new_variable(const char* name, DType type, ir::VariableKind kind, const Loc& at);
ir::BufferPtr new_tile(const char* name, ir::Space space, DType type, const std::vector<ir::Expr>& shape,
                       const Loc& at);

// The value converted to what `type` is computed in and rounded to it.
ir::Expr as_stored(const ir::Expr& e, DType type);
// What is outside does not count: the condition under which the element of a tensor view exists.
ir::Expr exists(const ir::Access& access, const Loc& at);

// Statements for an element: its index in the view, and the element itself.
using ElementBody = std::function<ir::Body(const std::vector<ir::Expr>& index, const ir::Access& element)>;
// A parallel loop over all elements of a view. One of a fragment goes over the whole fragment, so that every
// thread meets the registers it holds, and leaves out what the view does not show.
ir::Body over_view(const ir::View& view, const Loc& at, const ElementBody& f);

}  // namespace tegula::passes
