// Calls by names.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "ops/schema/schema.hpp"
#include "ops/schema/words.hpp"
#include "runtime/call/spelling.hpp"

namespace tegula::ops {

namespace {

template <class T>
std::string names_in(const std::vector<T>& specs) {
  std::string result;
  for (const T& spec : specs) result += (result.empty() ? "" : ", ") + spec.name;
  return result.empty() ? "none" : result;
}

[[noreturn]] void refuse_value(const OperatorSchema& schema, const OptionSpec& option,
                               const std::string& given) {
  throw ArgumentError(fmt::format("{}, option '{}': expected {}, given '{}'; {}", schema.name, option.name,
                                  expected_of(option), given, option.meaning));
}

bool is_choice(const OptionSpec& option, const OptionValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr &&
         std::find(option.choices.begin(), option.choices.end(), *text) != option.choices.end();
}

// The value in the option's own type; nothing if it has another.
std::optional<OptionValue> converted(const OptionSpec& option, const OptionValue& value) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  const auto* real = std::get_if<double>(&value);
  switch (option.kind) {
    case OptionKind::boolean:
      return std::holds_alternative<bool>(value) ? std::optional(value) : std::nullopt;
    case OptionKind::integer:
      if (integer == nullptr || (option.small && *integer != static_cast<std::int32_t>(*integer))) return {};
      return value;
    case OptionKind::real:
      if (integer != nullptr) return OptionValue(static_cast<double>(*integer));
      return real != nullptr ? std::optional(value) : std::nullopt;
    case OptionKind::choice:
    case OptionKind::dtype:
      return is_choice(option, value) ? std::optional(value) : std::nullopt;
  }
  return {};
}

void set_options(const OperatorSchema& schema, void* op, const OptionValues& options) {
  for (const auto& [name, value] : options) {
    const OptionSpec* option = schema.find_option(name);
    if (option == nullptr)
      throw ArgumentError(
          fmt::format("{} has no option '{}'; it has {}", schema.name, name, names_in(schema.options)));
    if (std::holds_alternative<std::monostate>(value)) continue;
    const auto own = converted(*option, value);
    if (!own) refuse_value(schema, *option, text_of(value));
    option->set(op, *own);
  }
  for (const OptionSpec& option : schema.options)
    if (option.needed && !options.contains(option.name))
      throw ArgumentError(
          fmt::format("{} needs the option '{}', {}", schema.name, option.name, option.meaning));
}

void set_tensors(const OperatorSchema& schema, void* op, const Tensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const TensorSpec* spec = schema.find_tensor(name);
    if (spec == nullptr)
      throw ArgumentError(
          fmt::format("{} has no input '{}'; it has {}", schema.name, name, names_in(schema.tensors)));
    spec->set(op, tensor.ref());
  }
  for (std::size_t i = 0; i < schema.inputs; ++i)
    if (!schema.tensors[i].optional && !tensors.contains(schema.tensors[i].name))
      throw ArgumentError(fmt::format("{} needs the input '{}', {} {}", schema.name, schema.tensors[i].name,
                                      schema.tensors[i].meaning, text_of(schema.tensors[i].lists.back())));
}

// At equal distances, so that a call with the copy is the same call.
Tensor copy_in_place(const Tensor& tensor) {
  const TensorRef& ref = tensor.ref();
  std::int64_t span = 1;
  for (std::size_t d = 0; d < ref.shape.size(); ++d) {
    if (ref.strides[d] < 0 || ref.shape[d] == 0) return tensor.clone();
    span += (ref.shape[d] - 1) * ref.strides[d];
  }
  if (ref.data == nullptr) return tensor;
  const Tensor memory = Tensor::empty({span}, ref.dtype, ref.device);
  TensorRef copy = ref;
  copy.data = memory.data();
  copy_elements(ref, copy);
  return Tensor::adopt(copy, memory.owner());
}

std::shared_ptr<void> made_by_name(const OperatorSchema& schema, const Tensors& tensors,
                                   const OptionValues& options, Target target) {
  std::shared_ptr<void> op = schema.make();
  set_tensors(schema, op.get(), tensors);
  set_options(schema, op.get(), options);
  schema.set_target(op.get(), target);
  return op;
}

template <class T>
std::optional<OptionValue> parsed(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return OptionValue(value);
}

std::optional<OptionValue> parsed(const OptionSpec& option, const std::string& text) {
  switch (option.kind) {
    case OptionKind::boolean:
      if (text != "true" && text != "false") return {};
      return OptionValue(text == "true");
    case OptionKind::integer:
      return parsed<std::int64_t>(text);
    case OptionKind::real:
      return parsed<double>(text);
    case OptionKind::choice:
    case OptionKind::dtype:
      break;
  }
  return OptionValue(text);
}

}  // namespace

CheckedCall::CheckedCall(const OperatorSchema& schema, const Tensors& tensors, const OptionValues& options,
                         Target target, BoundCall::Memory memory)
    : op(made_by_name(schema, tensors, options, target)), bound(schema, op.get(), memory) {}

const OperatorSchema& find_schema(const std::string& name) {
  std::string names;
  for (const OperatorSchema* schema : operator_schemas()) {
    if (schema->name == name) return *schema;
    names += (names.empty() ? "" : ", ") + schema->name;
  }
  throw ArgumentError(fmt::format("there is no operator '{}'; there are {}", name, names));
}

OptionValue parse_option(const OperatorSchema& schema, const std::string& name, const std::string& text) {
  const OptionSpec* option = schema.find_option(name);
  if (option == nullptr)
    throw ArgumentError(
        fmt::format("{} has no option '{}'; it has {}", schema.name, name, names_in(schema.options)));
  const auto value = parsed(*option, text);
  const auto own = value ? converted(*option, *value) : std::nullopt;
  if (!own) refuse_value(schema, *option, text);
  return *own;
}

Tensors call_in_place(const OperatorSchema& schema, const Tensors& tensors, const OptionValues& options,
                      Target target) {
  const std::shared_ptr<void> op = made_by_name(schema, tensors, options, target);
  return run_call(schema, op.get()).outputs();
}

Tensors call_by_name(const OperatorSchema& schema, const Tensors& tensors, const OptionValues& options,
                     Target target) {
  if (!schema.writes_inputs()) return call_in_place(schema, tensors, options, target);
  Tensors own = tensors;
  for (auto& [name, tensor] : own)
    if (const TensorSpec* spec = schema.find_tensor(name); spec != nullptr && spec->written)
      tensor = copy_in_place(tensor);
  Tensors results = call_in_place(schema, own, options, target);
  // The memory of copies belongs to the results.
  for (auto& [name, result] : results)
    if (const TensorSpec* spec = schema.find_tensor(name); spec->written) result = own.at(name);
  return results;
}

ListedCall listed_by_name(const OperatorSchema& schema, const Tensors& tensors, const OptionValues& options,
                          Target target) {
  const CheckedCall call(schema, tensors, options, target);
  Launch launch(call.bound, Launch::Mode::list);
  if (!call.bound.is_empty()) schema.run(call.bound, launch);
  return {launch.kernels(), launch.notes(), launch.moved()};
}

std::vector<lang::Kernel> kernels_by_name(const OperatorSchema& schema, const Tensors& tensors,
                                          const OptionValues& options, Target target) {
  return listed_by_name(schema, tensors, options, target).kernels;
}

DType plain_steps(const OperatorSchema& schema, const std::string& output, DType own,
                  const Tensors& tensors) {
  const std::string& like = schema.find_tensor(output)->steps_of;
  // Only operands have 8 bits: sums and results have at least 16.
  if (!like.empty()) return tensors.at(like).dtype().bits() == 8 ? bf16 : tensors.at(like).dtype();
  return own.is_floating() ? own : f32;
}

Tensors formula_of(const OperatorSchema& schema, const void* op, DType steps) {
  const BoundCall bound(schema, op);
  Exact exact(bound, steps);
  schema.formula(bound, exact);
  return exact.outputs();
}

Tensors formula_by_name(const OperatorSchema& schema, const Tensors& tensors, const OptionValues& options,
                        DType steps) {
  return formula_of(schema, made_by_name(schema, tensors, options, Target::automatic()).get(), steps);
}

}  // namespace tegula::ops
