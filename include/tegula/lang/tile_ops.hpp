// Operations on whole tiles. One with a destination adds to it (gemm, reductions, atomics) or overwrites it
// (copy, fill, gather); one that returns a Fragment makes a new one.
#pragma once
#include <optional>

#include "tegula/lang/control.hpp"

TEGULA_API_BEGIN
namespace tegula::lang {

// Where a copy reads: a tile, or a tensor window.
struct Source {
  ViewPtr view;
  Source(const Window& window) : view(window.view) {}
  Source(const Tensor& tensor) : view(tensor.view()) {}
  Source(const Tile& tile) : view(tile.view()) {}
};

// Where a copy writes: a tile that is not const, or a tensor window.
struct Target {
  ViewPtr view;
  Target(const Window& window) : view(window.view) {}
  Target(const Tensor& tensor) : view(tensor.view()) {}
  Target(Tile& tile) : view(tile.view()) {}
  Target(Tile&& tile) : view(tile.view()) {}
};

struct CopyOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  double fill = 0;  // what elements outside the tensor view read as
};

// Tensor window to tile, tile to tensor window, or tile to tile. Ranks must be equal; the element type is
// converted within its kind (floats, integers, u32, boolean). Elements outside a tensor view are not
// written.
void copy(const Source& from, const Target& to, CopyOptions options = {}, Loc at = Loc::current());
// A new Fragment with the contents of the window, in its element type or in `type`.
[[nodiscard]] Fragment load(const Source& from, std::initializer_list<int> shape, Loc at = Loc::current());
[[nodiscard]] Fragment load(const Source& from, std::initializer_list<int> shape, DType type,
                            Loc at = Loc::current());
[[nodiscard]] Fragment clone(const Tile& tile, Loc at = Loc::current());

// All elements become `value`, or 0 (false).
void fill(const Target& tile, const Operand& value, Loc at = Loc::current());
void clear(const Target& tile, Loc at = Loc::current());

namespace detail {
void gather(const Tensor& from, const std::function<Expr(Index)>& row, const Target& to, Loc at);
}  // namespace detail

// tile(i, …) = from(row(i), …); `rows` is a vector of integers, or a function of the index. A row outside the
// view, such as -1, reads as zeros.
template <std::invocable<Index> F>
requires(!std::derived_from<F, Tile>) void gather(const Tensor& from, F row, const Target& tile,
                                                  Loc at = Loc::current()) {
  detail::gather(
      from, [&](Index i) -> Expr { return row(i); }, tile, at);
}
void gather(const Tensor& from, const Tensor& rows, const Target& tile, Loc at = Loc::current());
void gather(const Tensor& from, const Tile& rows, const Target& tile, Loc at = Loc::current());

// How the warps of a block divide a product: each has some of its rows, some of its columns, or a rectangle.
enum class Warps { automatic, rows, columns, square };

// How sums of 8-bit products are kept: promoted to f32 every 128 products, or in the tensor core throughout.
enum class Accumulate { promoted, tensor_core };

// How f32 operands are multiplied: as they are; rounded to tf32, which has 11 bits, on tensor cores; or on
// tensor cores as sums of two such numbers each, which keeps 21 bits.
enum class Precision { ieee, tf32, tf32x3 };

// `accumulate` is part of the meaning for 8-bit operands, and `precision` for f32; the others are hints.
struct GemmOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  Accumulate accumulate = Accumulate::promoted;
  Precision precision = Precision::ieee;
  Warps warps = Warps::automatic;
  // Whether the transposed product is computed (by wgmma), and whether `a` is read from registers.
  std::optional<bool> swap = {}, from_registers = {};
};

// c += a · b with a [m, k], b [k, n] of one type; c [m, n] is f32 (f64 for f64, i32 for integers). Transposed
// operands are a.T() and b.T(). To overwrite, declare c with 0 or clear it: the two are merged.
void gemm(const Tile& a, const Tile& b, Fragment& c, GemmOptions options = {}, Loc at = Loc::current());

void gemm(const Tile&, const Tile&, const Shared&) = delete;  // the sum is a Fragment: gemm(a, b, c); copy(c, shared);

// Along dimension `dim`; −1 is the last one. With `into`, which has the other dimensions, combine with what
// it holds: running maximum, running sum. absmax is the largest magnitude; any and all are of booleans.
void reduce_sum(const Tile& tile, Fragment& into, int dim = -1, Loc at = Loc::current());
void reduce_max(const Tile& tile, Fragment& into, int dim = -1, Loc at = Loc::current());
void reduce_min(const Tile& tile, Fragment& into, int dim = -1, Loc at = Loc::current());
void reduce_absmax(const Tile& tile, Fragment& into, int dim = -1, Loc at = Loc::current());
void reduce_any(const Tile& tile, Fragment& into, int dim = -1, Loc at = Loc::current());
void reduce_all(const Tile& tile, Fragment& into, int dim = -1, Loc at = Loc::current());
[[nodiscard]] Fragment reduce_sum(const Tile& tile, int dim = -1, Loc at = Loc::current());
[[nodiscard]] Fragment reduce_max(const Tile& tile, int dim = -1, Loc at = Loc::current());
[[nodiscard]] Fragment reduce_min(const Tile& tile, int dim = -1, Loc at = Loc::current());
[[nodiscard]] Fragment reduce_absmax(const Tile& tile, int dim = -1, Loc at = Loc::current());
[[nodiscard]] Fragment reduce_any(const Tile& tile, int dim = -1, Loc at = Loc::current());
[[nodiscard]] Fragment reduce_all(const Tile& tile, int dim = -1, Loc at = Loc::current());

// Where the largest, or smallest, element along `dim` stands: i32, the first of equal ones. NaN does not
// count; where all are NaN, 0.
[[nodiscard]] Fragment reduce_argmax(const Tile& tile, int dim = -1, Loc at = Loc::current());
[[nodiscard]] Fragment reduce_argmin(const Tile& tile, int dim = -1, Loc at = Loc::current());

struct ScanOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  int dim = -1;
  bool exclusive = false;  // without the element itself; the first is 0, or what max and min begin from
  bool reverse = false;    // from the last element down
};

// A new Fragment of the same shape: the sum, maximum or minimum of the elements up to each along a dimension.
[[nodiscard]] Fragment scan_sum(const Tile& tile, ScanOptions options = {}, Loc at = Loc::current());
[[nodiscard]] Fragment scan_max(const Tile& tile, ScanOptions options = {}, Loc at = Loc::current());
[[nodiscard]] Fragment scan_min(const Tile& tile, ScanOptions options = {}, Loc at = Loc::current());
// By segments: an element where `starts`, of booleans and of that shape, is true leaves out all before it.
[[nodiscard]] Fragment scan_sum(const Tile& tile, const Tile& starts, ScanOptions options = {},
                                Loc at = Loc::current());
[[nodiscard]] Fragment scan_max(const Tile& tile, const Tile& starts, ScanOptions options = {},
                                Loc at = Loc::current());
[[nodiscard]] Fragment scan_min(const Tile& tile, const Tile& starts, ScanOptions options = {},
                                Loc at = Loc::current());

// Writes every element with its coordinates, in their order, from every executor: `label[2, 5] = 0.5`.
void print(const std::string& label, const Tile& tile, Loc at = Loc::current());

// element = op(element, value), indivisibly; float sums are unordered. Elements of a tensor or a Shared: i32,
// i64, u32, and but for `or` and `and` also f16, bf16, f32, f64.
void atomic_add(Element&& element, const Operand& value);
void atomic_max(Element&& element, const Operand& value);
void atomic_min(Element&& element, const Operand& value);
void atomic_or(Element&& element, const Operand& value);
void atomic_and(Element&& element, const Operand& value);

struct AccumulateOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  // With an order, all contributions to an element are added in increasing order: the sum is deterministic.
  std::optional<Expr> order = {};
  // A promise that GPUs need: the contributions to an element have consecutive numbers 0, 1, 2, …, which
  // increase with the blocks of the grid. The window begins at multiples of the tile's extents.
  bool consecutive = false;
  // With consecutive numbers: contribution 0 overwrites the window, so that it needs no clearing.
  bool overwrite = false;
};

// window += tile, element by element, indivisibly.
void accumulate(const Window& window, const Tile& tile, AccumulateOptions options = {},
                Loc at = Loc::current());
void atomic_add(const Window& window, const Tile& tile, Loc at = Loc::current());
void atomic_max(const Window& window, const Tile& tile, Loc at = Loc::current());
void atomic_min(const Window& window, const Tile& tile, Loc at = Loc::current());

}  // namespace tegula::lang
TEGULA_API_END
