#include "codegen/ranges.hpp"

#include <algorithm>

namespace tegula::codegen {
namespace {

using ir::Op;

// Operands of 32 bits make results that 64 bits hold.
Range everything(const ir::Expr& e) {
  switch (e->held().code) {
    case TypeCode::u32:
      return {0, UINT32_MAX};
    case TypeCode::boolean:
      return {0, 1};
    case TypeCode::i64:
      return {INT64_MIN, INT64_MAX};
    default:
      return {INT32_MIN, INT32_MAX};
  }
}

Range spanned(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return {std::min({a, b, c, d}), std::max({a, b, c, d})};
}

std::int64_t floor_division(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Range divided(Op op, const Range& a, std::int64_t by) {
  switch (op) {
    case Op::div:
      return {a.low / by, a.high / by};
    case Op::floordiv:
      return {floor_division(a.low, by), floor_division(a.high, by)};
    case Op::floormod:
      return a.low >= 0 && a.high < by ? a : Range{0, by - 1};
    default:  // mod
      if (a.low >= 0) return {0, std::min(a.high, by - 1)};
      return {1 - by, a.high < 0 ? 0 : by - 1};
  }
}

}  // namespace

Range Facts::of(const ir::Expr& e) const { return at_depth(e, 24); }

Range Facts::at_depth(const ir::Expr& e, int depth) const {
  const Range all = everything(e);
  if (e->held().is_floating() || e->held() == i64 || depth == 0) return all;
  if (e->op == Op::constant) return {e->integer, e->integer};
  if (e->op == Op::variable) {
    if (const auto found = ranges.find(e->variable.get()); found != ranges.end()) return found->second;
    if (const auto found = values.find(e->variable.get()); found != values.end()) {
      return at_depth(found->second, depth - 1);
    }
    return e->variable->kind == ir::VariableKind::dim ? Range{0, INT32_MAX} : all;
  }
  std::vector<Range> x;
  for (const ir::Expr& arg : e->args) {
    x.push_back(at_depth(arg, depth - 1));
    if (arg->held().is_floating() || arg->held() == i64) return all;
  }
  Range r = all;
  switch (e->op) {
    case Op::add:
      r = {x[0].low + x[1].low, x[0].high + x[1].high};
      break;
    case Op::sub:
      r = {x[0].low - x[1].high, x[0].high - x[1].low};
      break;
    case Op::mul:
      r = spanned(x[0].low * x[1].low, x[0].low * x[1].high, x[0].high * x[1].low, x[0].high * x[1].high);
      break;
    case Op::min:
      r = {std::min(x[0].low, x[1].low), std::min(x[0].high, x[1].high)};
      break;
    case Op::max:
      r = {std::max(x[0].low, x[1].low), std::max(x[0].high, x[1].high)};
      break;
    case Op::select:
      r = {std::min(x[1].low, x[2].low), std::max(x[1].high, x[2].high)};
      break;
    case Op::div:
    case Op::mod:
    case Op::floordiv:
    case Op::floormod:
      if (x[1].low == x[1].high && x[1].low > 0) r = divided(e->op, x[0], x[1].low);
      break;
    case Op::bit_and:
      if (x[0].low >= 0 || x[1].low >= 0) {
        r = {0, x[0].low < 0 ? x[1].high : x[1].low < 0 ? x[0].high : std::min(x[0].high, x[1].high)};
      }
      break;
    case Op::cast:
      if (e->type.bits() >= 32) r = x[0];
      break;
    default:
      break;
  }
  return r.low < all.low || r.high > all.high ? all : r;
}

}  // namespace tegula::codegen
