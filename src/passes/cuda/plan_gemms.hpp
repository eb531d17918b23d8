// Which instruction multiplies, and how the warps of a block divide the product.
#pragma once
#include <optional>
#include <utility>
#include <vector>

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
  bool swapped = false;         // the transpose is multiplied: `parts` are of that, B^T · A^T
  std::vector<int> columns;     // of the instructions by which a warp group multiplies its own columns
  bool a_in_registers = false;  // A is columns of a fragment with the layout `operand_a`
  layout::OwnBlock own;         // of a thread, by multiply-add from shared memory
  layout::Layout accumulator, operand_a;
  Reason fallback;  // why it is not the best instruction of the target; empty if it is
};

// A function of the statement alone, so that every pass finds the same. `threads` are those that run it.
GemmPlan plan_gemm(const ir::Gemm& gemm, int threads, const CudaTarget& target);

// Whether the products of a step take operands at so many places of shared memory that the assembler, which
// finds them in front of the loop and keeps them from product to product, keeps some in local memory.
bool takes_operands_apart(const ir::For& step, int threads, const CudaTarget& target);

// Floats of 16 and of 8 bits, and integers of 8 bits.
bool has_tensor_cores(DType type);
// Those, and f32 where the product may round it.
bool is_on_tensor_cores(const ir::Gemm& gemm);

// Whether sums of tensor cores, which have less than f32, are to be added to others every 128 products; and
// whether tensor cores keep such sums, as those of warp groups do.
bool asks_for_promotion(const ir::Gemm& gemm);
bool needs_promotion(const ir::Gemm& gemm, const GemmPlan& plan);

// The number of accumulators, of 64 rows and the columns of an instruction, that a warp group has of the
// product.
int accumulators(const ir::Gemm& gemm, const GemmPlan& plan);

// What stands on the left and on the right in the instruction.
std::pair<ir::View, ir::View> instruction_operands(const ir::Gemm& gemm, const GemmPlan& plan);

// The first of the columns of a fragment that the view shows, with all rows; nothing if it shows another part
// than steps of 16 columns.
std::optional<std::int64_t> columns_of_fragment(const ir::View& view);

// Whether rows of A, or columns of B, run along k in the tile.
bool lies_along_k(const ir::Gemm& gemm, const ir::View& operand);

// The whole matrix, or its transpose.
bool is_matrix(const ir::View& view);
bool is_transposed(const ir::View& view);

}  // namespace tegula::passes
