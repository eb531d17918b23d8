#include "ops/rows/gated_unit_kernel.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// The result of a gate and its value, and its derivatives by both.
struct Activated {
  Expr result, by_gate, by_value;
};

// What the activation is, and its slope, times the value.
Activated times(const Expr& activated, const Expr& slope, const Expr& value) {
  return {activated * value, slope * value, activated};
}

struct Unit {
  const GatedUnitKernel& c;
  Dim rows{"rows"}, d = promised();
  std::optional<Expr> alpha = of_oai("alpha"), limit = of_oai("limit");

  Dim promised() const {
    Dim extent("d");
    if (c.multiple > 1) extent.multiple_of(c.multiple);
    return extent;
  }
  std::optional<Expr> of_oai(const char* name) const {
    if (c.unit != GatedUnit::swiglu_oai) return {};
    return scalar(name, f32);
  }

  Activated activated(const Expr& x, const Expr& value) const {
    switch (c.unit) {
      case GatedUnit::silu: {
        Expr share = 1.f / (1.f + exp2(-x * log2e));
        return times(x * share, share * (1.f + x * (1.f - share)), value);
      }
      case GatedUnit::gelu: {
        Expr t = tanh(root_of_gelu * (x + cube_of_gelu * x * x * x));
        Expr inner = root_of_gelu * (1.f + 3 * cube_of_gelu * x * x);
        return times(0.5f * x * (1.f + t), 0.5f * (1.f + t) + 0.5f * x * (1.f - t * t) * inner, value);
      }
      case GatedUnit::relu:
        return times(max(x, 0.f), select(x > 0, 1.f, 0.f), value);
      default:
        return clamped(x, value);
    }
  }
  Activated clamped(const Expr& x, const Expr& value) const {
    Expr gate = min(x, *limit), above = clamp(value, -*limit, *limit) + 1.f;
    Expr share = 1.f / (1.f + exp2(-gate * *alpha * log2e)), unit = gate * share;
    Expr slope = share * (1.f + gate * *alpha * (1.f - share));
    return {unit * above, select(x <= *limit, slope * above, 0.f), select(abs(value) <= *limit, unit, 0.f)};
  }

  // The half of x, or of its gradient, at a tile.
  auto half(const Tensor& x, bool second, const Expr& row, const Expr& column) const {
    return x.slice(all, second ? range(d, d * 2) : range(0, d)).at(row, column);
  }
  // Calls `body` with gates and values of a tile.
  template <class Body>
  void load_both(const Tensor& x, const Expr& row, const Expr& column, Body body) const {
    if (!c.interleaved) {
      Fragment gate = load(half(x, false, row, column), {c.rows, c.columns}, f32);
      Fragment value = load(half(x, true, row, column), {c.rows, c.columns}, f32);
      return body(gate, value);
    }
    Fragment both = load(x.at(row, column * 2), {c.rows, 2 * c.columns}, f32);
    Fragment pairs = both.reshape({c.rows, c.columns, 2});
    Fragment gate({c.rows, c.columns}, f32), value({c.rows, c.columns}, f32);
    parallel(gate, [&](Index i, Index j) { gate(i, j) = pairs(i, j, 0), value(i, j) = pairs(i, j, 1); });
    body(gate, value);
  }
  template <class Body>
  void tiles(Body body) const {
    grid(ceildiv(d, c.columns), ceildiv(rows, c.rows),
         [&](Index column, Index row) { body(row * c.rows, column * c.columns); });
  }

  void forward() const {
    Tensor out = output("out", {rows, d}, c.type), x = input("x", {rows, d * 2}, c.type);
    tiles([&](const Expr& row, const Expr& column) {
      load_both(x, row, column, [&](Fragment& gate, Fragment& value) {
        parallel(gate, [&](Index i, Index j) { gate(i, j) = activated(gate(i, j), value(i, j)).result; });
        copy(gate, out.at(row, column));
      });
    });
  }
  void backward() const {
    Tensor dout = input("dout", {rows, d}, c.type), x = input("x", {rows, d * 2}, c.type);
    Tensor dx = output("dx", {rows, d * 2}, c.type);
    tiles([&](const Expr& row, const Expr& column) {
      const auto multiply = [&](auto&& gate, auto&& value) {
        Fragment given = load(dout.at(row, column), {c.rows, c.columns}, f32);
        parallel(given, [&](Index i, Index j) {
          const Activated unit = activated(gate(i, j), value(i, j));
          gate(i, j) = unit.by_gate * given(i, j), value(i, j) = unit.by_value * given(i, j);
        });
      };
      if (c.interleaved) {
        Fragment both = load(x.at(row, column * 2), {c.rows, 2 * c.columns}, f32);
        Fragment pairs = both.reshape({c.rows, c.columns, 2});
        multiply([&](Index i, Index j) { return pairs(i, j, 0); },
                 [&](Index i, Index j) { return pairs(i, j, 1); });
        copy(both, dx.at(row, column * 2));
      } else {
        Fragment gate = load(half(x, false, row, column), {c.rows, c.columns}, f32);
        Fragment value = load(half(x, true, row, column), {c.rows, c.columns}, f32);
        multiply(gate, value);
        copy(gate, half(dx, false, row, column));
        copy(value, half(dx, true, row, column));
      }
    });
  }
};

}  // namespace

GatedUnitKernel planned_unit(DType type, GatedUnit unit, bool interleaved, std::int64_t d) {
  int columns = d <= 64 ? 64 : d <= 256 ? 256 : 1024;
  if (d % 64 == 0)
    while (d % columns != 0) columns /= 2;
  // Rows that end within pieces leave threads without work at their end.
  const auto idle = [&](int own) { return (d + own - 1) / own * own - d; };
  if (d % 8 != 0)
    while (columns > 64 && 4 * idle(columns) > d) columns /= 2;
  const int multiple = d % columns == 0 ? columns : d % 8 == 0 ? 8 : 1;
  return {type, unit, interleaved, 2048 / columns, columns, multiple};
}

Kernel gated_unit_program(const GatedUnitKernel& c) {
  return kernel(instance_name("gated_unit", c), [&] { Unit{c}.forward(); });
}

Kernel gated_unit_gradient(const GatedUnitKernel& c) {
  return kernel(instance_name("gated_unit_gradient", c), [&] { Unit{c}.backward(); });
}

}  // namespace tegula::ops
