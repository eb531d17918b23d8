// Loops, branches and checks inside a block.
#pragma once
#include <optional>

#include "tegula/lang/kernel.hpp"

TEGULA_API_BEGIN
namespace tegula::lang {

// Hint: the number of iterations of a pipelined loop that are in flight; with 0 the compiler chooses.
struct PipelineOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  int stages = 0;
};

// 32 or 128 threads of a GPU.
enum class Group { warp, warpgroup };

namespace detail {
enum class Loop { serial, unrolled, pipelined };
void loop(Loop kind, const Range& range, int stages, FunctionRef<void(const Index&)> body);
void parallel(std::span<const Operand> extents, Loc at, IndexBody body);
void parallel(std::initializer_list<Operand> extents, Loc at, IndexBody body);
std::vector<Operand> extents_of(const Tile& tile, int arity, Loc at);
// Over a tile of this rank.
void parallel(const Tile& tile, int rank, Loc at, IndexBody body);
void each_group(int count, Group group, Loc at, FunctionRef<void(const Index&)> body);
void loop_while(FunctionRef<Expr()> condition, FunctionRef<void()> body, Loc at);
}  // namespace detail

// Iterations in order. The range may be known only at run time, and may be empty.
template <std::invocable<Index> F>
void serial(Range range, F body) {
  detail::loop(detail::Loop::serial, range, 0, body);
}
template <std::invocable<Index> F>
void serial(Operand count, F body) {
  serial(Range{Operand(0, count.at), count}, body);
}

// Like serial, with the hint that loads of later iterations may start early.
template <std::invocable<Index> F>
void pipelined(Range range, PipelineOptions options, F body) {
  detail::loop(detail::Loop::pipelined, range, options.stages, body);
}
template <std::invocable<Index> F>
void pipelined(Operand count, PipelineOptions options, F body) {
  pipelined(Range{Operand(0, count.at), count}, options, body);
}
template <std::invocable<Index> F>
void pipelined(Range range, F body) {
  pipelined(range, PipelineOptions{}, body);
}
template <std::invocable<Index> F>
void pipelined(Operand count, F body) {
  pipelined(count, PipelineOptions{}, body);
}
template <class Count, std::invocable<Index> F>
void pipelined(const Count&, detail::Unnamed, F) = delete;  // options have names: {.stages = 3}

// Like serial with a constant count; the compiler unrolls the loop.
template <std::invocable<Index> F>
void unrolled(int count, F body, Loc at = Loc::current()) {
  detail::loop(detail::Loop::unrolled, Range{Operand(0, at), Operand(count, at)}, 0, body);
}

// Independent iterations, in any order or at the same time.
template <std::invocable<Index> F>
void parallel(Operand n, F body) {
  detail::parallel({n}, n.at, [&](const std::vector<Index>& i) { body(i[0]); });
}
template <std::invocable<Index, Index> F>
void parallel(Operand n, Operand m, F body) {
  detail::parallel({n, m}, n.at, [&](const std::vector<Index>& i) { body(i[0], i[1]); });
}
template <std::invocable<Index, Index, Index> F>
void parallel(Operand n, Operand m, Operand l, F body) {
  detail::parallel({n, m, l}, n.at, [&](const std::vector<Index>& i) { body(i[0], i[1], i[2]); });
}
// clang-format off
template <class F> requires(!std::invocable<F, Index>) void parallel(Operand, F) = delete;  // the body takes one Index for each extent
template <class F> requires(!std::invocable<F, Index, Index>) void parallel(Operand, Operand, F) = delete;  // the body takes one Index for each extent
template <class F> requires(!std::invocable<F, Index>) void serial(Operand, F) = delete;  // the body takes one Index: serial(n, [&](Index i) { … })
// clang-format on
// One iteration for each element of a tile.
template <class F>
void parallel(const Tile& tile, F body, Loc at = Loc::current()) {
  constexpr int arity = std::is_invocable_v<F, Index> ? 1 : std::is_invocable_v<F, Index, Index> ? 2 : 3;
  detail::parallel(tile, arity, at, [&](const std::vector<Index>& i) {
    if constexpr (arity == 1)
      body(i[0]);
    else if constexpr (arity == 2)
      body(i[0], i[1]);
    else
      body(i[0], i[1], i[2]);
  });
}

// A new Fragment of the tile's shape; each element is `value` called with its indices.
template <class F>
[[nodiscard]] Fragment map(const Tile& tile, F value, DType type = f32, Loc at = Loc::current()) {
  Fragment result = Fragment(tile.shape(), type, at);
  if constexpr (std::is_invocable_v<F, Index>)
    parallel(
        result, [&](Index i) { result(i) = value(i); }, at);
  else if constexpr (std::is_invocable_v<F, Index, Index>)
    parallel(
        result, [&](Index i, Index j) { result(i, j) = value(i, j); }, at);
  else
    parallel(
        result, [&](Index i, Index j, Index k) { result(i, j, k) = value(i, j, k); }, at);
  return result;
}

// `count` independent instances of the body, each run by one warp or warp group. They may write only tensors
// and what they declare themselves; conditions may depend on the index.
template <std::invocable<Index> F>
void each_group(int count, Group group, F body, Loc at = Loc::current()) {
  detail::each_group(count, group, at, body);
}

class When {
 public:
  explicit When(void* branch) : branch_(branch) {}
  template <std::invocable F>
  void otherwise(F body, Loc at = Loc::current()) && {
    record(body, at);
  }

 private:
  void record(detail::FunctionRef<void()> body, Loc at);
  void* branch_;
};

// A hint for GPUs whose warp groups multiply 64 rows at a time, if a run has 16 rows: if at least this many
// of the four warps have work, the warp group multiplies together; otherwise each warp multiplies alone.
struct RowsOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  std::optional<Expr> together = {};
};

namespace detail {
When when(const Operand& condition, FunctionRef<void()> body);
void when_rows(const std::vector<Expr>& conditions, const RowsOptions& options, FunctionRef<void()> body,
               Loc at);
}  // namespace detail

// A branch on a device value; `otherwise` may follow directly.
template <std::invocable F>
When when(const Operand& condition, F body) {
  return detail::when(condition, body);
}

// For steps that affect only some rows. The rows of every fragment that the body changes are divided into
// runs of equal length, one for each condition. If a condition is false, the rows of its run must keep their
// values. The body runs if any condition holds. Warps or warp groups of a GPU that own only other rows may
// skip it.
template <std::invocable F>
void when_rows(const std::vector<Expr>& conditions, const RowsOptions& options, F body,
               Loc at = Loc::current()) {
  detail::when_rows(conditions, options, body, at);
}
template <std::invocable F>
void when_rows(const std::vector<Expr>& conditions, F body, Loc at = Loc::current()) {
  detail::when_rows(conditions, {}, body, at);
}

// `condition` is a function, because it is evaluated before every iteration.
template <std::invocable C, std::invocable F>
void loop_while(C condition, F body, Loc at = Loc::current()) {
  detail::loop_while([&]() -> Expr { return condition(); }, body, at);
}

// Leaves the innermost non-parallel loop if the condition is true.
void break_if(const Operand& condition);
// Ends the block if the condition is true.
void exit_if(const Operand& condition);

// Prints `[block bx0 = 3] label = value` to the standard output, once for each block or for each iteration of
// parallel().
void print(const std::string& label, const Operand& value);
// Ends the call with a ProgramError that has this message if the condition is false.
void assert_that(const Operand& condition, const std::string& message);

}  // namespace tegula::lang
TEGULA_API_END
