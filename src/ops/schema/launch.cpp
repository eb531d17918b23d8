#include "ops/schema/launch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/kernel.hpp"
#include "ops/schema/scratch.hpp"

namespace tegula::ops {

namespace {

using Source = LaunchedProgram::Source;

Source source_of(const std::string& name, bool is_tensor, const OperatorSchema& schema) {
  const int position = schema.position_of(name);
  const auto first_option = static_cast<int>(schema.first_option_position());
  const auto first_tensor = static_cast<int>(schema.first_tensor_position());
  if (position < 0 || is_tensor != (position >= first_tensor)) return {Source::Kind::given, 0, name};
  if (is_tensor) return {Source::Kind::tensor, static_cast<std::size_t>(position - first_tensor), name};
  if (position < first_option) return {Source::Kind::number, static_cast<std::size_t>(position), name};
  return {Source::Kind::option, static_cast<std::size_t>(position - first_option), name};
}

Argument number_of(const OptionValue& value, const std::string& name) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  throw InternalError(fmt::format("the option '{}' has no value to launch with", name));
}

}  // namespace

LaunchedProgram::LaunchedProgram(const lang::Kernel& kernel, Target target, const OperatorSchema& schema)
    : function(compile(kernel, target)) {
  for (const ir::Parameter& parameter : kernel.ir()->parameters)
    sources.push_back(parameter.tensor ? source_of(parameter.tensor->name, true, schema)
                                       : source_of(parameter.scalar->name, false, schema));
}

void Launch::run(const LaunchedProgram& program, std::initializer_list<NamedValue> values) const {
  std::vector<Argument> args;
  args.reserve(program.sources.size());
  for (const Source& source : program.sources) {
    const auto* own = std::find_if(values.begin(), values.end(),
                                   [&](const NamedValue& value) { return value.name == source.name; });
    if (own != values.end()) {
      args.push_back(own->value);
    } else if (source.kind == Source::Kind::tensor && call_.at(source.index) != nullptr) {
      args.emplace_back(call_.formed(source.index));
    } else if (source.kind == Source::Kind::number) {
      args.emplace_back(call_.values()[source.index]);
    } else if (source.kind == Source::Kind::option) {
      args.push_back(number_of(call_.schema().options[source.index].get(call_.op()), source.name));
    } else if (const Tensor* tensor = shared(source.name)) {
      args.emplace_back(*tensor);
    } else {
      throw InternalError(fmt::format("{}: nothing is given for '{}' of kernel '{}'", call_.schema().name,
                                      source.name, program.function.name()));
    }
  }
  program.function.call_in_order(args);
}

const Tensor* Launch::shared(std::string_view name) const {
  const auto found =
      std::find_if(shared_.begin(), shared_.end(), [&](const auto& tensor) { return tensor.first == name; });
  return found != shared_.end() ? &found->second : nullptr;
}

void Launch::list(const lang::Kernel& kernel) {
  const bool is_new = std::none_of(kernels_.begin(), kernels_.end(),
                                   [&](const lang::Kernel& other) { return other.name() == kernel.name(); });
  if (is_new) kernels_.push_back(kernel);
}

Tensor Launch::scratch(const Shape& shape, DType type) {
  if (mode_ == Mode::run) return ops::scratch(shape, type, call_.device());
  return Tensor::adopt(TensorRef(nullptr, type, shape, call_.device()), nullptr);
}

}  // namespace tegula::ops
