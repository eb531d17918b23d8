// What loops over elements access, and between which limits.
#pragma once
#include "ir/stmt.hpp"

namespace tegula::codegen {

inline constexpr int most_bytes = 16;  // of an access

// What a load or a store accesses; null of other statements.
const ir::Access* access_of(const ir::Stmt& s);
// The coordinate with the smallest or the largest values of the loop's indices.
ir::Expr corner(const ir::For& n, const ir::Expr& e, bool largest);
// Where the row ends for the access: at the tensor's end or that of a view.
const ir::Expr& end_of_row(const ir::Access& access);
bool defines(const ir::Body& body, const ir::VariablePtr& v);

}  // namespace tegula::codegen
