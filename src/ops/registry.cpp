#include "ops/registry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "ops/schema/registered.hpp"

namespace tegula::ops {

std::string_view name_of(OptionType type) {
  constexpr std::string_view names[] = {"bool", "integer", "number", "choice"};
  return names[static_cast<int>(type)];
}

namespace {

template <class T>
std::string names_of(const std::vector<T>& things) {
  std::string result;
  for (const T& thing : things) result += (result.empty() ? "" : ", ") + thing.name;
  return result.empty() ? "none" : result;
}

template <class T>
bool parses_as(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_valid(const OptionInfo& option, const std::string& text) {
  switch (option.type) {
    case OptionType::boolean:
      return text == "true" || text == "false";
    case OptionType::integer:
      return parses_as<std::int64_t>(text);
    case OptionType::real:
      return parses_as<double>(text);
    case OptionType::choice:
      return std::find(option.choices.begin(), option.choices.end(), text) != option.choices.end();
  }
  return false;
}

std::string expected(const OptionInfo& option) {
  if (option.type == OptionType::boolean) return "true or false";
  if (option.type != OptionType::choice) return fmt::format("a value of type {}", name_of(option.type));
  return fmt::format("one of {}", fmt::join(option.choices, ", "));
}

}  // namespace

Options Options::parse(const Operator& op, const OptionTexts& texts) {
  Options result;
  for (const OptionInfo& option : op.options)
    if (!option.default_text.empty()) result.values_[option.name] = option.default_text;
  for (const auto& [name, text] : texts) {
    const auto option =
        std::find_if(op.options.begin(), op.options.end(), [&](auto& o) { return o.name == name; });
    if (option == op.options.end())
      throw ArgumentError(
          fmt::format("{} has no option '{}'; it has {}", op.name, name, names_of(op.options)));
    if (!is_valid(*option, text))
      throw ArgumentError(fmt::format("{}, option '{}': expected {}, given '{}'; {}", op.name, name,
                                      expected(*option), text, option->meaning));
    result.values_[name] = text;
  }
  return result;
}

bool Options::has(const std::string& name) const { return values_.count(name) > 0; }

const std::string& Options::text(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end())
    throw ArgumentError(fmt::format("option '{}' is required; give it a value", name));
  return found->second;
}

std::int64_t Options::integer(const std::string& name) const { return std::stoll(text(name)); }

int Options::small_integer(const std::string& name) const {
  const std::int64_t value = integer(name);
  if (value != static_cast<int>(value))
    throw ArgumentError(fmt::format("option '{}': expected an integer of 32 bits, given {}", name, value));
  return static_cast<int>(value);
}

double Options::real(const std::string& name) const { return std::stod(text(name)); }

namespace {

std::vector<Operator> all_operators() {
  std::vector<Operator> all;
  for (const OperatorSchema* schema : operator_schemas()) all.push_back(registered(*schema));
  return all;
}

}  // namespace

const std::vector<Operator>& operators() {
  static const std::vector<Operator> all = all_operators();
  return all;
}

const Operator& find_operator(const std::string& name) {
  for (const Operator& op : operators())
    if (op.name == name) return op;
  throw ArgumentError(fmt::format("there is no operator '{}'; there are {}", name, names_of(operators())));
}

Tensors copied_to(Device device, const Tensors& tensors) {
  Tensors copies;
  for (const auto& [name, tensor] : tensors) copies.emplace(name, tensor.to(device));
  return copies;
}

Tensors run_from_host(const Operator& op, const Tensors& inputs, const Options& options, Target target) {
  if (target.device() == DeviceKind::cpu) {
    // What is written in place is a copy, as it is on a device: the inputs stay what results are judged by.
    Tensors own = inputs, copies;
    for (const OutputInfo& output : op.outputs)
      if (const auto found = own.find(output.name); found != own.end())
        copies.emplace(output.name, found->second = found->second.clone());
    Tensors results = op.run(own, options, target);
    for (const auto& [name, copy] : copies) results.insert_or_assign(name, copy);
    return results;
  }
  const Tensors there = copied_to(Device::cuda(), inputs);  // which results may be
  const Tensors made = op.run(there, options, target);
  synchronize(Device::cuda());
  return copied_to(Device::cpu(), made);
}

void check_inputs(const Operator& op, const Tensors& inputs) {
  for (const InputInfo& input : op.inputs) {
    const auto found = inputs.find(input.name);
    if (found == inputs.end()) {
      if (input.required)
        throw ArgumentError(
            fmt::format("{} needs the input '{}', {} {}", op.name, input.name, input.meaning, input.shape));
      continue;
    }
    const DType type = found->second.dtype();
    if (std::find(input.dtypes.begin(), input.dtypes.end(), type) == input.dtypes.end())
      throw ArgumentError(fmt::format("{}, input '{}': dtype {} is not supported; convert it to {}", op.name,
                                      input.name, type.name(), input.dtypes.front().name()));
  }
  for (const auto& [name, tensor] : inputs) {
    const bool known =
        std::any_of(op.inputs.begin(), op.inputs.end(), [&](auto& i) { return i.name == name; });
    if (!known)
      throw ArgumentError(fmt::format("{} has no input '{}'; it has {}", op.name, name, names_of(op.inputs)));
  }
}

}  // namespace tegula::ops
