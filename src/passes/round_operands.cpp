#include "passes/round_operands.hpp"

#include <cmath>
#include <limits>

#include "ir/tf32.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// The bits of the nearest number of tf32; NaN stays what it is.
Expr rounded(const Expr& x, const Loc& at) {
  const Expr bits = make(Op::bitcast, u32, {x}, at);
  const Expr up = make(Op::add, u32, {bits, constant(u32, std::int64_t{half_of_tf32}, at)}, at);
  const Expr cut = make(Op::bit_and, u32, {up, constant(u32, std::int64_t{mask_of_tf32}, at)}, at);
  return make(Op::select, f32, {make(Op::isnan, boolean, {x}, at), x, make(Op::bitcast, f32, {cut}, at)}, at);
}

// What rounding left; nothing of an infinity.
Expr rest(const Expr& x, const Expr& near, const Loc& at) {
  const Expr infinity = constant(f32, std::numeric_limits<double>::infinity(), at);
  const Expr is_infinite = make(Op::eq, boolean, {make(Op::abs, f32, {near}, at), infinity}, at);
  return make(Op::select, f32, {is_infinite, constant(f32, 0.0, at), make(Op::sub, f32, {x, near}, at)}, at);
}

View with_axes_exchanged(View view) {
  for (ViewDim& dim : view.dims)
    if (dim.axis >= 0) dim.axis = 1 - dim.axis;
  std::swap(view.extents[0], view.extents[1]);
  return view;
}

bool lies_transposed(const View& view) {
  for (const ViewDim& dim : view.dims)
    if (dim.axis >= 0) return dim.axis == 1;
  return false;
}

// An operand as numbers of tf32, and what rounding left of it.
struct Divided {
  View near, rest;
};

class Rounding {
 public:
  explicit Rounding(const OperandRules& rules) : rules_(rules) {}

  Body product(const Stmt& s) const {
    const auto& n = *as<Gemm>(s);
    if (n.hints.precision == Precision::tf32x3) return rules_.divides ? three_products(n, s->at) : Body{s};
    Gemm own = n;
    Body result;
    if (!rules_.reads(n, n.a)) own.a = divided(n.a, false, false, result).near;
    if (!rules_.reads(n, n.b)) own.b = divided(n.b, true, false, result).near;
    result.push_back(statement(std::move(own), s->at));
    return result;
  }

 private:
  Body three_products(const Gemm& n, const Loc& at) const {
    Body result;
    const Divided a = divided(n.a, false, true, result), b = divided(n.b, true, true, result);
    Gemm own = n;
    own.hints.precision = Precision::tf32;
    for (const auto& [left, right] : {std::pair{&a.near, &b.rest}, {&a.rest, &b.near}, {&a.near, &b.near}}) {
      own.a = *left, own.b = *right;
      result.push_back(statement(own, at));
      own.overwrite = false;
    }
    return result;
  }

  // Fills tiles in front of the product, in the order in which the operand is.
  Divided divided(const View& operand, bool is_b, bool with_rest, Body& before) const {
    const Loc& at = operand.buffer->at;
    const bool exchanged = is_b && rules_.along_k, turned = lies_transposed(operand);
    std::vector<Expr> shape = operand.extents;
    if (exchanged) std::swap(shape[0], shape[1]);
    const auto tile = [&] {
      const BufferPtr result = new_tile(operand.buffer->name.c_str(), Space::shared, f32, shape, at);
      before.push_back(statement(Declare{result}, at));
      return result;
    };
    const BufferPtr near = tile(), left = with_rest ? tile() : nullptr;
    const View walked = turned ? with_axes_exchanged(operand) : operand;
    const Body filled = over_view(walked, at, [&](const std::vector<Expr>& index, const Access& element) {
      const VariablePtr x = new_variable("x", f32, VariableKind::let, at),
                        number = new_variable("number", f32, VariableKind::let, at);
      const std::vector<Expr> place = exchanged != turned ? std::vector<Expr>{index[1], index[0]} : index;
      Body body{statement(Load{x, element}, at), statement(Let{number, rounded(variable(x, at), at)}, at),
                statement(Store{{whole(near), place}, variable(number, at)}, at)};
      if (left)
        body.push_back(
            statement(Store{{whole(left), place}, rest(variable(x, at), variable(number, at), at)}, at));
      return body;
    });
    before.insert(before.end(), filled.begin(), filled.end());
    const auto shown = [&](const BufferPtr& buffer) {
      return exchanged ? with_axes_exchanged(whole(buffer)) : whole(buffer);
    };
    return {shown(near), left ? shown(left) : View{}};
  }

  const OperandRules& rules_;
};

}  // namespace

Kernel round_operands(const Kernel& kernel, const OperandRules& rules) {
  const Rounding rounding(rules);
  std::function<Body(const Stmt&)> round = [&](const Stmt& s) -> Body {
    const auto* gemm = as<Gemm>(s);
    if (!gemm || gemm->hints.precision == Precision::ieee) return {s};
    return rounding.product(s);
  };
  return map_grids(kernel, [&](const Grid& grid) { return map_body(grid.body, round); });
}

Kernel round_operands_for_cpu(const Kernel& kernel) {
  return round_operands(kernel, {[](const Gemm&, const View&) { return false; }, false, false});
}

}  // namespace tegula::passes
