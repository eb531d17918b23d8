#include "passes/cuda/steady_loads.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

struct Division {
  Expr dividend;
  std::int64_t by;
};

// Of integers, rounded down; `div` and `shr` do so where nothing is negative.
std::optional<Division> division(const Expr& e, const Facts& facts) {
  if (e->args.size() != 2 || !is_constant(e->args[1]) || !has_affine_form(e->held())) return std::nullopt;
  const std::int64_t n = constant_value(e->args[1]);
  const bool by_bits = e->op == Op::shr && n >= 0 && n < 31, by_number = e->op == Op::div && n > 0;
  if (e->op == Op::floordiv && n > 0) return Division{e->args[0], n};
  if ((!by_bits && !by_number) || bounds(e->args[0], facts).low < 0) return std::nullopt;
  return Division{e->args[0], by_bits ? std::int64_t{1} << n : n};
}

// A multiple of what the run takes, and whatever lies between two multiples of the divisor.
bool is_within_one(const Division& n, const VariablePtr& index, std::int64_t run, const Facts& facts) {
  Affine rest;
  std::int64_t factor = 0;
  for (const Affine::Term& term : affine(n.dividend).terms) {
    if (is_variable(term.atom, index))
      factor = term.factor;
    else if (!is_steady(term.atom, index, run, facts))
      return false;
    else
      rest.terms.push_back(term);
  }
  rest.constant = affine(n.dividend).constant;
  const std::int64_t taken = factor * run;
  return factor > 0 && n.by % taken == 0 && divisor(rest, facts) % taken == 0;
}

}  // namespace

bool is_steady(const Expr& e, const VariablePtr& index, std::int64_t run, const Facts& facts) {
  if (!uses(e, index)) return true;
  if (const auto own = division(e, facts); own && is_within_one(*own, index, run, facts)) return true;
  return !e->args.empty() && std::all_of(e->args.begin(), e->args.end(),
                                         [&](const Expr& arg) { return is_steady(arg, index, run, facts); });
}

std::vector<Stmt> steady_loads(const For& loop, std::int64_t run, const Facts& facts) {
  std::vector<Stmt> result;
  std::vector<VariablePtr> own;  // that the loop has for each element
  for (const Stmt& s : loop.body) {
    const Effects e = all_effects(s);
    const auto* load = as<Load>(s);
    if (load && !load->from.view.is_tile()) {
      std::vector<Expr> place = coordinates(load->from);
      const bool divides = std::any_of(place.begin(), place.end(),
                                       [&](const Expr& at) { return uses(at, loop.index.back()); });
      for (const ViewDim& dim : load->from.view.dims)
        for (const Expr& limit : {dim.low, dim.high})
          if (limit) place.push_back(limit);
      const auto is_known = [&](const Expr& at) {
        return is_steady(at, loop.index.back(), run, facts) &&
               std::none_of(own.begin(), own.end(), [&](const VariablePtr& v) { return uses(at, v); });
      };
      if (divides && std::all_of(place.begin(), place.end(), is_known)) result.push_back(s);
    }
    if (e.writes_tensors() || e.leaves) break;
    own.insert(own.end(), e.defined.begin(), e.defined.end());
    own.insert(own.end(), e.assigned.begin(), e.assigned.end());
  }
  return result;
}

}  // namespace tegula::passes
