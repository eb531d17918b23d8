// One sweep over the tables of all operators: extents, dtypes, optional tensors, where tensors are, and wrong
// calls of every kind.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ops/schema/bound.hpp"
#include "ops/schema/example.hpp"
#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "runtime/testing/test_environment.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::ops {
namespace sweep_test {

constexpr std::chrono::seconds most_time{200};
// The limit of an example that is tried here; larger ones are for GPUs.
constexpr double most_operations = 1e7;

const std::vector<std::int64_t>& swept_extents() {
  static const std::vector<std::int64_t> all{0, 1, 5, 15, 16, 17, 63, 65};
  return all;
}

// A wrong call is an ArgumentError. Of most calls no inputs are made: those that lists of blocks make small
// are counted by their inputs.
bool is_small(const OperatorSchema& schema, const ExampleCall& call) {
  const auto operations = [&](const Tensors& inputs) {
    return CheckedCall(schema, inputs, call.options).bound.flops();
  };
  return operations(call.described(schema)) <= most_operations ||
         operations(call.inputs(schema, 3)) <= most_operations;
}

std::vector<ExampleCall> small_examples(const OperatorSchema& schema) {
  std::vector<ExampleCall> calls;
  for (const Example& example : schema.examples)
    if (ExampleCall call = ExampleCall::parse(schema, example.text); is_small(schema, call))
      calls.push_back(std::move(call));
  return calls;
}

// Calls that differ from an example in one thing each.
class Variants {
 public:
  explicit Variants(const OperatorSchema& schema) : schema_(schema) {}

  std::vector<ExampleCall> derived() {
    base_ = ExampleCall::parse(schema_, schema_.examples.front().text);
    vary_extents(), vary_types(), vary_tensors(), vary_options();
    return std::move(calls_);
  }
  std::vector<ExampleCall> all() {
    std::vector<ExampleCall> result = small_examples(schema_);
    for (ExampleCall& call : derived()) result.push_back(std::move(call));
    return result;
  }

 private:
  template <class F>
  void add(F change) {
    ExampleCall call = base_;
    change(call);
    calls_.push_back(std::move(call));
  }
  void vary_extents() {
    for (const auto& [name, extent] : base_.dims)
      for (const std::int64_t swept : swept_extents())
        add([&, name = name](ExampleCall& call) { call.dims[name] = swept; });
    if (base_.leading.empty()) return;
    for (const Shape& leading : {Shape{}, Shape{0}, Shape{1}, Shape{17}, Shape{65}, Shape{3, 1, 5}})
      add([&](ExampleCall& call) { call.leading = leading; });
  }
  void vary_types() {
    for (std::size_t i = 0; i < schema_.inputs; ++i)
      for (const DType type : schema_.tensors[i].type.types) {
        const TensorSpec& tensor = schema_.tensors[i];
        if (tensor.optional)
          add([&](ExampleCall& call) { call.given[tensor.name] = type; });
        else if (tensor.type.like.empty())
          add([&](ExampleCall& call) { call.type = type, call.has_type = true; });
      }
  }
  void vary_tensors() {
    for (std::size_t i = 0; i < schema_.inputs; ++i)
      if (schema_.tensors[i].optional)
        add([&](ExampleCall& call) { call.given.erase(schema_.tensors[i].name); });
  }
  void vary_options() {
    for (const OptionSpec& option : schema_.options) {
      if (option.kind == OptionKind::boolean)
        for (const bool value : {false, true}) add([&](ExampleCall& c) { c.options[option.name] = value; });
      for (const std::string& choice : option.choices)
        add([&](ExampleCall& call) { call.options[option.name] = choice; });
    }
  }

  const OperatorSchema& schema_;
  ExampleCall base_;
  std::vector<ExampleCall> calls_;
};

std::string text_of(const OperatorSchema& schema, const Tensors& inputs, Target target) {
  std::string text = schema.name + " " + std::string(target.name());
  for (const auto& [name, tensor] : inputs) text += fmt::format(" {}={}", name, describe(tensor.ref()));
  return text;
}

// NaN is around every tensor, and between rows. What leading dims fold, and outputs of theirs, stays whole,
// and so do records of bytes, whose fields have places of their own.
bool may_be_planted(const OperatorSchema& schema, const std::string& name, const Tensor& tensor) {
  const TensorSpec& spec = *schema.find_tensor(name);
  const bool folds = spec.lists.front().items.front().leading && tensor.rank() > 2;
  return tensor.rank() > 0 && !folds && !is_record(spec, tensor) && !spec.output;
}

void expect_right(const OperatorSchema& schema, const ExampleCall& example, const Tensors& plain_inputs,
                  Target target) {
  SCOPED_TRACE(text_of(schema, plain_inputs, target));
  const Watchdog watchdog(text_of(schema, plain_inputs, target), most_time);
  Tensors inputs;
  for (const auto& [name, tensor] : plain_inputs)
    inputs.emplace(name, may_be_planted(schema, name, tensor) ? Planted(tensor).inside : tensor);
  EXPECT_EQ(faults_of(judge_call(schema, inputs, example.options,
                                 call_by_name(schema, inputs, example.options, target))),
            "");
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const OperatorSchema* schema : operator_schemas()) result.push_back(schema->name);
  return result;
}

// Extents that a rule of the operator excludes are refused, by an ArgumentError that says so.
std::optional<Tensors> right_inputs(const OperatorSchema& schema, const ExampleCall& example,
                                    bool with_values = true) {
  try {
    Tensors inputs = with_values ? example.inputs(schema, 3) : example.described(schema);
    CheckedCall(schema, inputs, example.options);
    return inputs;
  } catch (const ArgumentError&) { return std::nullopt; }
}

// The calls of one operator may take as long as those of ten others: a row has every sixth of them.
constexpr int rows_of_operator = 6;
class OperatorRows : public testing::TestWithParam<std::tuple<std::string, int>> {};

std::vector<ExampleCall> of_row(int row, const std::vector<ExampleCall>& all) {
  std::vector<ExampleCall> result;
  for (std::size_t i = static_cast<std::size_t>(row); i < all.size(); i += rows_of_operator)
    result.push_back(all[i]);
  return result;
}

TEST_P(OperatorRows, VariantsAgreeWithTheFormula) {
  const auto& [name, row] = GetParam();
  const OperatorSchema& schema = find_schema(name);
  for (const ExampleCall& call : of_row(row, Variants(schema).all()))
    if (const std::optional<Tensors> inputs = right_inputs(schema, call))
      expect_right(schema, call, *inputs, Target::interpreter());
}

TEST_P(OperatorRows, ExamplesAgreeWithTheFormulaOnAllExecutors) {
  const auto& [name, row] = GetParam();
  if (test_targets().size() == 1) GTEST_SKIP() << "there is no compiler";
  const OperatorSchema& schema = find_schema(name);
  for (const ExampleCall& example : of_row(row, small_examples(schema))) {
    const Tensors inputs = example.inputs(schema, 3);
    for (const Target target : {Target::cpu(), Target::emulated_sm90()})
      expect_right(schema, example, inputs, target);
  }
}

class Sweep : public testing::TestWithParam<std::string> {};

TEST_P(Sweep, ManyVariantsAreRight) {
  const OperatorSchema& schema = find_schema(GetParam());
  const std::vector<ExampleCall> all = Variants(schema).all();
  const auto is_right = [&](const ExampleCall& call) {
    return right_inputs(schema, call, false).has_value();
  };
  EXPECT_GT(std::ranges::count_if(all, is_right), 10);
}

// Calls between the examples on what compiles: of an operator's variants six, or every sixth of them all
// where all rows of tables run.
std::vector<ExampleCall> derived_calls(const OperatorSchema& schema, int row) {
  std::vector<ExampleCall> right;
  for (const ExampleCall& example : Variants(schema).derived()) {
    const std::optional<Tensors> described = right_inputs(schema, example, false);
    if (!described || CheckedCall(schema, *described, example.options).bound.is_empty()) continue;
    if (is_small(schema, example)) right.push_back(example);
  }
  const std::size_t step = std::max<std::size_t>(right.size() / rows_of_operator, 1),
                    first = static_cast<std::size_t>(row) * step + schema.name.size() % step;
  if (!tests_all_rows()) return {right.at(std::min(first, right.size() - 1))};
  return of_row(row, right);
}

TEST_P(OperatorRows, DerivedCallsAgreeWithTheFormula) {
  const auto& [name, row] = GetParam();
  if (test_targets().size() == 1) GTEST_SKIP() << "there is no compiler";
  const OperatorSchema& schema = find_schema(name);
  std::vector<Target> targets{row % 2 == 0 ? Target::cpu() : Target::emulated_sm90()};
  if (tests_all_rows()) targets = {Target::cpu(), Target::emulated_sm90()};
  for (const ExampleCall& example : derived_calls(schema, row)) {
    const Tensors inputs = example.inputs(schema, 3);
    for (const Target target : targets) expect_right(schema, example, inputs, target);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, OperatorRows,
                         testing::Combine(testing::ValuesIn(names()), testing::Range(0, rows_of_operator)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
                         });

// Wrong calls, one of each kind.
class Refusals {
 public:
  explicit Refusals(const OperatorSchema& schema)
      : schema_(schema),
        example_(ExampleCall::parse(schema, schema.examples.front().text)),
        inputs_(example_.inputs(schema, 3)) {}

  std::string with(const std::string& name, const Tensor& tensor) const {
    Tensors changed = inputs_;
    changed.insert_or_assign(name, tensor);
    return refusal([&] { call_by_name(schema_, changed, example_.options, Target::interpreter()); });
  }
  std::string with(const std::string& name, const OptionValue& value) const {
    OptionValues changed = example_.options;
    changed[name] = value;
    return refusal([&] { call_by_name(schema_, inputs_, changed, Target::interpreter()); });
  }
  std::string without(const std::string& name) const {
    Tensors changed = inputs_;
    changed.erase(name);
    return refusal([&] { call_by_name(schema_, changed, example_.options, Target::interpreter()); });
  }
  void expect_text(const std::string& text, const std::string& wanted) const {
    EXPECT_NE(text.find(schema_.name), std::string::npos) << text;
    EXPECT_NE(text.find(wanted), std::string::npos) << text;
  }

  void of_input(const TensorSpec& spec) const {
    const auto found = inputs_.find(spec.name);
    if (found == inputs_.end()) return;
    const Tensor& tensor = found->second;
    const std::string argument = "'" + spec.name + "'";
    expect_text(with(spec.name, Tensor::zeros(tensor.shape(), i16)), argument + ": expected dtype");
    // Rows of any rank are right, unless others have another.
    const bool folds = spec.lists.front().items.front().leading;
    if (!folds || inputs_.size() > 1)
      expect_text(with(spec.name, Tensor::zeros({1, 1, 1, 1, 1, 1, 1, 1}, tensor.dtype())),
                  folds ? "expected" : argument + ": expected rank");
    Shape huge = tensor.shape();
    huge.back() = std::int64_t{1} << 29;
    expect_text(with(spec.name, Tensor::adopt(TensorRef(nullptr, tensor.dtype(), huge), nullptr)),
                argument + ": expected extents below 2^29");
    expect_text(with(spec.name, Tensor::adopt(TensorRef(nullptr, tensor.dtype(), tensor.shape()), nullptr)),
                argument + ": expected memory");
    if (!spec.optional) expect_text(without(spec.name), "needs the input " + argument);
    if (spec.unit_stride && tensor.shape().back() > 1) expect_text(with(spec.name, spread(tensor)), argument);
    // The second of two tensors is at fault.
    if (inputs_.size() > 1 && !spec.written) expect_text(with(spec.name, elsewhere(tensor)), ": expected ");
  }
  // A copy whose features are not one after the other.
  static Tensor spread(const Tensor& tensor) {
    Shape wide = tensor.shape();
    wide.back() *= 2;
    const Tensor all = Tensor::zeros(wide, tensor.dtype());
    TensorRef every_second = all.ref();
    every_second.shape = tensor.shape(), every_second.strides.back() = 2;
    return Tensor::adopt(every_second, all.owner());
  }
  // As if it were on a GPU.
  static Tensor elsewhere(const Tensor& tensor) {
    return Tensor::adopt(TensorRef(tensor.ref().data, tensor.dtype(), tensor.shape(), Device::cuda()),
                         tensor.owner());
  }
  void of_output(const TensorSpec& spec, const Tensor& right) const {
    const std::string argument = "'" + spec.name + "'";
    Shape longer = right.shape();
    longer.front() += 1;
    expect_text(with(spec.name, Tensor::zeros(longer, right.dtype())), argument + ": expected [");
    expect_text(with(spec.name, Tensor::zeros(right.shape(), i16)), argument);
    const Tensor one = Tensor::zeros({1}, right.dtype());
    if (right.nelements() > 1 && !spec.unit_stride)
      expect_text(with(spec.name, Tensor::adopt(one.ref().expand(right.shape()), one.owner())),
                  argument + ": expected elements that share no memory");
    // What is written in place is copied before a call is checked.
    if (right.nelements() == 0 || spec.written) return;
    expect_text(with(spec.name, elsewhere(Tensor::zeros(right.shape(), right.dtype()))),
                argument + ": expected a tensor on cpu");
    for (const auto& [name, input] : inputs_)
      if (input.nelements() > 0)
        expect_text(with(spec.name, Tensor::adopt(TensorRef(input.ref().data, right.dtype(), right.shape()),
                                                  input.owner())),
                    argument + ": expected its own memory, not that of ");
  }
  void of_option(const OptionSpec& option) const {
    const std::string argument = "'" + option.name + "'";
    expect_text(with(option.name, std::string("no such value")), "option " + argument + ": expected");
    if (option.kind == OptionKind::real) expect_text(with(option.name, std::nan("")), argument);
    const double step = option.kind == OptionKind::integer ? 1 : 0;
    for (const auto& [limit, beyond] :
         {std::pair(option.rule.low, -step), std::pair(option.rule.high, step)}) {
      if (!limit || (step == 0 && !option.rule.above_low)) continue;
      const double value = *limit + beyond;
      expect_text(
          with(option.name, option.kind == OptionKind::integer ? OptionValue(static_cast<std::int64_t>(value))
                                                               : OptionValue(value)),
          argument + ": expected");
    }
  }
  void all() const {
    for (const TensorSpec& spec : schema_.tensors)
      if (!spec.output) of_input(spec);
    for (const auto& [name, right] : formula_by_name(schema_, inputs_, example_.options)) {
      const TensorSpec& spec = *schema_.find_tensor(name);
      if (!spec.when) of_output(spec, CheckedCall(schema_, inputs_, example_.options).bound.output(name));
    }
    for (const OptionSpec& option : schema_.options) of_option(option);
    expect_text(with("no_such_input", inputs_.begin()->second), "has no input 'no_such_input'; it has");
    expect_text(with("no_such_option", true), "has no option 'no_such_option'; it has");
  }

 private:
  const OperatorSchema& schema_;
  ExampleCall example_;
  Tensors inputs_;
};

TEST_P(Sweep, WrongCallsAreRefused) { Refusals(find_schema(GetParam())).all(); }

TEST_P(Sweep, TablesAreComplete) {
  const OperatorSchema& schema = find_schema(GetParam());
  EXPECT_FALSE(schema.doc.empty());
  EXPECT_FALSE(schema.examples.empty());
  EXPECT_FALSE(schema.measured.empty());
  EXPECT_NE(schema.gradient.empty(), schema.no_gradient.empty()) << "a gradient, or why there is none";
  if (!schema.gradient.empty()) find_schema(schema.gradient);
  for (const TensorSpec& tensor : schema.tensors) EXPECT_FALSE(tensor.meaning.empty()) << tensor.name;
  for (const Example& example : schema.measured) {
    const ExampleCall call = ExampleCall::parse(schema, example.text);
    const Tensors shapes = call.described(schema);
    EXPECT_FALSE(kernels_by_name(schema, shapes, call.options, Target::cpu()).empty()) << example.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, Sweep, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace sweep_test
}  // namespace tegula::ops
