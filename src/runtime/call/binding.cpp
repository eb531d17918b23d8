#include "runtime/call/binding.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>

#include "runtime/call/spelling.hpp"
#include "runtime/data/overlap.hpp"
#include "runtime/machine/processors.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

using ir::VariableKind;

constexpr std::int64_t largest_extent = std::numeric_limits<std::int32_t>::max();

std::size_t aligned(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw ArgumentError(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace

std::size_t workspace_alignment(DeviceKind device) { return device == DeviceKind::cpu ? 64 : 256; }

std::int64_t word_of(const ir::Value& value) {
  if (!value.type.is_floating()) return value.integer;
  if (value.type == f64) return std::bit_cast<std::int64_t>(value.real);
  return std::bit_cast<std::int32_t>(static_cast<float>(value.real));
}

int Signature::position_of(const ir::Variable* variable) const {
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].get() == variable) return static_cast<int>(i);
  }
  return -1;
}

int Signature::position_of(const ir::Buffer* buffer) const {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].get() == buffer) return static_cast<int>(i);
  }
  return -1;
}

std::string Signature::where(const ir::Buffer& buffer) const {
  return fmt::format("kernel '{}', argument '{}'", kernel_->name, buffer.name);
}

std::string Signature::dims_text(const Binding& binding) const {
  std::string text;
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i]->kind == VariableKind::processors) continue;
    const ir::Value& value = binding.values[i];
    text += text.empty() ? "" : ", ";
    text += value.type.is_floating() ? fmt::format("{} = {}", variables_[i]->name, value.real)
                                     : fmt::format("{} = {}", variables_[i]->name, value.integer);
  }
  return text;
}

void Signature::check_device(const ir::Buffer& buffer, const TensorRef& tensor) const {
  if (tensor.device.kind == device_) return;
  if (device_ == DeviceKind::cpu) {
    refuse("{} is on {}, but the kernel was compiled for the CPU; copy it to host memory", where(buffer),
           tensor.device.name());
  }
  refuse("{} is in host memory, but the kernel was compiled for CUDA; copy it to the GPU", where(buffer));
}

// All tensors on one device, which gives the number of processors.
void Signature::join_devices(Binding& binding) const {
  binding.device = {device_, 0};
  if (device_ == DeviceKind::cuda) {
    if (binding.tensors.empty()) binding.device = current_stream().device();
    for (std::size_t t = 0; t < binding.tensors.size(); ++t) {
      const Device& device = binding.tensors[t].device;
      if (t == 0) binding.device = device;
      if (device == binding.device) continue;
      refuse("{} is on {}, but argument '{}' is on {}; copy it there", where(*buffers_[t]), device.name(),
             buffers_[0]->name, binding.device.name());
    }
  }
  for (std::size_t position = 0; position < variables_.size(); ++position) {
    if (variables_[position]->kind != VariableKind::processors) continue;
    binding.values[position] = ir::integer_value(variables_[position]->type, processors_of(binding.device));
  }
}

TensorRef Signature::checked_tensor(const ir::Buffer& buffer, const Argument& arg) const {
  const TensorRef* tensor = arg.tensor();
  if (tensor == nullptr) {
    refuse("{} is a {} tensor of rank {}, but a number is given; pass a tensor", where(buffer),
           buffer.type.name(), buffer.rank());
  }
  if (!(tensor->dtype == buffer.type)) {
    refuse("{} must have dtype {}, but {} is given; convert it with to({})", where(buffer),
           buffer.type.name(), describe(*tensor), buffer.type.name());
  }
  if (tensor->rank() != buffer.rank() || tensor->strides.size() != tensor->shape.size()) {
    refuse("{} must have rank {}, but {} is given; reshape it", where(buffer), buffer.rank(),
           describe(*tensor));
  }
  check_device(buffer, *tensor);
  for (const std::int64_t extent : tensor->shape) {
    if (extent < 0 || extent > largest_extent) {
      refuse("{} has an extent outside 0 … {}: {}; split the call", where(buffer), largest_extent,
             describe(*tensor));
    }
  }
  if (nelements(*tensor) > 0 && tensor->data == nullptr) {
    refuse("{} has no memory (its pointer is null): {}; allocate it first", where(buffer), describe(*tensor));
  }
  return *tensor;
}

void Signature::solve_extent(Binding& binding, int tensor, int dim) const {
  const Extent& extent = extents_[static_cast<std::size_t>(tensor)][static_cast<std::size_t>(dim)];
  const ir::Buffer& buffer = *buffers_[static_cast<std::size_t>(tensor)];
  const TensorRef& ref = binding.tensors[static_cast<std::size_t>(tensor)];
  const std::int64_t given = ref.shape[static_cast<std::size_t>(dim)];
  if (extent.kind == ExtentKind::constant && given != extent.constant) {
    refuse("{}: dimension {} must have extent {}, but {} is given", where(buffer), dim, extent.constant,
           describe(ref));
  }
  if (extent.kind == ExtentKind::solves) {
    binding.values[static_cast<std::size_t>(extent.position)] = ir::integer_value(i32, given);
  }
  if (extent.kind != ExtentKind::repeats) return;
  const std::int64_t expected = binding.values[static_cast<std::size_t>(extent.position)].integer;
  if (given == expected) return;
  const Source& source = sources_[static_cast<std::size_t>(extent.position)];
  refuse("{}: dimension {} must be {} = {}, given by dimension {} of argument '{}', but {} is given",
         where(buffer), dim, variables_[static_cast<std::size_t>(extent.position)]->name, expected,
         source.dim, buffers_[static_cast<std::size_t>(source.tensor)]->name, describe(ref));
}

void Signature::solve(Binding& binding) const {
  for (std::size_t t = 0; t < parameter_tensors_; ++t) {
    for (std::size_t d = 0; d < extents_[t].size(); ++d) {
      solve_extent(binding, static_cast<int>(t), static_cast<int>(d));
    }
  }
}

void Signature::check_computed_extent(const Binding& binding, int tensor, int dim) const {
  const Extent& extent = extents_[static_cast<std::size_t>(tensor)][static_cast<std::size_t>(dim)];
  if (extent.kind != ExtentKind::computed) return;
  const ir::Buffer& buffer = *buffers_[static_cast<std::size_t>(tensor)];
  const TensorRef& ref = binding.tensors[static_cast<std::size_t>(tensor)];
  bool overflow = false;
  const ir::Value expected = extent.computed(binding.values, &overflow);
  if (expected.invalid || overflow) {
    refuse("{}: the extent of dimension {} cannot be computed (it {}) with {}", where(buffer), dim,
           expected.invalid ? "divides by zero" : "overflows", dims_text(binding));
  }
  if (expected.integer != ref.shape[static_cast<std::size_t>(dim)]) {
    refuse("{}: dimension {} must have extent {} (with {}), but {} is given", where(buffer), dim,
           expected.integer, dims_text(binding), describe(ref));
  }
}

void Signature::check_computed(const Binding& binding) const {
  for (std::size_t t = 0; t < parameter_tensors_; ++t) {
    for (std::size_t d = 0; d < extents_[t].size(); ++d) {
      check_computed_extent(binding, static_cast<int>(t), static_cast<int>(d));
    }
  }
}

void Signature::check_multiples(const Binding& binding) const {
  for (std::size_t i = 0; i < kernel_->dims.size(); ++i) {
    const ir::Dim& dim = kernel_->dims[i];
    const std::int64_t value = binding.values[i].integer;
    if (dim.multiple <= 1 || value % dim.multiple == 0) continue;
    refuse("{}: dimension {} is {} = {}, which must be a multiple of {}; pad the tensor",
           where(*buffers_[static_cast<std::size_t>(sources_[i].tensor)]), sources_[i].dim,
           dim.variable->name, value, dim.multiple);
  }
}

void Signature::check_requirements(const Binding& binding) const {
  for (const Requirement& requirement : requirements_) {
    const ir::Value value = requirement.condition(binding.values);
    if (!value.invalid && value.truth()) continue;
    refuse("kernel '{}' requires at {}: {}; this call has {}", kernel_->name,
           short_location(requirement.text->at), requirement.text->message, dims_text(binding));
  }
}

void Signature::check_reshapes(const Binding& binding) const {
  for (const Reshape& reshape : reshapes_) {
    const auto position = static_cast<std::size_t>(reshape.tensor);
    const TensorRef& ref = binding.tensors[position];
    Shape shape;
    bool overflow = false;
    for (const HostExpr& extent : reshape.shape) {
      const ir::Value value = extent(binding.values, &overflow);
      shape.push_back(value.invalid ? -1 : value.integer);
    }
    if (!is_contiguous(ref)) {
      refuse("{} is reshaped at {} and must therefore be contiguous, but {} is given; pass a contiguous copy",
             where(*buffers_[position]), short_location(reshape.at), describe(ref));
    }
    bool negative = false;
    for (const std::int64_t extent : shape) negative |= extent < 0;
    if (overflow || negative || nelements(shape) != nelements(ref)) {
      refuse("{} is reshaped at {} to {}, which does not have the {} elements of {}",
             where(*buffers_[position]), short_location(reshape.at), describe(shape), nelements(ref),
             describe(ref));
    }
  }
}

void Signature::check_memory(const Binding& binding) const {
  for (std::size_t t = 0; t < parameter_tensors_; ++t) {
    if (buffers_[t]->is_writable() && overlaps_itself(binding.tensors[t])) {
      refuse(
          "{} is written, but several of its elements share memory: {}; pass a tensor without overlapping "
          "elements",
          where(*buffers_[t]), describe(binding.tensors[t]));
    }
  }
  for (const Pair& pair : pairs_) {
    const auto a = static_cast<std::size_t>(pair.a), b = static_cast<std::size_t>(pair.b);
    if (!share_bytes(binding.tensors[a], binding.tensors[b])) continue;
    refuse(
        "{} and argument '{}' share memory, and '{}' is written; pass a copy, or declare "
        "may_alias({}, {}) in a kernel of your own",
        where(*buffers_[a]), buffers_[b]->name,
        buffers_[a]->is_writable() ? buffers_[a]->name : buffers_[b]->name, buffers_[a]->name,
        buffers_[b]->name);
  }
}

void Signature::add_workspaces(Binding& binding) const {
  for (std::size_t w = parameter_tensors_; w < buffers_.size(); ++w) {
    const ir::Buffer& buffer = *buffers_[w];
    Shape shape;
    bool overflow = false;
    std::int64_t bytes = buffer.type.bytes();
    for (const Extent& extent : extents_[w]) {
      const ir::Value value = extent.kind == ExtentKind::constant
                                  ? ir::integer_value(i64, extent.constant)
                                  : extent.computed(binding.values, &overflow);
      shape.push_back(value.invalid ? -1 : value.integer);
      if (shape.back() < 0 || shape.back() > largest_extent) overflow = true;
      overflow |= !overflow && __builtin_mul_overflow(bytes, shape.back(), &bytes);
      if (overflow) {
        refuse("kernel '{}', workspace '{}': the extent {} of dimension {} is outside 0 … {} with {}",
               kernel_->name, buffer.name, shape.back(), shape.size() - 1, largest_extent,
               dims_text(binding));
      }
    }
    binding.tensors[w] = TensorRef(nullptr, buffer.type, std::move(shape));
    binding.workspace_bytes += aligned(static_cast<std::size_t>(bytes), workspace_alignment(device_));
  }
}

std::vector<std::string> Signature::parameter_names() const {
  std::vector<std::string> names;
  for (const ir::Parameter& parameter : kernel_->parameters)
    names.push_back(parameter.tensor ? parameter.tensor->name : parameter.scalar->name);
  return names;
}

Binding Signature::bind_only(std::span<const Argument> args) const {
  if (args.size() != kernel_->parameters.size()) {
    refuse(
        "kernel '{}' takes {} arguments, but {} are given; pass all tensors and scalars in the order of "
        "declaration, without workspaces: {}",
        kernel_->name, kernel_->parameters.size(), args.size(), fmt::join(parameter_names(), ", "));
  }
  Binding binding;
  binding.values.resize(variables_.size());
  binding.tensors.reserve(buffers_.size());
  std::size_t scalar = kernel_->dims.size();
  for (std::size_t i = 0; i < args.size(); ++i) {
    const ir::Parameter& parameter = kernel_->parameters[i];
    if (parameter.tensor)
      binding.tensors.push_back(checked_tensor(*parameter.tensor, args[i]));
    else
      binding.values[scalar++] = checked_scalar(*parameter.scalar, args[i]);
  }
  join_devices(binding);
  solve(binding);
  check_computed(binding);
  check_multiples(binding);
  check_requirements(binding);
  check_memory(binding);
  binding.tensors.resize(buffers_.size());
  add_workspaces(binding);
  check_reshapes(binding);  // of workspaces too
  return binding;
}

Binding Signature::bind(std::span<const Argument> args) const {
  Binding binding = bind_only(args);
  if (binding.workspace_bytes == 0 || device_ != DeviceKind::cpu) return binding;
  binding.workspace = workspaces_.take(binding.workspace_bytes);
  auto* next = static_cast<std::byte*>(binding.workspace.get());
  for (std::size_t w = parameter_tensors_; w < buffers_.size(); ++w) {
    TensorRef& ref = binding.tensors[w];
    ref.data = next;
    const auto bytes = static_cast<std::size_t>(nelements(ref)) * static_cast<std::size_t>(ref.dtype.bytes());
    next += aligned(bytes, workspace_alignment(device_));
  }
  return binding;
}

Binding Signature::bind(std::span<const NamedArgument> args) const {
  const std::vector<std::string> names = parameter_names();
  std::vector<const Argument*> found(names.size());
  for (const NamedArgument& arg : args) {
    const auto i = static_cast<std::size_t>(std::find(names.begin(), names.end(), arg.name) - names.begin());
    const std::string hint = i == found.size() ? spelling_hint(arg.name, names) : "";
    if (i == found.size())
      refuse("kernel '{}' has no argument '{}'{} It takes: {}", kernel_->name, arg.name,
             hint.empty() ? "." : hint, fmt::join(names, ", "));
    if (found[i] != nullptr) refuse("kernel '{}': argument '{}' is given twice", kernel_->name, arg.name);
    found[i] = &arg.value;
  }
  std::vector<Argument> ordered;
  ordered.reserve(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == nullptr) refuse("kernel '{}': argument '{}' is missing", kernel_->name, names[i]);
    ordered.push_back(*found[i]);
  }
  return bind(std::span<const Argument>(ordered));
}

void clear_zeroed(const Signature& signature, const Binding& binding) {
  for (std::size_t i = 0; i < signature.buffers().size(); ++i) {
    if (!signature.buffers()[i]->zero) continue;
    const TensorRef& ref = binding.tensors[i];
    if (is_contiguous(ref)) {
      const auto bytes = nelements(ref) * ref.dtype.bytes();
      if (bytes > 0) std::memset(ref.data, 0, static_cast<std::size_t>(bytes));
    } else {
      static constexpr std::uint64_t zero = 0;
      const TensorRef one(const_cast<std::uint64_t*>(&zero), ref.dtype, Shape(ref.shape.size(), 1));
      copy_elements(one.expand(ref.shape), ref);
    }
  }
}

}  // namespace tegula
