// Which fragments the copy engine stores, and which threads store by rows.
#pragma once
#include <optional>

#include "passes/cuda/infer_layouts.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

inline constexpr int store_buffers = 2;  // a warp group
inline constexpr int store_rows = 64;
inline constexpr int row_bytes = 128;

// The rows that a warp group holds together, and as many columns as a row of 128 bytes has, at a time: they
// are put into shared memory, and stored from there.
struct TensorStore {
  std::vector<int> box;  // elements along each dimension of the tensor, the last one left out
  int rows = 0, columns = 0;
  int pack = 1;  // rows of the fragment that share a coordinate of the first axis
  // The fragment is stored transposed: a warp group's rows are columns of the tensor, and a box has all rows.
  bool transposed = false;
};

// For the sum of a wgmma that is divided into these parts, whole, transposed, or reshaped to [rows / pack,
// pack, columns].
std::optional<TensorStore> plan_store(const ir::View& from, const ir::View& to,
                                      const layout::Division& parts);
// Bytes of a warp group's buffers for such a fragment.
std::int64_t staging_bytes(const ir::View& from);
inline constexpr int quad_columns = 32;  // that the four threads of a row write with one instruction

// Where a loop stores the sum of a wgmma of which warp groups have rows, or of 64 rows columns, each element
// rounded to 16 bits, and rows begin at multiples of 16 bytes: in a workspace, which is without holes, or
// in a tensor that the copy engine could take. `group`: the number of the warp group that runs the program
// for its columns, if each does.
const ir::Access* plan_row_store(const ir::Stmt& s, const Layouts& layouts, int threads,
                                 const CudaTarget& target, const ir::VariablePtr& group = nullptr);

// Holds where nothing of the tile is cut off but what is outside the tensor, which is not asked where
// limits do not matter, and where boxes can begin.
ir::Expr can_transfer(const ir::View& to, const ir::View& tile, const Loc& at, bool limits_matter = true);

}  // namespace tegula::passes
