// A kernel, its signature and its grids.
#pragma once
#include <functional>
#include <vector>

#include "tegula/lang/place.hpp"

TEGULA_API_BEGIN
namespace tegula::lang {

// A tile program: the value of a plain C++ function whose arguments are its compile-time parameters.
class Kernel {
 public:
  explicit Kernel(std::shared_ptr<const ir::Kernel> ir) : ir_(std::move(ir)) {}
  const std::string& name() const;
  // The program as text.
  std::string text() const;
  const std::shared_ptr<const ir::Kernel>& ir() const { return ir_; }

 private:
  std::shared_ptr<const ir::Kernel> ir_;
};

namespace detail {
Kernel build(const std::string& name, FunctionRef<void()> body, Loc at);
void require_now(bool condition, const std::string& message, Loc at);
}  // namespace detail

// Builds a kernel: `body` declares the signature and records the grids. `name` is an identifier.
template <std::invocable F>
Kernel kernel(const std::string& name, F body, Loc at = Loc::current()) {
  return detail::build(name, body, at);
}

struct OutputOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  bool zero = false;  // clear the tensor before the first grid
};

// Parameters of the kernel, in the order of the call. Extents are constants, dims, integer scalars and
// arithmetic on these. Each Dim must be an extent of some parameter by itself. A tensor has at most 8
// dimensions.
Tensor input(const std::string& name, const Extents& shape, DType type, Loc at = Loc::current());
Tensor output(const std::string& name, const Extents& shape, DType type, OutputOptions options = {},
              Loc at = Loc::current());
Tensor inout(const std::string& name, const Extents& shape, DType type, Loc at = Loc::current());
// A number that is passed at the call: f32, f64, i32, i64, u32 or boolean.
Expr scalar(const std::string& name, DType type, Loc at = Loc::current());
// A tensor that exists during one call; it is not a parameter.
Tensor workspace(const std::string& name, const Extents& shape, DType type, OutputOptions options = {},
                 Loc at = Loc::current());
// Allows these two tensors to share bytes.
void may_alias(const Tensor& a, const Tensor& b, Loc at = Loc::current());

// A condition on dims and scalars, checked at every call; a C++ bool is checked immediately.
void require(const Operand& condition, const std::string& message);
template <std::same_as<bool> T>
void require(T condition, const std::string& message, Loc at = Loc::current()) {
  detail::require_now(condition, message, at);
}
// The number of processors of the device (SMs of a GPU).
Expr processors(Loc at = Loc::current());

// The order in which the blocks of a grid start.
struct Order {
  enum class Kind { automatic, row, column, grouped, heavy_first } kind = Kind::automatic;
  int group = 0;
  std::function<Expr(const std::vector<Index>&)> cost;
  std::function<Operand()> together;

  static Order row() { return {Kind::row, 0, {}, {}}; }        // the first index changes fastest
  static Order column() { return {Kind::column, 0, {}, {}}; }  // the second index changes fastest
  // Strips of `rows` values of the second index, for better use of the cache.
  static Order grouped(int rows) { return {Kind::grouped, rows, {}, {}}; }
  // Blocks with the highest cost first; `cost` is a function of the grid's indices, dims and scalars.
  template <class F>
  static Order heavy_first(F cost) {
    return {Kind::heavy_first,
            0,
            [cost](const std::vector<Index>& i) -> Expr {
              if constexpr (std::is_invocable_v<F, Index>)
                return cost(i.at(0));
              else if constexpr (std::is_invocable_v<F, Index, Index>)
                return cost(i.at(0), i.at(1));
              else
                return cost(i.at(0), i.at(1), i.at(2));
            },
            {}};
  }
  // On a GPU, blocks start in rounds. Each round covers `together` values of the other indices (for example
  // heads) and starts the costliest blocks first, so that the cache holds what these values read. `together`
  // is a number or an expression of dims and scalars; without it, the compiler chooses.
  template <class F>
  static Order heavy_first(F cost, const Operand& together) {
    Order order = heavy_first(cost);
    order.together = [together] { return together; };
    return order;
  }
};

// Hints: they change the speed of a grid, never its result.
struct GridOptions {
  [[no_unique_address]] detail::OptionsAreNamed options_are_named = detail::OptionsAreNamed();
  int threads = 0;          // per block: a multiple of 32 up to 1024; with 0 the compiler chooses
  bool persistent = false;  // resident blocks process one index after another
  Order order = {};
  int cluster = 1;               // CTAs that share a block, each of `threads`: 1, 2, 4 or 8
  int blocks_per_processor = 0;  // resident blocks per processor; with 0 the compiler chooses
};

namespace detail {
using IndexBody = FunctionRef<void(const std::vector<Index>&)>;
void grid(std::initializer_list<Operand> extents, const GridOptions& options, IndexBody body);
}  // namespace detail

// Runs the body once for every index, in independent blocks and in any order.
template <std::invocable<Index> F>
void grid(Operand x, GridOptions options, F body) {
  detail::grid({x}, options, [&](const std::vector<Index>& i) { body(i[0]); });
}
template <std::invocable<Index, Index> F>
void grid(Operand x, Operand y, GridOptions options, F body) {
  detail::grid({x, y}, options, [&](const std::vector<Index>& i) { body(i[0], i[1]); });
}
template <std::invocable<Index, Index, Index> F>
void grid(Operand x, Operand y, Operand z, GridOptions options, F body) {
  detail::grid({x, y, z}, options, [&](const std::vector<Index>& i) { body(i[0], i[1], i[2]); });
}
template <std::invocable<Index> F>
void grid(Operand x, F body) {
  grid(x, GridOptions{}, body);
}
template <std::invocable<Index, Index> F>
void grid(Operand x, Operand y, F body) {
  grid(x, y, GridOptions{}, body);
}
template <std::invocable<Index, Index, Index> F>
void grid(Operand x, Operand y, Operand z, F body) {
  grid(x, y, z, GridOptions{}, body);
}
template <std::invocable<Index> F>
void grid(Operand, detail::Unnamed, F) = delete;  // options have names: grid(x, {.threads = 128}, body)
template <std::invocable<Index, Index> F>
void grid(Operand, Operand, detail::Unnamed, F) = delete;  // options have names: {.threads = 128}
template <std::invocable<Index, Index, Index> F>
void grid(Operand, Operand, Operand, detail::Unnamed, F) = delete;  // options have names: {.threads = 128}

}  // namespace tegula::lang
TEGULA_API_END

// The kernels of a source file, which `tegula show FILE` and `tegula build FILE` look for:
//   TEGULA_KERNELS(gemm_relu(128, 128, 64), gemm_relu(64, 64, 32))
// The names of the kernels must differ if they are built together. Once per file, outside namespaces.
#define TEGULA_KERNELS(...) \
  std::vector<::tegula::lang::Kernel> tegula_kernels() { return {__VA_ARGS__}; }
