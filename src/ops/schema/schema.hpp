// The notation of operator tables: each member once, by a pointer to it.
//
//   const OperatorSchema& scaled_schema() {
//     static const OperatorSchema table =
//         Schema<Scaled>("scaled", "x * factor")
//             .in(&Scaled::x, "x", "... d", floats, "rows")
//             .option(&Scaled::factor, "factor", "of every element", finite)
//             .out(&Scaled::out, "out", "... d", same_as("x"), "x * factor")
//             .examples({{"ragged", "...=3,5 d=37 f16"}})
//             .run(run, formula);
//     return table;
//   }
#pragma once
#include <string_view>

#include "ops/schema/option_access.hpp"
#include "ops/schema/schema_lines.hpp"

namespace tegula::ops {

// Dtypes of a tensor.
inline TypeRule is(DType type) { return {{type}, "", "", {}}; }
inline TypeRule one_of(std::vector<DType> types) { return {std::move(types), "", "", {}}; }
inline TypeRule same_as(std::string tensor) { return {{}, std::move(tensor), "", {}}; }
// The dtype of an output: given by the option, otherwise that of the tensor, or `of_8_bits` if that has 8
// bits.
inline TypeRule chosen_by(std::string option, std::vector<DType> types, std::string tensor, DType of_8_bits) {
  return {std::move(types), std::move(tensor), std::move(option), of_8_bits};
}
inline const TypeRule floats = one_of({f32, f16, bf16});
inline const TypeRule products = one_of({f32, f16, bf16, e4m3, e5m2});
inline const TypeRule index = is(i32);

// Values of an option. Real numbers are always finite.
inline const OptionRule finite{{}, {}, false, "a finite number", "give another number"};
inline const OptionRule result_dtype{{}, {}, false, "f32, f16 or bf16", "convert the result"};
inline const OptionRule positive{0, {}, true, "a positive finite number", "give a positive number"};
inline OptionRule between(double low, double high, std::string expected = "",
                          std::string remedy = "give another value") {
  return {low, high, false, std::move(expected), std::move(remedy)};
}
inline const OptionRule block_size =
    between(1, 1 << 20, "a block size from 1 to 2^20", "change the block size");

namespace detail {

// A struct without arguments, and where in it that is of which `member` gives the address.
template <class Op>
const Op& sample_of() {
  static const Op sample{};
  return sample;
}
template <class Op, class Member>
std::size_t offset_in(const Member& member) {
  const Op& sample = sample_of<Op>();
  return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(member(sample)) -
                                  reinterpret_cast<const std::byte*>(&sample));
}

}  // namespace detail

template <class Op>
class Schema : SchemaLines {
 public:
  Schema(const char* name, const char* doc) : SchemaLines(name, doc) {
    table_.make = [] { return std::make_shared<Op>(); };
    table_.target = [](const void* op) { return static_cast<const Op*>(op)->target; };
    table_.set_target = [](void* op, Target target) { static_cast<Op*>(op)->target = target; };
  }

  // An input; one that is std::optional may be missing. `in` and `out` refer to the tensor last declared.
  template <class Owner, class Ref>
  Schema& in(Ref Owner::*member, const char* name, const std::string& dims, TypeRule type,
             const char* meaning) {
    add_input(place_of(member), name, dims, std::move(type), meaning);
    return *this;
  }
  // An input that the operator writes in place: the caller's memory holds the result, and PyTorch is told.
  template <class Owner, class Ref>
  Schema& inout(Ref Owner::*member, const char* name, const std::string& dims, TypeRule type,
                const char* meaning) {
    in(member, name, dims, std::move(type), meaning);
    last().written = true;
    return *this;
  }
  template <class Owner>
  Schema& out(std::optional<TensorRef> Owner::*member, const char* name, const std::string& dims,
              TypeRule type, const char* meaning) {
    add_output(place_of(member), name, dims, std::move(type), meaning);
    return *this;
  }
  // Properties of the tensor declared last: the remedy for a wrong extent; that its last dimension has stride
  // 1; that a program gets its dims in the order of the first list with the same dims; that its extents are
  // the wrong ones if they differ from others; in whose dtype it is computed; when it exists; integers in
  // examples, low <= value < end; other values in examples.
  Schema& remedy(const char* text) { return last().remedy = text, *this; }
  Schema& unit_stride() { return last().unit_stride = true, *this; }
  // It is a matrix, or several: of its last two dims one has stride 1.
  Schema& matrix() { return add_matrix(), *this; }
  // Numbers: PyTorch's int64 are taken too, and those that do not fit i32 are -1 or its largest.
  Schema& converts() { return last().converts = true, *this; }
  Schema& ordered() { return last().ordered = true, *this; }
  Schema& follows() { return last().follows = true, *this; }
  // For a tensor of boundaries: its last number may be less than the number of tokens.
  Schema& ends_early() { return last().packs->ends_early = true, *this; }
  // It says where sequences of the dim `tokens` begin and end; `promise` is the option that says how long
  // they are at most, and `longest` the name of what is known of that.
  Schema& packs(const char* tokens, const char* promise, const char* longest) {
    last().packs = PackingSpec{.tokens = Expression::parse(tokens), .promise = promise, .longest = longest};
    return let(longest, tokens);
  }
  // The same where nothing needs the length of the longest.
  Schema& packs(const char* tokens) {
    last().packs = PackingSpec{.tokens = Expression::parse(tokens)};
    return *this;
  }
  // For an input: where this holds, its gradient is a small difference of larger sums.
  Schema& cancels(const char* where = "1") { return last().cancels = Expression::parse(where), *this; }
  Schema& steps_of(const char* tensor) { return last().steps_of = tensor, *this; }
  Schema& when(const char* condition) { return last().when = Expression::parse(condition), *this; }
  Schema& range(const char* low, const char* end) { return add_range(low, end), *this; }
  Schema& values(decltype(TensorSpec::values) make) { return last().values = std::move(make), *this; }

  template <class Owner, class V>
  Schema& option(V Owner::*member, const char* name, const char* meaning, OptionRule rule = {}) {
    return add<V>([member](const Op& op) { return &(op.*member); }, name, meaning, std::move(rule));
  }
  // An option in a nested struct, such as the tiles.
  template <class Owner, class Inner, class V>
  Schema& option(Inner Owner::*outer, V Inner::*member, const char* name, const char* meaning,
                 OptionRule rule = {}) {
    return add<V>([=](const Op& op) { return &(op.*outer.*member); }, name, meaning, std::move(rule));
  }
  // Properties of the option declared last: it is required; its value if the caller leaves it to the
  // operator.
  Schema& needed() { return table_.options.back().needed = true, *this; }
  Schema& otherwise(const char* value) {
    return table_.options.back().otherwise = Expression::parse(value), *this;
  }
  // Lines that several tables have.
  template <class Lines>
  Schema& with(const Lines& add) {
    add(*this);
    return *this;
  }

  // A value by name for extents, rules and programs.
  Schema& let(const char* name, const char* value) { return add_value(name, value), *this; }
  // A rule that dims cannot say, and which argument is to blame. `{name}` in texts is the value of a dim.
  Schema& require(const char* argument, const char* condition, const char* expected, const char* remedy) {
    return add_rule(argument, condition, expected, remedy), *this;
  }
  Schema& require(const char* argument, bool (*holds)(const Bound<Op>&), const char* expected,
                  const char* remedy) {
    add_rule(
        argument, [holds](const BoundCall& call) { return holds(Bound<Op>(call)); }, expected, remedy);
    return *this;
  }
  Schema& gradient(const char* op) { return table_.gradient = op, *this; }
  Schema& no_gradient(const char* why) { return table_.no_gradient = why, *this; }
  // PyTorch's gradient is written by hand, of such calls.
  Schema& composed_gradient(const std::string& of) {
    table_.no_gradient = "it is composed of " + of, table_.composed = true;
    return *this;
  }
  Schema& rival(const char* name) { return table_.rival = name, *this; }
  Schema& source(const char* text) { return table_.source = text, *this; }
  Schema& flops(const std::string& amount) { return table_.flops = Expression::parse(amount), *this; }
  // Where a call's tensors say how much it is; then `flops` says what it is at most.
  Schema& counted(double (*amount)(const Bound<Op>&)) {
    table_.counted = [amount](const BoundCall& call) { return amount(Bound<Op>(call)); };
    return *this;
  }
  Schema& examples(std::vector<Example> examples) { return table_.examples = std::move(examples), *this; }
  Schema& measured(std::vector<Example> examples) { return table_.measured = std::move(examples), *this; }
  Schema& maps(std::vector<CallMap> maps) { return table_.maps = std::move(maps), *this; }

  // Calls whose kernels are compiled with the library; `{a|b}` stands for both.
  Schema& built_in(std::vector<std::string> calls) { return table_.built_in = std::move(calls), *this; }

  // The last line of a table: one program and the plan of its instance, or what runs them, and the formula.
  template <class Instance>
  OperatorSchema run(Instance (*plan)(const Bound<Op>&), lang::Kernel (*program)(const Instance&),
                     void (*formula)(const Bound<Op>&, Exact&)) {
    return finished([=](const BoundCall& call, Launch& launch) { launch(plan(Bound<Op>(call)), program); },
                    by(formula));
  }
  OperatorSchema run(void (*run)(const Bound<Op>&, Launch&), void (*formula)(const Bound<Op>&, Exact&)) {
    return finished([=](const BoundCall& call, Launch& launch) { run(Bound<Op>(call), launch); },
                    by(formula));
  }

 private:
  static auto by(void (*formula)(const Bound<Op>&, Exact&)) {
    return [formula](const BoundCall& call, Exact& exact) { formula(Bound<Op>(call), exact); };
  }

  template <class Owner, class Ref>
  static Place place_of(Ref Owner::*member) {
    return {detail::offset_in<Op>([member](const Op& op) { return &(op.*member); }),
            detail::IsOptional<Ref>::value};
  }

  template <class V, class Member>
  Schema& add(const Member& member, const char* name, const char* meaning, OptionRule rule) {
    using Access = detail::OptionAccessOf<V>;
    OptionSpec option;
    option.kind = Access::Type::kind, option.small = sizeof(typename Access::Value) <= 4;
    option.offset = detail::offset_in<Op>(member), option.access = &Access::access;
    if constexpr (Access::Type::kind == OptionKind::choice)
      for (const std::string_view choice : choice_names<typename Access::Value>)
        option.choices.emplace_back(choice);
    if constexpr (Access::Type::kind == OptionKind::dtype)
      for (const DType type : {f32, f16, bf16}) option.choices.emplace_back(type.name());
    add_option(std::move(option), name, meaning, std::move(rule), &detail::sample_of<Op>());
    return *this;
  }
};

// Checks a call and runs it; the results are the outputs of what is returned.
inline BoundCall run_call(const OperatorSchema& schema, const void* op) {
  BoundCall bound(schema, op);
  if (bound.is_empty()) return bound;
  Launch launch(bound, Launch::Mode::run);
  schema.run(bound, launch);
  return bound;
}

// The results of a call as the operator's function gives them: a tensor, a struct of one for each output, or
// none where all that it writes are inputs.
// `op` is completed: `tensors` are the inputs that must be given, in the table's order, where the struct does
// not have them yet; `named` are others.
template <class Result, class Op>
Result results_of(const OperatorSchema& schema, Op&& op, std::initializer_list<TensorRef> tensors = {},
                  std::initializer_list<std::pair<const char*, TensorRef>> named = {}) {
  const TensorRef* next = tensors.begin();
  for (std::size_t i = 0; i < schema.inputs && next != tensors.end(); ++i)
    if (!schema.tensors[i].optional) schema.tensors[i].set(&op, *next++);
  for (const auto& [name, tensor] : named) schema.find_tensor(name)->set(&op, tensor);
  const BoundCall call = run_call(schema, &op);
  if constexpr (std::is_void_v<Result>)
    return;
  else if constexpr (std::is_same_v<Result, Tensor>)
    return call.result(0);
  else
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return Result{call.result(I)...}; }
  (std::make_index_sequence<detail::field_count<Result>()>());
}

}  // namespace tegula::ops
