// For tests: random calls of all operators, as their tables say: an example of which dims, dtypes, tensors
// that are given, options and strides have been changed. Call n of an operator is the same on every machine.
#pragma once
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "ops/schema/bound.hpp"
#include "ops/schema/example.hpp"
#include "ops/schema/judge.hpp"

namespace tegula::ops {

struct RandomCall {
  const OperatorSchema* schema = nullptr;
  Tensors inputs;
  OptionValues options;
  std::string text;
};

class RandomCalls {
 public:
  explicit RandomCalls(std::uint64_t seed) : random_(seed * 2 + 1) {}

  // Changes that the operator refuses are made anew.
  RandomCall of(const std::string& op) {
    const OperatorSchema& schema = find_schema(op);
    for (;;) {
      ExampleCall example = ExampleCall::parse(schema, any(schema.examples).text);
      change(schema, example);
      try {
        const CheckedCall described(schema, example.described(schema), example.options);
        if (described.bound.flops() > most_operations) continue;
        RandomCall call{&schema, example.inputs(schema, random_()), example.options, ""};
        repeat_some(call);
        CheckedCall(schema, call.inputs, call.options, Target::automatic(), BoundCall::Memory::used);
        call.text = text_of(call);
        return call;
      } catch (const ArgumentError&) {}
    }
  }

 private:
  static constexpr double most_operations = 2e7;

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <class T>
  const T& any(const std::vector<T>& of) {
    return of[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(of.size()) - 1))];
  }

  void change(const OperatorSchema& schema, ExampleCall& example) {
    static const std::vector<std::int64_t> extents{1, 1, 2, 3, 4, 5, 8, 16, 17, 24, 40, 64, 65, 80, 128, 200};
    for (auto& [name, extent] : example.dims)
      if (chance(30)) extent = chance(5) ? 0 : any(extents);
    if (!example.leading.empty() && chance(50)) example.leading = any(leading_);
    if (chance(50)) example.type = any(types_), example.has_type = true;
    for (std::size_t i = 0; i < schema.inputs; ++i) {
      const TensorSpec& tensor = schema.tensors[i];
      if (!tensor.optional || !chance(20)) continue;
      if (example.given.erase(tensor.name) == 0) example.given[tensor.name] = any(tensor.type.types);
    }
    for (const OptionSpec& option : schema.options)
      if (chance(20)) change(schema, option, example);
  }
  void change(const OperatorSchema& schema, const OptionSpec& option, ExampleCall& example) {
    static const std::vector<std::int64_t> integers{-1, 0, 1, 2, 3, 7, 16, 20, 48, 64, 100, 128};
    static const std::vector<double> numbers{0, 1e-5, 0.3, 1, 5};
    OptionValue value;
    if (option.kind == OptionKind::boolean) value = chance(50);
    if (option.kind == OptionKind::integer) value = any(integers);
    if (option.kind == OptionKind::real) value = any(numbers);
    if (!option.choices.empty()) value = any(option.choices);
    const std::shared_ptr<void> op = schema.make();
    option.set(op.get(), value);
    if (option.obeys(op.get())) example.options[option.name] = value;
  }

  // As an expanded tensor is, with the stride 0 along a dimension that is not the last. Tensors that results
  // of another operator belong to stay as they are.
  void repeat_some(RandomCall& call) {
    const OperatorSchema* forward = call.schema->forward();
    for (auto& [name, tensor] : call.inputs) {
      const bool is_free = tensor.dtype().is_floating() && tensor.rank() > 1 && tensor.nelements() > 0 &&
                           (forward == nullptr || forward->find_tensor(name) == nullptr);
      if (!is_free || !chance(15)) continue;
      const auto dim = static_cast<int>(between(0, tensor.rank() - 2));
      tensor = tensor.slice(dim, 0, 1).expand(tensor.shape());
    }
  }

  static std::string text_of(const RandomCall& call) {
    std::string text = call.schema->name;
    for (const auto& [name, tensor] : call.inputs) text += " " + name + "=" + describe(tensor.ref());
    for (const auto& [name, value] : call.options) text += " " + name + "=" + text_of(value);
    return text;
  }
  static std::string text_of(const OptionValue& value) {
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    if (const auto* number = std::get_if<double>(&value)) return std::to_string(*number);
    if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
    const auto* integer = std::get_if<std::int64_t>(&value);
    return integer == nullptr ? "nothing" : std::to_string(*integer);
  }

  std::mt19937_64 random_;
  const std::vector<DType> types_{f32, f16, bf16};
  const std::vector<Shape> leading_{{}, {0}, {1}, {3}, {70}, {2, 9}, {3, 1, 5}};
};

inline std::vector<std::string> randomly_called() {
  std::vector<std::string> names;
  for (const OperatorSchema* schema : operator_schemas()) names.push_back(schema->name);
  return names;
}

// Calls whose values the operator refuses, as it may where it is asked to look at them, all refuse.
inline void expect_right(const RandomCall& call, const std::vector<Target>& targets) {
  SCOPED_TRACE(call.text);
  int refused = 0;
  for (const Target target : targets) {
    const bool on_host = target.device() == DeviceKind::cpu;
    Tensors inputs;
    for (const auto& [name, tensor] : call.inputs)
      inputs.emplace(name, on_host ? tensor : tensor.to(Device::cuda()));
    try {
      Tensors results = call_by_name(*call.schema, inputs, call.options, target);
      if (!on_host) synchronize(Device::cuda());
      for (auto& [name, result] : results) result = result.to(Device::cpu());
      EXPECT_EQ(faults_of(judge_call(*call.schema, call.inputs, call.options, results)), "") << target.name();
    } catch (const ArgumentError&) { ++refused; }
  }
  EXPECT_TRUE(refused == 0 || refused == static_cast<int>(targets.size()));
}

}  // namespace tegula::ops
