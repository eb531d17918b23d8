// Operations on whole tiles. An operation with a destination adds to it (gemm, reductions, atomics) or
// overwrites it (copy, fill, gather); an operation that returns a Fragment creates a new one.
#pragma once
#include <optional>

#include "tegula/lang/control.hpp"

TEGULA_API_BEGIN
namespace tegula::lang {

// Where a copy reads: a tile, or a tensor window.
struct Source {
  ViewPtr view;
  Source(const Window& window);
  Source(const Tensor& tensor);
  Source(const Tile& tile);
  Source(const Source&);
  ~Source();
};

// Where a copy writes: a tile that is not const, or a tensor window.
struct Target {
  ViewPtr view;
  Target(const Window& window);
  Target(const Tensor& tensor);
  Target(Tile& tile);
  Target(Tile&& tile);
  Target(const Target&);
  ~Target();
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
void gather(const Tensor& from, FunctionRef<Expr(const Index&)> row, const Target& to, Loc at);
}  // namespace detail

// tile(i, …) = from(row(i), …); `rows` is a vector of integers, or a function of the index. A row outside the
// view, such as -1, reads as zeros.
template <std::invocable<Index> F>
requires(!std::derived_from<F, Tile>) void gather(const Tensor& from, F row, const Target& tile,
                                                  Loc at = Loc::current()) {
  detail::gather(
      from, [&](const Index& i) -> Expr { return row(i); }, tile, at);
}
void gather(const Tensor& from, const Tensor& rows, const Target& tile, Loc at = Loc::current());
void gather(const Tensor& from, const Tile& rows, const Target& tile, Loc at = Loc::current());

// How the warps of a block divide a product: by rows, by columns, or in rectangles.
enum class Warps { automatic, rows, columns, square };

// How 8-bit products are accumulated: promoted to f32 every 128 products, or in the tensor core throughout.
enum class Accumulate { promoted, tensor_core };

// How f32 operands are multiplied: as they are; rounded to tf32, which has 11 bits, on tensor cores; or on
// tensor cores as sums of two such numbers each, which keeps 21 bits.
enum class Precision { ieee, tf32, tf32x3 };

// For 8-bit operands, `accumulate` affects the result, and for f32 `precision` does; the other options are hints.
struct GemmOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  Accumulate accumulate = Accumulate::promoted;
  Precision precision = Precision::ieee;
  Warps warps = Warps::automatic;
  // Compute the transposed product (with wgmma); read `a` from registers.
  std::optional<bool> swap = {}, from_registers = {};
};

// c += a · b with a [m, k], b [k, n] of one type; c [m, n] is f32 (f64 for f64, i32 for integers). Transposed
// operands are a.T() and b.T(). To overwrite c, declare it with 0 or clear it: the compiler merges the two.
void gemm(const Tile& a, const Tile& b, Fragment& c, GemmOptions options = {}, Loc at = Loc::current());

void gemm(const Tile&, const Tile&, const Shared&) = delete;  // the sum is a Fragment: gemm(a, b, c); copy(c, shared);

// Reduces dimension `dim`; −1 is the last one. With `into`, which has the other dimensions, the result is
// combined with its contents (running maximum, sum). absmax: the largest magnitude; any, all: of booleans.
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

// The position of the largest or smallest element along `dim`: i32, the first of equal elements. NaN is
// ignored; if all elements are NaN, the position is 0.
[[nodiscard]] Fragment reduce_argmax(const Tile& tile, int dim = -1, Loc at = Loc::current());
[[nodiscard]] Fragment reduce_argmin(const Tile& tile, int dim = -1, Loc at = Loc::current());

struct ScanOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  int dim = -1;
  bool exclusive = false;  // without the element itself; the first result is the identity of the operation
  bool reverse = false;    // from the last element down
};

// A new Fragment of the same shape: the sum, maximum or minimum of the elements up to each along a dimension.
[[nodiscard]] Fragment scan_sum(const Tile& tile, ScanOptions options = {}, Loc at = Loc::current());
[[nodiscard]] Fragment scan_max(const Tile& tile, ScanOptions options = {}, Loc at = Loc::current());
[[nodiscard]] Fragment scan_min(const Tile& tile, ScanOptions options = {}, Loc at = Loc::current());
// Scans segments: a new segment begins wherever `starts`, a boolean tile of the same shape, is true.
[[nodiscard]] Fragment scan_sum(const Tile& tile, const Tile& starts, ScanOptions options = {},
                                Loc at = Loc::current());
[[nodiscard]] Fragment scan_max(const Tile& tile, const Tile& starts, ScanOptions options = {},
                                Loc at = Loc::current());
[[nodiscard]] Fragment scan_min(const Tile& tile, const Tile& starts, ScanOptions options = {},
                                Loc at = Loc::current());

// Prints every element, in order, from every executor; the last indices of a line are the coordinates.
void print(const std::string& label, const Tile& tile, Loc at = Loc::current());

// element = op(element, value), atomically; float sums are unordered. For elements of a tensor or a Shared of
// type i32, i64 or u32; all but `or` and `and` also for f16, bf16, f32 and f64.
void atomic_add(Element&& element, const Operand& value);
void atomic_max(Element&& element, const Operand& value);
void atomic_min(Element&& element, const Operand& value);
void atomic_or(Element&& element, const Operand& value);
void atomic_and(Element&& element, const Operand& value);

struct AccumulateOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  // With an order, contributions to an element are added in increasing order, so the sum is deterministic.
  std::optional<Expr> order = {};
  // A promise that is required on GPUs: the contributions to an element are numbered 0, 1, 2, …, and the
  // numbers increase with the index of the block. The window begins at multiples of the tile's extents.
  bool consecutive = false;
  // With `consecutive`: contribution 0 overwrites the window, so the window need not be cleared.
  bool overwrite = false;
};

// window += tile, atomically for each element.
void accumulate(const Window& window, const Tile& tile, AccumulateOptions options = {},
                Loc at = Loc::current());
void atomic_add(const Window& window, const Tile& tile, Loc at = Loc::current());
void atomic_max(const Window& window, const Tile& tile, Loc at = Loc::current());
void atomic_min(const Window& window, const Tile& tile, Loc at = Loc::current());

}  // namespace tegula::lang
TEGULA_API_END
