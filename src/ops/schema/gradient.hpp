// The table of a gradient, derived from that of its operator.
//
//   gradient_table<plan<64>, backward, formula<Traced>>(rms_norm_schema(), "12*rows*d")
//   gradient_table<run, formula<Traced>>(linear_attention_schema(), "10*tokens*d", "q")
//
// Its tensors are the gradients of the results, `dout` of `out`, and all inputs; its results are the
// gradients of the inputs that are floating, `dx` of `x`: of x's dtype where x begins with the dim with which
// the first result does, and else a sum in f32. Gradients of results that are there under a condition may be
// missing; examples have them, and the first is tried without, too. Options, rules, examples and the source
// are those of the operator.
#pragma once
#include "ops/schema/derivative.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

// The arguments of a gradient: those of its operator, gradients of its results, and where to write its own.
template <class Forward>
struct Gradient : Forward {
  static constexpr std::size_t most = 12;
  std::array<TensorRef, most> given = {};
  std::array<std::optional<TensorRef>, most> made = {};
};

// The table without what runs: `flops` is the amount of work. The tensors' places are those of a Gradient<Op>
// whose operator's struct begins at `base`, its gradients at `given` and `made`.
struct GradientPlaces {
  std::size_t base = 0, given = 0, made = 0;
};
// Sums are computed in the dtype of the tensor `steps_of`, if one is named.
OperatorSchema gradient_of(const OperatorSchema& forward, const std::string& flops,
                           const std::string& steps_of, GradientPlaces places);

namespace detail {

template <class Op>
OperatorSchema made_gradient(const OperatorSchema& forward, const char* flops, const char* steps_of,
                             std::function<void(const Bound<Op>&, Launch&)> run,
                             void (*formula)(const Bound<Op>&, Traced&)) {
  using All = Gradient<Op>;
  OperatorSchema table =
      gradient_of(forward, flops, steps_of,
                  {offset_in<All>([](const All& all) { return static_cast<const Op*>(&all); }),
                   offset_in<All>([](const All& all) { return &all.given; }),
                   offset_in<All>([](const All& all) { return &all.made; })});
  if (table.inputs > All::most || table.tensors.size() - table.inputs > All::most)
    throw InternalError(table.name + " has more tensors than a gradient has room for");
  table.make = [] { return std::make_shared<All>(); };
  table.target = [](const void* op) { return static_cast<const All*>(op)->target; };
  table.set_target = [](void* op, Target target) { static_cast<All*>(op)->target = target; };
  const auto bound = [](const BoundCall& call) {
    return Bound<Op>(call, *static_cast<const All*>(call.op()));
  };
  table.run = [=, run = std::move(run)](const BoundCall& call, Launch& launch) { run(bound(call), launch); };
  table.formula = [=](const BoundCall& call, Exact& exact) {
    Traced trace(call, exact);
    formula(bound(call), trace);
    trace.differentiate();
  };
  table.complete();
  return table;
}

template <class Op, class Instance>
std::function<void(const Bound<Op>&, Launch&)> one_program(Instance (*plan)(const Bound<Op>&),
                                                           lang::Kernel (*program)(const Instance&)) {
  return [=](const Bound<Op>& call, Launch& launch) { launch(plan(call), program); };
}
template <class Op>
Op operator_of(void (*)(const Bound<Op>&, Traced&));

}  // namespace detail

// The plan, the program and the formula see the operator's struct, and so does what runs several programs.
template <auto plan, auto program, auto formula>
const OperatorSchema& gradient_table(const OperatorSchema& forward, const char* flops) {
  using Op = decltype(detail::operator_of(formula));
  static const OperatorSchema table =
      detail::made_gradient<Op>(forward, flops, "", detail::one_program<Op>(plan, program), formula);
  return table;
}
template <auto run, auto formula>
const OperatorSchema& gradient_table(const OperatorSchema& forward, const char* flops, const char* steps_of) {
  using Op = decltype(detail::operator_of(formula));
  static const OperatorSchema table = detail::made_gradient<Op>(forward, flops, steps_of, run, formula);
  return table;
}

}  // namespace tegula::ops
