// What loops over elements access, and between which limits.
#pragma once
#include <optional>

#include "ir/kernel.hpp"

namespace tegula::codegen {

inline constexpr int most_bytes = 16;  // of an access

// What a load or a store accesses; null of other statements.
const ir::Access* access_of(const ir::Stmt& s);
// The coordinate with the smallest or the largest values of the loop's indices.
ir::Expr corner(const ir::For& n, const ir::Expr& e, bool largest);
// Where the row ends for the access: at the tensor's end or that of a view.
const ir::Expr& end_of_row(const ir::Access& access);
bool defines(const ir::Body& body, const ir::VariablePtr& v);
// Of a workspace, which is contiguous, if the extents behind the dimension are constants.
std::optional<std::int64_t> stride_of_workspace(const ir::Buffer& tensor, std::size_t dim);
// A workspace whose rows, wherever they are, begin at multiples of an access.
bool has_whole_rows(const ir::Buffer& tensor);
// Whether the grid brings rows of any length to a workspace, or from it to where they belong.
bool copies_rows(const ir::Grid& grid);

}  // namespace tegula::codegen
