// Compiling a kernel and calling it.
//
//   const Function gemm = compile(gemm_relu(1024, 512, tile));
//   gemm(a, b, c);                                   // in the order of declaration, without workspaces
//   gemm.call({{"A", a}, {"B", b}, {"C", c}});       // by name
//
// A wrong call throws an ArgumentError before anything runs. The number and names of arguments, dtypes
// (nothing is converted), ranks, extents, promises, requirements, and overlapping tensors are checked. Any
// strides are allowed. A call returns when its outputs are written; on a GPU, when its work is queued.
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tegula/stream.hpp"
#include "tegula/tensor.hpp"

TEGULA_API_BEGIN
namespace tegula {

namespace ir {
struct Kernel;
}
namespace lang {
class Kernel;
}

// What runs a kernel. The interpreter defines the language; it is slow, and it finds the errors of a program.
// `automatic` is the fastest target of the machine, or the one named by the environment variable
// TEGULA_TARGET. `emulated` runs GPU code on the CPU, thread by thread; it is very slow and meant for testing
// the compiler.
class Target {
 public:
  enum class Kind : std::uint8_t { automatic, interpreter, cpu, emulated, emulated_sm90, cuda, cuda_sm80 };
  static constexpr Target automatic() { return Target(Kind::automatic); }
  static constexpr Target interpreter() { return Target(Kind::interpreter); }
  static constexpr Target cpu() { return Target(Kind::cpu); }
  static constexpr Target emulated() { return Target(Kind::emulated); }
  // The same with the instructions of Hopper GPUs; blocks run one after another.
  static constexpr Target emulated_sm90() { return Target(Kind::emulated_sm90); }
  // The tensors of a call are on a CUDA device; a call returns when its work is queued (tegula/stream.hpp).
  static constexpr Target cuda() { return Target(Kind::cuda); }
  // The same, with the instructions of compute capability 8.0 only.
  static constexpr Target cuda_sm80() { return Target(Kind::cuda_sm80); }

  // The target of that name, such as `cuda_sm80`: the names of the functions above. Empty for any other name.
  static std::optional<Target> named(std::string_view name);

  constexpr Kind kind() const { return kind_; }
  std::string_view name() const;
  // The device on which the tensors of a call must be.
  DeviceKind device() const;
  friend constexpr bool operator==(const Target&, const Target&) = default;

 private:
  explicit constexpr Target(Kind kind) : kind_(kind) {}
  Kind kind_;
};

// An argument of a call: a tensor, or a number.
class Argument {
 public:
  using Number = std::variant<bool, std::int64_t, std::uint64_t, double>;

  Argument(TensorRef tensor) : value_(std::move(tensor)) {}
  Argument(const Tensor& tensor) : value_(tensor.ref()), owner_(tensor.owner()) {}
  template <class T>
  requires std::is_arithmetic_v<T> Argument(T number) : value_(of(number)) {}

  // Null if the argument is of the other kind.
  const TensorRef* tensor() const { return std::get_if<TensorRef>(&value_); }
  const Number* number() const { return std::get_if<Number>(&value_); }

 private:
  template <class T>
  static Number of(T number) {
    if constexpr (std::same_as<T, bool>)
      return number;
    else if constexpr (std::floating_point<T>)
      return static_cast<double>(number);
    else if constexpr (std::is_signed_v<T>)
      return static_cast<std::int64_t>(number);
    else
      return static_cast<std::uint64_t>(number);
  }

  std::variant<TensorRef, Number> value_;
  std::shared_ptr<void> owner_;
};

struct NamedArgument {
  std::string name;
  Argument value;
};

// A kernel compiled for a target. Copies share the code; calls may run at the same time.
class Function {
 public:
  template <class... Args>
  requires(std::convertible_to<const Args&, Argument>&&...) void operator()(const Args&... args) const {
    call_in_order(std::array<Argument, sizeof...(Args)>{Argument(args)...});
  }
  void call_in_order(std::span<const Argument> args) const;
  void call(std::span<const NamedArgument> args) const;
  void call(std::initializer_list<NamedArgument> args) const { call(std::span(args.begin(), args.size())); }

  // The same function with its calls going to this stream.
  Function on(const Stream& stream) const;

  // Bytes that such a call needs for the kernel's workspaces.
  template <class... Args>
  requires(std::convertible_to<const Args&, Argument>&&...) std::size_t workspace_bytes(const Args&... args)
  const { return workspace_bytes_in_order(std::array<Argument, sizeof...(Args)>{Argument(args)...}); }
  std::size_t workspace_bytes_in_order(std::span<const Argument> args) const;

  const std::string& name() const;
  // The target; for `automatic`, the one that was chosen.
  Target target() const;
  // What makes the kernel slower than necessary, with the line of the program, the reason and the remedy:
  // `gemm.cpp:41: mma.sync: …; …`. docs/show.md lists all kinds. Notes for GPUs assume tensors that the copy
  // engine accepts; the emulated targets have these notes too. On a GPU, the notes include the assembler's
  // remarks: register spills and serialised products.
  const std::vector<std::string>& notes() const;

 private:
  struct Compiled;
  explicit Function(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  friend Function compile(const std::shared_ptr<const ir::Kernel>& kernel, Target target);
  std::shared_ptr<const Compiled> compiled_;
  std::optional<Stream> stream_;
};

// Compiles the kernel, or takes it from the cache of compiled kernels. Throws a DeviceError if the target
// needs a compiler or device that is missing or fails; `automatic` falls back to the interpreter if there is
// none.
Function compile(const lang::Kernel& kernel, Target target = Target::automatic());
Function compile(const std::shared_ptr<const ir::Kernel>& kernel, Target target = Target::automatic());

}  // namespace tegula
TEGULA_API_END
