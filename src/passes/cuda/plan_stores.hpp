// Which fragments the copy engine stores.
#pragma once
#include <optional>

#include "passes/cuda/infer_layouts.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

inline constexpr int store_buffers = 2;  // a warp group
inline constexpr int store_rows = 64;
inline constexpr int store_warps = 4, store_warp_rows = store_rows / store_warps;
inline constexpr int row_bytes = 128;

// The rows that a warp group holds together, and as many columns as a row of 128 bytes has, at a time: they
// are put into shared memory, and stored from there.
struct TensorStore {
  std::vector<int> box;  // elements along each dimension of the tensor, the last one left out
  int rows = 0, columns = 0;
  int pack = 1;  // rows of the fragment that share a coordinate of the first axis
  // The fragment is stored transposed: rows that a warp group holds together are columns of the tensor, and
  // `across` boxes together have all rows. They may have more: the last one begins earlier then, and stores
  // `rows_twice` rows that the one before it stores, too. Such sums are never added.
  bool transposed = false;
  int across = 1, rows_twice = 0;
  bool by_warps = false;  // a box has what a warp holds, which stores it by itself
};

// How warp groups hold the sum of a product: the parts are of its transpose where that is multiplied.
struct HeldSum {
  layout::Division parts;
  bool turned = false;

  friend bool operator==(const HeldSum& a, const HeldSum& b) {
    return a.parts.along_m == b.parts.along_m && a.parts.along_n == b.parts.along_n && a.turned == b.turned;
  }
};

// For the sum of a wgmma, whole, transposed, or reshaped to [rows / pack, ..., columns], where the dimensions
// between have `pack` elements.
std::optional<TensorStore> plan_store(const ir::View& from, const ir::View& to, const HeldSum& sum,
                                      bool by_warps = false);
// Whether the boxes of such a copy can be divided among the warps that hold their rows.
bool can_be_stored_by_warps(const ir::Copy& copy);
// Whether what the statement stores, a copy of a fragment or its accumulation, is transposed on its way.
bool is_stored_transposed(const ir::Stmt& s);
// How many boxes have all rows of it where it is stored transposed, and whether each is staged by itself.
int boxes_across(const ir::Stmt& s);
bool are_staged_apart(const ir::Stmt& s);
// Bytes of a warp group's buffers for such a statement.
std::int64_t staging_bytes(const ir::Stmt& s);

// Holds where nothing of the tile is cut off but what is outside the tensor, which is not asked where
// limits do not matter, and where boxes can begin.
ir::Expr can_transfer(const ir::View& to, const ir::View& tile, const Loc& at, bool limits_matter = true);

}  // namespace tegula::passes
