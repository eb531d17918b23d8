#include "ops/schema/example.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "ops/schema/bound.hpp"
#include "tegula/error.hpp"

namespace tegula::ops {

namespace {

std::optional<DType> dtype_named(const std::string& name) {
  for (const DType type : all_dtypes)
    if (type.name() == name) return type;
  return std::nullopt;
}

Shape extents(const std::string& text) {
  Shape result;
  std::istringstream stream(text);
  for (std::string one; std::getline(stream, one, ',');) result.push_back(std::stoll(one));
  return result;
}

void add_word(const OperatorSchema& schema, const std::string& word, ExampleCall& call) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, std::min(equals, word.find(':')));
  const std::string value = equals == std::string::npos ? "true" : word.substr(equals + 1);
  if (name == "strides") {
    call.strides = named<Strides>(value, strides_names);
  } else if (name == "packing") {
    call.packing = named<Packing>(value, packing_names);
  } else if (const auto type = dtype_named(word)) {
    call.type = *type, call.has_type = true;
  } else if (name == "...") {
    call.leading = extents(value);
  } else if (schema.find_option(name) != nullptr) {
    call.options[name] = parse_option(schema, name, value);
  } else if (schema.find_tensor(name) != nullptr) {
    call.given[name] = word == name ? std::nullopt : dtype_named(word.substr(name.size() + 1));
  } else if (std::find(schema.dims.begin(), schema.dims.end(), name) != schema.dims.end()) {
    call.dims[name] = std::stoll(value);
  } else {
    throw InternalError(fmt::format("an example of {} says '{}'", schema.name, word));
  }
}

}  // namespace

ExampleCall ExampleCall::parse(const OperatorSchema& schema, const std::string& text) {
  ExampleCall call;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) add_word(schema, word, call);
  return call;
}

std::vector<std::int64_t> ExampleCall::positions(const OperatorSchema& schema) const {
  std::vector<std::int64_t> result(schema.positions());
  for (std::size_t i = 0; i < schema.dims.size(); ++i) {
    const auto found = dims.find(schema.dims[i]);
    result[i] = found == dims.end() ? 1 : found->second;
  }
  const std::shared_ptr<void> op = schema.make();
  for (const auto& [name, value] : options)
    if (!std::holds_alternative<std::monostate>(value)) schema.find_option(name)->set(op.get(), value);
  std::size_t position = schema.first_option_position();
  for (const OptionSpec& option : schema.options) result[position++] = option.number(op.get());
  for (std::size_t i = 0; i < schema.inputs; ++i)
    result[position++] = !schema.tensors[i].optional || given.contains(schema.tensors[i].name);
  for (std::size_t i = 0; i < schema.derived.size(); ++i)
    result[schema.dims.size() + i] = schema.derived[i].value.evaluate(result.data());
  return result;
}

Shape ExampleCall::shape(const OperatorSchema& schema, const TensorSpec& tensor) const {
  const std::vector<std::int64_t> values = positions(schema);
  const auto list = std::find_if(tensor.lists.begin(), tensor.lists.end(), [&](const DimList& l) {
    return !l.condition || l.condition->evaluate(values.data()) != 0;
  });
  Shape result;
  for (const DimItem& item : list->items) {
    const bool is_missing = item.optional && !dims.contains(item.extent.name);
    if (item.leading)
      result.insert(result.end(), leading.begin(), leading.end());
    else if (!is_missing)
      result.push_back(item.extent.evaluate(values.data()));
  }
  return result;
}

Tensors ExampleCall::described(const OperatorSchema& schema) const {
  Tensors result;
  for (std::size_t i = 0; i < schema.inputs; ++i) {
    const TensorSpec& tensor = schema.tensors[i];
    if (!tensor.optional || given.contains(tensor.name))
      result.emplace(tensor.name, Tensor::adopt(described_as(strides_of(schema, tensor),
                                                             type_of(schema, tensor), shape(schema, tensor)),
                                                nullptr));
  }
  return result;
}

std::vector<std::string> expanded(const std::string& text) {
  const std::size_t open = text.find('{'), close = text.find('}', open);
  if (open == std::string::npos) return {text};
  std::vector<std::string> result;
  std::istringstream choices(text.substr(open + 1, close - open - 1) + "|");
  for (std::string choice; std::getline(choices, choice, '|');)
    for (const std::string& tail : expanded(text.substr(close + 1)))
      result.push_back(text.substr(0, open) + choice + tail);
  return result;
}

DType ExampleCall::type_of(const OperatorSchema& schema, const TensorSpec& tensor) const {
  const auto own = given.find(tensor.name);
  if (own != given.end() && own->second) return *own->second;
  if (tensor.type.like_index >= 0)
    return type_of(schema, schema.tensors[static_cast<std::size_t>(tensor.type.like_index)]);
  return has_type && tensor.type.lists(type) ? type : tensor.type.types.front();
}

Strides ExampleCall::strides_of(const OperatorSchema& schema, const TensorSpec& tensor) const {
  return type_of(schema, tensor) == type && type.is_floating() && !tensor.values ? strides : Strides::plain;
}

Tensor ExampleCall::values(const OperatorSchema& schema, const TensorSpec& tensor, std::uint64_t seed) const {
  const Shape of = shape(schema, tensor);
  const DType own = type_of(schema, tensor);
  const std::vector<std::int64_t> known = positions(schema);
  if (tensor.values)
    return tensor.values(of, own, seed, [&](const std::string& name) {
      return known.at(static_cast<std::size_t>(schema.position_of(name)));
    });
  if (tensor.packs) return boundaries(packing, of[0], tensor.packs->tokens.evaluate(known.data()), seed);
  if (own.is_floating() && !tensor.low) return Tensor::random_normal(of, own, seed);
  const std::int64_t low = tensor.low ? tensor.low->evaluate(known.data()) : 0;
  const std::int64_t end = tensor.end ? tensor.end->evaluate(known.data()) : own.is_boolean() ? 2 : 100;
  const Tensor integers = Tensor::random_integers(of, i32, seed, low, std::max(end, low + 1));
  return integers.to(own);
}

// For a gradient, uses only inputs that the forward has too.
Tensors ExampleCall::results_of_forward(const OperatorSchema& schema, const OperatorSchema& forward,
                                        const Tensors& inputs) const {
  constexpr double small = 1e8;
  Tensors own;
  OptionValues own_options;
  for (const auto& [name, tensor] : inputs)
    if (const TensorSpec* spec = forward.find_tensor(name); spec != nullptr && !spec->output)
      own.emplace(name, tensor);
  for (const auto& [name, value] : options)
    if (forward.find_option(name) != nullptr) own_options.emplace(name, value);
  const bool by_formula = CheckedCall(forward, own, own_options).bound.flops() < small;
  Tensors results;
  for (const auto& [name, result] :
       by_formula ? formula_by_name(forward, own, own_options) : call_by_name(forward, own, own_options))
    if (const TensorSpec* spec = schema.find_tensor(name); spec != nullptr && inputs.contains(name))
      results.emplace(name, result.to(type_of(schema, *spec)));
  return results;
}

Tensors ExampleCall::inputs(const OperatorSchema& schema, std::uint64_t seed) const {
  Tensors result;
  for (std::size_t i = 0; i < schema.inputs; ++i) {
    const TensorSpec& tensor = schema.tensors[i];
    if (!tensor.optional || given.contains(tensor.name))
      result.emplace(tensor.name,
                     laid_out(strides_of(schema, tensor), values(schema, tensor, seed + i), Device::cpu()));
  }
  const OperatorSchema* forward = schema.forward();
  const auto is_result = [&](const TensorSpec& tensor) {
    return tensor.output && result.contains(tensor.name);
  };
  if (forward == nullptr || std::none_of(forward->tensors.begin(), forward->tensors.end(), is_result))
    return result;
  try {
    Tensors results = results_of_forward(schema, *forward, result);
    results.merge(result);
    return results;
  } catch (const ArgumentError&) {
    return result;  // a wrong call, which is for the operator to refuse
  }
}

}  // namespace tegula::ops
