// Numbers of rows that come in a tile beside the operands of products, such as the scales of A: they are read
// into registers while the first product of a step runs, not when its sum is there.
//
// A step  product to s, work { … s(i, j) * (scale(i) * x) }, product to s, work { … scale(i + 128) … }
// becomes
//   product to s, { a(i) = scale(i) * x, b(i) = scale(i + 128) * x }, work { … s(i, j) * a(i) }, …
// The one statement that reads the tile has all that it reads in registers, so its slot is let go at once.
#pragma once
#include "passes/cuda/specialize_roles.hpp"

namespace tegula::passes {

// The step of a loop with such reads in a statement of their own; unchanged if its work reads any other
// element of these tiles.
ir::Body rows_ahead(const ir::Body& step, const Roles& roles);

// Whether a loop of two sums is faster with such reads. Rows that are read early wait for what threads bring,
// element by element; and those of several products take registers side by side. Measured: 128 columns 0 to
// 2 % faster, 96 4 %; two products, or scales that lie across the tensor's rows, 2 % slower.
bool gain_ahead(const ir::For& loop, const Roles& roles);

// The fragments of rows that hold all that the statement reads; none if it does anything else.
std::vector<ir::BufferPtr> kept_rows(const ir::Stmt& stmt);

}  // namespace tegula::passes
