#include "tegula/ops/gated_units.hpp"

#include <algorithm>

#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

template <class Op>
constexpr const char* name_of_unit = std::is_same_v<Op, SiluAndMul>   ? "silu_and_mul"
                                     : std::is_same_v<Op, GeluAndMul> ? "gelu_and_mul"
                                                                      : "relu_and_mul";

constexpr float root_of_gelu = 0.7978845608028654f, cube_of_gelu = 0.044715f;  // √(2/π)

// An activation's value and its derivative.
struct Activated {
  Expr value, slope;
};
template <class Op>
Activated activated(const Expr& x) {
  if constexpr (std::is_same_v<Op, SiluAndMul>) {
    Expr share = 1.f / (1.f + exp2(-x * log2e));
    return {x * share, share * (1.f + x * (1.f - share))};
  } else if constexpr (std::is_same_v<Op, GeluAndMul>) {
    Expr t = tanh(root_of_gelu * (x + cube_of_gelu * x * x * x));
    Expr inner = root_of_gelu * (1.f + 3 * cube_of_gelu * x * x);
    return {0.5f * x * (1.f + t), 0.5f * (1.f + t) + 0.5f * x * (1.f - t * t) * inner};
  } else {
    return {max(x, 0.f), select(x > 0, 1.f, 0.f)};
  }
}

template <class Op>
struct Instance {
  DType type = f32;
  int rows = 8, columns = 256;  // of a tile
  int multiple = 1;             // what d is a multiple of: then halves begin where pieces of 16 bytes do
  auto fields() const { return std::tuple(type, joined("t", rows, columns), labelled("m", multiple)); }
  void promise(Dim& d) const {
    if (multiple > 1) d.multiple_of(multiple);
  }
};

template <class Op>
Instance<Op> plan(const Bound<Op>& c) {
  const std::int64_t d = c.dim("d");
  const int columns = d <= 64 ? 64 : d <= 256 ? 256 : 1024;
  return {c.type("x"), 2048 / columns, columns, d % columns == 0 ? columns : d % 8 == 0 ? 8 : 1};
}

template <class Op>
Kernel forward(const Instance<Op>& c) {
  return kernel(instance_name(name_of_unit<Op>, c), [&] {
    Dim rows("rows"), d("d");
    c.promise(d);
    Tensor out = output("out", {rows, d}, c.type), x = input("x", {rows, d * 2}, c.type);
    Tensor gates = x.slice(all, range(0, d)), values = x.slice(all, range(d, d * 2));
    grid(ceildiv(d, c.columns), ceildiv(rows, c.rows), [&](Index column, Index row) {
      Fragment gate = load(gates.at(row * c.rows, column * c.columns), {c.rows, c.columns}, f32);
      Fragment value = load(values.at(row * c.rows, column * c.columns), {c.rows, c.columns}, f32);
      parallel(gate, [&](Index i, Index j) { gate(i, j) = activated<Op>(gate(i, j)).value * value(i, j); });
      copy(gate, out.at(row * c.rows, column * c.columns));
    });
  });
}

template <class Op>
Kernel backward(const Instance<Op>& c) {
  return kernel(instance_name(std::string(name_of_unit<Op>) + "_backward", c), [&] {
    Dim rows("rows"), d("d");
    c.promise(d);
    Tensor dout = input("dout", {rows, d}, c.type), x = input("x", {rows, d * 2}, c.type);
    Tensor dx = output("dx", {rows, d * 2}, c.type);
    grid(ceildiv(d, c.columns), ceildiv(rows, c.rows), [&](Index column, Index row) {
      const auto half = [&](const Tensor& all_columns, bool second) {
        return all_columns.slice(all, second ? range(d, d * 2) : range(0, d))
            .at(row * c.rows, column * c.columns);
      };
      Fragment gate = load(half(x, false), {c.rows, c.columns}, f32);
      Fragment value = load(half(x, true), {c.rows, c.columns}, f32);
      Fragment given = load(dout.at(row * c.rows, column * c.columns), {c.rows, c.columns}, f32);
      parallel(gate, [&](Index i, Index j) {
        const Activated unit = activated<Op>(gate(i, j));
        gate(i, j) = unit.slope * value(i, j) * given(i, j);
        value(i, j) = unit.value * given(i, j);
      });
      copy(gate, half(dx, false));
      copy(value, half(dx, true));
    });
  });
}

double largest(double x, double y) { return std::max(x, y); }
TracedNumber largest(const TracedNumber& x, double y) { return x.value > y ? x : TracedNumber(y); }

template <class Op, class E>
void formula(const Bound<Op>& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t rows = c.dim("rows"), d = c.dim("d");
  auto *x = exact.data("x"), *out = exact.data("out");
  const auto value = [](const Number& gate) -> Number {
    if constexpr (std::is_same_v<Op, SiluAndMul>) return gate / (1 + exp(-gate));
    if constexpr (std::is_same_v<Op, ReluAndMul>) return largest(gate, 0);
    const Number inner = static_cast<double>(root_of_gelu) * (gate + cube_of_gelu * (gate * gate * gate));
    return 0.5 * gate * (1 + tanh(inner));
  };
  for (std::int64_t i = 0; i < rows; ++i, x += 2 * d)
    for (std::int64_t j = 0; j < d; ++j) *out++ = exact.step(value(x[j])) * x[d + j];
}

template <class Op>
const OperatorSchema& table_of(const char* doc, const char* result, const char* gradient) {
  static const OperatorSchema table =
      Schema<Op>(name_of_unit<Op>, doc)
          .in(&Op::x, "x", "... 2*d", floats, "gates, followed by what they multiply")
          .out(&Op::out, "out", "... d", same_as("x"), result)
          .source("Shazeer 2020, GLU Variants Improve Transformer")
          .gradient(gradient)
          .flops("6*rows*d")
          .examples({{"ragged", "...=37 d=100"}, {"batched_bf16", "...=2,7 d=300 bf16"}})
          .measured(
              {{"16384x4096_bf16", "...=16384 d=4096 bf16"}, {"4096x16384_bf16", "...=4096 d=16384 bf16"}})
          .run(plan<Op>, forward<Op>, formula<Op, Exact>);
  return table;
}

template <class Op>
const OperatorSchema& gradients_of(const OperatorSchema& table) {
  return gradient_table<plan<Op>, backward<Op>, formula<Op, Traced>>(table, "16*rows*d");
}

}  // namespace

const OperatorSchema& silu_and_mul_schema() {
  return table_of<SiluAndMul>("silu of the first half of every row, times the second",
                              "x1 / (1 + exp(-x1)) * x2 of the halves x1 and x2", "silu_and_mul_backward");
}
const OperatorSchema& gelu_and_mul_schema() {
  return table_of<GeluAndMul>(
      "gelu of the first half of every row, times the second",
      "x1/2 * (1 + tanh(sqrt(2/pi) * (x1 + 0.044715 x1^3))) * x2 of the halves x1 and x2",
      "gelu_and_mul_backward");
}
const OperatorSchema& relu_and_mul_schema() {
  return table_of<ReluAndMul>("relu of the first half of every row, times the second",
                              "max(x1, 0) * x2 of the halves x1 and x2", "relu_and_mul_backward");
}
const OperatorSchema& silu_and_mul_backward_schema() {
  return gradients_of<SiluAndMul>(silu_and_mul_schema());
}
const OperatorSchema& gelu_and_mul_backward_schema() {
  return gradients_of<GeluAndMul>(gelu_and_mul_schema());
}
const OperatorSchema& relu_and_mul_backward_schema() {
  return gradients_of<ReluAndMul>(relu_and_mul_schema());
}

tegula::Tensor silu_and_mul_backward(const TensorRef& dout, const TensorRef& x, SiluAndMul options) {
  return results_of<tegula::Tensor>(silu_and_mul_backward_schema(), Gradient<SiluAndMul>{options}, {dout, x});
}
tegula::Tensor gelu_and_mul_backward(const TensorRef& dout, const TensorRef& x, GeluAndMul options) {
  return results_of<tegula::Tensor>(gelu_and_mul_backward_schema(), Gradient<GeluAndMul>{options}, {dout, x});
}
tegula::Tensor relu_and_mul_backward(const TensorRef& dout, const TensorRef& x, ReluAndMul options) {
  return results_of<tegula::Tensor>(relu_and_mul_backward_schema(), Gradient<ReluAndMul>{options}, {dout, x});
}

}  // namespace tegula::ops
