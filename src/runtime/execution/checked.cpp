#include "runtime/execution/checked.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstdio>

#include "interp/interpreter.hpp"
#include "ir/visit.hpp"
#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

namespace tegula {

namespace {

// Differences that rounding explains, beside the largest value of a tensor: sums in another order, and tiles
// of small types whose values were rounded from sums that differ in their last bits.
constexpr double small_types_tolerance = 1.0 / 64, tolerance = 1.0 / 16384;

bool has_small_floats(const Signature& signature) {
  const auto is_small = [](const ir::Buffer& buffer) {
    return buffer.type.is_floating() && buffer.type.bits() < 32;
  };
  bool found = false;
  for (auto& buffer : signature.buffers()) found |= is_small(*buffer);
  for (const ir::Grid& grid : signature.kernel().grids) {
    ir::for_each_stmt(grid.body, [&](const ir::Stmt& stmt) {
      const auto* declared = ir::as<ir::Declare>(stmt);
      found |= declared && is_small(*declared->tile);
    });
  }
  return found;
}

double largest(const Tensor& tensor) {
  double result = 0;
  for (const double value : tensor.values<double>()) {
    if (std::isfinite(value)) result = std::max(result, std::abs(value));
  }
  return result;
}

class Checked : public Executable {
 public:
  Checked(std::shared_ptr<const Signature> signature, Target target, std::unique_ptr<const Executable> own)
      : signature_(std::move(signature)), target_(target), own_(std::move(own)) {}

  void run(const Binding& binding) const override {
    const bool is_cuda = binding.device.kind == DeviceKind::cuda;
    // Nothing can be copied from a stream that is recorded: a later call is compared.
    if ((is_cuda && current_stream(binding.device).is_capturing()) || was_checked_.exchange(true))
      return own_->run(binding);
    if (share_bytes(binding)) {
      say("is not compared with the interpreter, because tensors of its first call overlap");
      return own_->run(binding);
    }
    const Binding expected = copied(binding);
    interp::Interpreter(signature_).run(expected);
    own_->run(binding);
    compare(binding, expected);
    say("agrees with the interpreter");
  }

  std::vector<std::string> notes() const override { return own_->notes(); }

 private:
  void say(const char* what) const {
    std::fprintf(stderr, "tegula: TEGULA_CHECK: kernel '%s' on %s %s\n", signature_->kernel().name.c_str(),
                 std::string(target_.name()).c_str(), what);
  }

  bool is_written(std::size_t position) const {
    const ir::Role role = signature_->buffers()[position]->role;
    return role == ir::Role::output || role == ir::Role::inout;
  }

  bool share_bytes(const Binding& binding) const {
    for (std::size_t a = 0; a < signature_->parameter_tensors(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        const bool counts = is_written(a) || is_written(b);
        if (counts && byte_range(binding.tensors[a]).overlaps(byte_range(binding.tensors[b]))) return true;
      }
    }
    return false;
  }

  // The call with tensors of its own on the host.
  Binding copied(const Binding& binding) const {
    Binding result;
    result.values = binding.values;
    auto owners = std::make_shared<std::vector<Tensor>>();
    for (std::size_t position = 0; position < binding.tensors.size(); ++position) {
      const TensorRef& tensor = binding.tensors[position];
      owners->push_back(Tensor::empty(tensor.shape, tensor.dtype));
      if (position < signature_->parameter_tensors()) copy_elements(tensor, owners->back().ref());
      result.tensors.push_back(owners->back().ref());
    }
    result.workspace = owners;
    return result;
  }

  void compare(const Binding& binding, const Binding& expected) const {
    const double relative = has_small_floats(*signature_) ? small_types_tolerance : tolerance;
    for (std::size_t position = 0; position < signature_->parameter_tensors(); ++position) {
      if (!is_written(position)) continue;
      const TensorRef& right = expected.tensors[position];
      const Tensor given = Tensor::empty(right.shape, right.dtype);
      copy_elements(binding.tensors[position], given.ref());
      const bool rounds = right.dtype.is_floating();
      const double absolute = rounds ? relative * largest(Tensor::adopt(right, expected.workspace)) : 0;
      if (const auto difference = first_difference(given.ref(), right, absolute, rounds ? relative : 0)) {
        throw InternalError(fmt::format(
            "TEGULA_CHECK: kernel '{}' on {} and the interpreter write different values to '{}': {}",
            signature_->kernel().name, target_.name(), signature_->buffers()[position]->name, *difference));
      }
    }
  }

  std::shared_ptr<const Signature> signature_;
  Target target_;
  std::unique_ptr<const Executable> own_;
  mutable std::atomic<bool> was_checked_{false};
};

}  // namespace

std::unique_ptr<const Executable> checked_if_asked(std::shared_ptr<const Signature> signature, Target target,
                                                   std::unique_ptr<const Executable> own) {
  const bool asked = environment_integer(Variable::check, 0, 1).value_or(0) == 1;
  if (!asked || target == Target::interpreter()) return own;
  return std::make_unique<Checked>(std::move(signature), target, std::move(own));
}

}  // namespace tegula
