// The program of a product whose left matrix has two values of each four along its rows.
#pragma once
#include "ops/pieces/plan.hpp"
#include "ops/pieces/product_table.hpp"
#include "ops/products/epilogue.hpp"

namespace tegula::ops {

// Along k, that a piece of metadata of 16 bytes describes.
inline constexpr int columns_of_piece = 8 * bytes_of_piece;

struct SparseGemmInstance {
  DType type = bf16, out = bf16;
  bool transpose_b = false, transpose_out = false;
  ProductEpilogue epilogue = {};
  std::optional<DType> dense = {};  // of tiles, where the matrix is expanded first and multiplied as that
  GemmTiles tiles = {};
  bool by_threads = false;  // metadata are loaded, whose rows are multiples of 16 bytes
  // Rows that the copy engine does not take: of operands they are copied first, of the result written last.
  bool pad_left = false, pad_b = false, pad_out = false;
  DType sums() const { return type == i8 ? i32 : f32; }
  auto fields() const {
    return std::tuple(type, labelled("out", out), labelled("dense", dense), labelled("tb", transpose_b),
                      labelled("tout", transpose_out), epilogue, tiles, labelled("threads", by_threads),
                      labelled("pa", pad_left), labelled("pb", pad_b), labelled("pout", pad_out));
  }
};

lang::Kernel sparse_gemm_program(const SparseGemmInstance& c);

}  // namespace tegula::ops
