// Entries of the registry that follow from tables.
#include "ops/schema/registered.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/schema/example.hpp"
#include "ops/schema/judge.hpp"
#include "ops/schema/schema.hpp"
#include "ops/schema/words.hpp"

namespace tegula::ops {

namespace {

std::string shape_text(const TensorSpec& tensor) {
  std::vector<std::string> texts;
  for (const DimList& list : tensor.lists)
    texts.push_back(list.condition ? fmt::format("{} if {}", text_of(list), list.condition->text())
                                   : text_of(list));
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string type_text(const TypeRule& rule) {
  const std::string like = rule.like.empty() ? names_of(rule.types) : "that of " + rule.like;
  const std::string of_8_bits = rule.of_8_bits ? fmt::format(", {} for fp8", rule.of_8_bits->name()) : "";
  return rule.option.empty() ? like + of_8_bits : fmt::format("{}, or {}{}", rule.option, like, of_8_bits);
}

OptionInfo info_of(const OptionSpec& option) {
  constexpr OptionType types[] = {OptionType::boolean, OptionType::integer, OptionType::real,
                                  OptionType::choice, OptionType::choice};
  const bool has_default = !option.needed && !std::holds_alternative<std::monostate>(option.fallback);
  return {option.name, types[static_cast<int>(option.kind)], has_default ? text_of(option.fallback) : "",
          option.otherwise ? fmt::format("{}, {} unless given", option.meaning, option.otherwise->text())
                           : option.meaning,
          option.choices};
}

OptionValues values_of(const OperatorSchema& schema, const Options& options) {
  OptionValues result;
  for (const OptionSpec& option : schema.options)
    if (options.has(option.name))
      result[option.name] = parse_option(schema, option.name, options.text(option.name));
  return result;
}

// Plans for a CPU read the boundaries of packed sequences.
Tensors described(const OperatorSchema& schema, const ExampleCall& call, std::uint64_t seed) {
  Tensors result = call.described(schema);
  for (std::size_t i = 0; i < schema.inputs; ++i)
    if (const TensorSpec& tensor = schema.tensors[i]; tensor.packs && result.contains(tensor.name))
      result.insert_or_assign(tensor.name, call.values(schema, tensor, seed + i));
  return result;
}

Case case_of(const OperatorSchema& schema, const Example& example) {
  const ExampleCall call = ExampleCall::parse(schema, example.text);
  OptionTexts options;
  for (const auto& [name, value] : call.options) options[name] = text_of(value);
  return {example.name, std::move(options),
          [&schema, call](std::uint64_t seed) { return call.inputs(schema, seed); },
          [&schema, call] { return described(schema, call, 1); }};
}

Work work_of(const OperatorSchema& schema, const Tensors& in, const Options& options) {
  const CheckedCall call(schema, in, values_of(schema, options));
  return {call.bound.flops(), call.bound.bytes()};
}

std::vector<std::string> results_of_call(const OperatorSchema& schema, const Tensors& in,
                                         const Options& options) {
  const CheckedCall call(schema, in, values_of(schema, options));
  std::vector<std::string> names;
  for (const TensorSpec& tensor : schema.tensors)
    if ((tensor.output || tensor.written) && call.bound.has(tensor.name)) names.push_back(tensor.name);
  return names;
}

void describe(const OperatorSchema& schema, Operator& op) {
  op.name = schema.name, op.summary = schema.doc;
  for (const TensorSpec& tensor : schema.tensors) {
    if (tensor.output || tensor.written)
      op.outputs.push_back({tensor.name, shape_text(tensor), type_text(tensor.type)});
    if (!tensor.output)
      op.inputs.push_back(
          {tensor.name, shape_text(tensor), tensor.type.types, !tensor.optional, tensor.meaning});
  }
  for (const OptionSpec& option : schema.options) op.options.push_back(info_of(option));
  for (const Example& example : schema.examples) op.check_cases.push_back(case_of(schema, example));
  for (const Example& example : schema.measured) op.bench_cases.push_back(case_of(schema, example));
}

}  // namespace

Operator registered(const OperatorSchema& schema) {
  Operator op;
  describe(schema, op);
  op.run = [&schema](const Tensors& in, const Options& options, Target target) {
    return call_in_place(schema, in, values_of(schema, options), target);
  };
  op.reference = [&schema](const Tensors& in, const Options& options) {
    return formula_by_name(schema, in, values_of(schema, options));
  };
  op.listed = [&schema](const Tensors& in, const Options& options, Target target) {
    return listed_by_name(schema, in, values_of(schema, options), target);
  };
  op.work = [&schema](const Tensors& in, const Options& options) { return work_of(schema, in, options); };
  op.results = [&schema](const Tensors& in, const Options& options) {
    return results_of_call(schema, in, options);
  };
  op.judge = [&schema](const Tensors& in, const Options& options, const Tensors& results) {
    return judge_call(schema, in, values_of(schema, options), results);
  };
  return op;
}

}  // namespace tegula::ops
