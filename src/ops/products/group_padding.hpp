// Grouped products of tensors whose rows begin off 16 bytes, which the copy engine does not take: operands
// are copied first, and tiles of the result are stored apart and written last.
#pragma once
#include "ops/products/grouped_walk.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

struct GroupPadding {
  bool a = false, b = false, out = false;
  auto fields() const { return std::tuple(labelled("pa", a), labelled("pb", b), labelled("pto", out)); }
};

// What is needed of rows [m, k] or [groups, m, k], matrices of three dims and rows [m, n] or [groups, m, n];
// nothing on other targets. `type` is that of tiles: products of f32 load by elements in any case.
GroupPadding padding_of(Launch& launch, DType type, const TensorRef& a, const TensorRef& b,
                        const TensorRef& out);

// The same of two matrices of rows whose products over these rows are matrices [groups, …].
GroupPadding padding_of_matrices(Launch& launch, DType type, const TensorRef& a, const TensorRef& b,
                                 const TensorRef& out);

// What is needed of the rows of an operand and of the result, whatever the matrices are.
GroupPadding padding_of_rows(Launch& launch, const TensorRef& a, const TensorRef& out);

// Where tiles of the result are stored: in it, or in a workspace.
lang::Tensor stored_rows(const lang::Tensor& out, bool apart);
// What is stored apart of a matrix, or of a batch of them.
void write_matrices(const lang::Tensor& stored, const lang::Tensor& out);
// What a walk's tiles of `tile_rows` have stored apart.
void write_rows(const GroupedWalk& walk, int tile_rows, const lang::Tensor& stored, const lang::Tensor& out);

}  // namespace tegula::ops
