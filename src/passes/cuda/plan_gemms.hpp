// Which instruction multiplies, and how the warps of a block divide the product.
#pragma once
#include <optional>

#include "ir/stmt.hpp"
#include "layout/fragments.hpp"
#include "passes/planned.hpp"

namespace tegula::passes {

// What the code is compiled for.
struct CudaTarget {
  int architecture = 90;    // 10 · major + minor
  bool copy_engine = true;  // false: for tensors whose addresses or strides it does not take
  bool pairs = false;       // two blocks share loads where they can: for rows off the sectors of the cache

  bool has_wgmma() const { return architecture == 90; }
};

enum class GemmInstruction : std::uint8_t { fma, mma_sync, wgmma };

struct GemmPlan {
  GemmInstruction instruction = GemmInstruction::fma;
  int k = 16;                   // of an instruction of tensor cores
  layout::Division parts;       // among warps, or warp groups
  bool a_in_registers = false;  // A is a fragment with the layout `operand_a`
  layout::Layout accumulator, operand_a;
  Reason fallback;  // why it is not the best instruction of the target; empty if it is
};

// A function of the statement alone, so that every pass finds the same. `threads` are those that run it.
GemmPlan plan_gemm(const ir::Gemm& gemm, int threads, const CudaTarget& target);

// Floats of 16 and of 8 bits.
bool has_tensor_cores(DType type);

// Whether the instruction keeps sums in less than f32: they are to be added to others every 128 products.
bool needs_promotion(const ir::Gemm& gemm, const GemmPlan& plan);

// Of 64 rows and at most 256 columns, that a warp group has of the product.
int accumulators(const ir::Gemm& gemm, const GemmPlan& plan);

// The whole matrix, or its transpose.
bool is_matrix(const ir::View& view);
bool is_transposed(const ir::View& view);

}  // namespace tegula::passes
