#include "ops/schema/gradient.hpp"

#include <algorithm>

namespace tegula::ops {

namespace {

bool is_floating(const TensorSpec& tensor) { return tensor.type.types.front().is_floating(); }

// The option of the operator's struct, for a struct in which that begins at `base`.
OptionSpec moved(OptionSpec option, std::size_t base) {
  option.offset += base;
  return option;
}

TensorSpec gradient_of(const TensorSpec& of) {
  TensorSpec gradient = of;
  gradient.name = "d" + of.name, gradient.meaning = "gradient of " + of.name;
  return gradient;
}

// When an optional input has a gradient: where it is given, and its gradient is wanted.
std::string condition_of(const TensorSpec& input, const OperatorSchema& table) {
  const std::string option = input.name + "_gradient";
  const bool is_asked = std::any_of(table.options.begin(), table.options.end(),
                                    [&](const OptionSpec& own) { return own.name == option; });
  return is_asked ? input.name + " & " + option : input.name;
}

std::string first_dim(const TensorSpec& tensor) { return tensor.lists.back().items.front().extent.text(); }

// The examples with all gradients that may be missing; the first without them, too.
std::vector<Example> with_optional_gradients(const std::vector<Example>& examples,
                                             const std::vector<TensorSpec>& given) {
  std::vector<Example> result;
  for (const Example& example : examples) {
    Example whole{example.name + "_whole", example.text};
    for (const TensorSpec& gradient : given)
      if (gradient.optional && example.text.find(gradient.when->text()) != std::string::npos)
        whole.text += " " + gradient.name;
    const bool has_more = whole.text != example.text;
    if (has_more) result.push_back(whole);
    if (!has_more || result.size() == 1) result.push_back(example);
  }
  return result;
}

}  // namespace

OperatorSchema gradient_of(const OperatorSchema& forward, const std::string& flops,
                           const std::string& steps_of, GradientPlaces places) {
  OperatorSchema table;
  table.name = forward.gradient, table.doc = "gradients of " + forward.name;
  table.source = forward.source, table.no_gradient = "second derivatives are not computed";
  table.derived = forward.derived, table.requirements = forward.requirements;
  table.measured = forward.measured, table.maps = forward.maps;
  table.flops = Expression::parse(flops);
  for (const OptionSpec& option : forward.options) table.options.push_back(moved(option, places.base));
  for (const TensorSpec& result : forward.tensors)
    if (result.output && is_floating(result)) {
      TensorSpec given = gradient_of(result);
      given.output = given.holds_optional = false, given.offset = places.given;
      given.optional = given.when.has_value();
      places.given += sizeof(TensorRef);
      table.tensors.push_back(std::move(given));
    }
  table.examples = with_optional_gradients(forward.examples, table.tensors);
  for (TensorSpec& given : table.tensors) given.when.reset();
  const auto result = std::find_if(forward.tensors.begin(), forward.tensors.end(),
                                   [](const TensorSpec& tensor) { return tensor.output; });
  for (const TensorSpec& input : forward.tensors)
    if (!input.output) {
      table.tensors.push_back(input);
      table.tensors.back().offset += places.base;
    }
  table.inputs = table.tensors.size();
  for (const TensorSpec& input : forward.tensors)
    if (!input.output && is_floating(input)) {
      TensorSpec made = gradient_of(input);
      const bool has_rows = first_dim(input) == first_dim(*result);
      made.type = has_rows ? TypeRule{{}, input.name, "", {}} : TypeRule{{f32}, "", "", {}};
      made.steps_of = steps_of;
      if (input.optional) made.when = Expression::parse(condition_of(input, table));
      made.output = made.holds_optional = true, made.optional = false, made.offset = places.made;
      places.made += sizeof(std::optional<TensorRef>);
      table.tensors.push_back(std::move(made));
    }
  return table;
}

}  // namespace tegula::ops
