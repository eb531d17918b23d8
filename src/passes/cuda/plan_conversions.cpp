#include "passes/cuda/plan_conversions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ir/affine.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/plan_rows.hpp"

namespace tegula::passes {

using namespace ir;
using Of = RowConversion::Of;

namespace {

class Pieces {
 public:
  Pieces(const VariablePtr& column, int elements) : column_(column), elements_(elements) {}

  // Whether it is the same for all elements of a piece: the column counts in whole pieces only.
  bool is_same(const Expr& e) const {
    if (e->op == Op::variable) return e->variable != column_ && !varying_.contains(e->variable);
    if (is_division(*e) && begins_pieces(e->args[0])) return true;
    return std::all_of(e->args.begin(), e->args.end(), [&](const Expr& x) { return is_same(x); });
  }

  std::optional<Of> kind(const Stmt& s) {
    const auto* let = as<Let>(s);
    const auto* load = as<Load>(s);
    if (!let && !load) return std::nullopt;
    if (load && load->from.view.buffer->space == Space::fragment) return std::nullopt;
    const auto own = let ? (is_same(let->value) ? Of::row : Of::element) : kind(load->from);
    if (own) (*own == Of::row ? of_rows_ : varying_).insert(let ? let->variable : load->variable);
    return own;
  }

 private:
  // Whether the node divides by whole chunks, rounding down; `div` would round negative values up.
  bool is_division(const ExprNode& e) const {
    if (e.op != Op::floordiv && e.op != Op::div) return false;
    const Expr &x = e.args[0], &by = e.args[1];
    const bool whole = is_constant(by) && constant_value(by) > 0 && constant_value(by) % elements_ == 0;
    return whole && has_affine_form(x->held()) && (e.op == Op::floordiv || is_variable(x, column_));
  }

  // The column, and what is the same for all elements of a piece and a multiple of their number.
  bool begins_pieces(const Expr& e) const {
    const Affine sum = affine(e);
    std::int64_t columns = 0;
    for (const Affine::Term& term : sum.terms) {
      if (term.atom->op == Op::variable && term.atom->variable == column_)
        columns = term.factor;
      else if (term.factor % elements_ != 0 || !is_same(term.atom))
        return false;
    }
    return columns == 1 && sum.constant % elements_ == 0;
  }

  std::optional<Of> kind(const Access& from) const {
    const std::vector<Expr> at = coordinates(from);
    if (std::all_of(at.begin(), at.end(), [&](const Expr& e) { return is_same(e); })) return Of::row;
    const bool others = std::all_of(at.begin(), at.end() - 1, [&](const Expr& e) { return is_same(e); });
    if (!others || !is_own_shape(from.view) || !begins_pieces(at.back())) return std::nullopt;
    // Whether all of the row's pieces exist is asked in front of the loop.
    const ViewDim& along = from.view.dims.back();
    for (const VariablePtr& own : of_rows_) {
      for (const Expr& e : {at.back(), along.low, along.high})
        if (e && uses(e, own)) return std::nullopt;
    }
    return Of::piece;
  }

  const VariablePtr& column_;
  const int elements_;
  std::unordered_set<VariablePtr> of_rows_, varying_;  // of the loop's body
};

// All elements of a tile of 16-bit floats, by the loop's indices.
const Store* store_of(const For& loop) {
  const auto* store = as<Store>(loop.body.back());
  if (!store || loop.index.empty()) return nullptr;
  const View& to = store->to.view;
  const DType type = to.buffer->type;
  const bool is_tile = to.buffer->space == Space::shared && (type == bf16 || type == f16) && is_whole(to) &&
                       to.rank() >= 2 && to.rank() == static_cast<int>(loop.index.size());
  if (!is_tile || store->value->held() != f32) return nullptr;
  for (std::size_t d = 0; d < loop.index.size(); ++d) {
    if (!is_variable(store->to.index[d], loop.index[d])) return nullptr;
    if (!is_constant(loop.end[d], to.extent(static_cast<int>(d)))) return nullptr;
  }
  return store;
}

// The narrowest of the loads along the row from tensors that do not overlap the tile's memory.
int narrowest(const For& loop) {
  int bytes = piece_bytes;
  for (const Stmt& s : loop.body) {
    const auto* load = as<Load>(s);
    if (!load) continue;
    const std::vector<Expr> at = coordinates(load->from);
    if (!at.empty() && uses(at.back(), loop.index.back()))
      bytes = std::min(bytes, load->from.view.buffer->type.bytes());
  }
  return bytes;
}

bool is_limited(const Expr& e, const VariablePtr& column) {
  if ((e->op == Op::min || e->op == Op::max) && uses(e, column)) return true;
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& x) { return is_limited(x, column); });
}

}  // namespace

std::optional<RowConversion> plan_conversion(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() < 2) return std::nullopt;
  const Store* store = store_of(*loop);
  if (!store) return std::nullopt;
  RowConversion plan{stmt, piece_bytes / narrowest(*loop), {}};
  if (plan.elements < 8 || constant_value(loop->end.back()) % plan.elements != 0) return std::nullopt;
  Pieces pieces(loop->index.back(), plan.elements);
  for (std::size_t i = 0; i + 1 < loop->body.size(); ++i) {
    const auto* load = as<Load>(loop->body[i]);
    const auto own = pieces.kind(loop->body[i]);
    if (!own || (load && load->from.view.buffer == store->to.view.buffer)) return std::nullopt;
    plan.statements.push_back(*own);
  }
  const bool reads_rows =
      std::find(plan.statements.begin(), plan.statements.end(), Of::piece) != plan.statements.end();
  return reads_rows ? std::optional(plan) : std::nullopt;
}

Reason reason_of_limits(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() < 2 || !store_of(*loop)) return {};
  for (const Stmt& s : loop->body) {
    const auto* load = as<Load>(s);
    if (!load || load->from.view.is_tile()) continue;
    const std::vector<Expr> at = coordinates(load->from);
    if (!at.empty() && is_limited(at.back(), loop->index.back()))
      return {fmt::format("`{}` is read one element at a time, because min or max limits its last index",
                          load->from.view.buffer->name),
              "leave out the limit: elements outside a tensor read as zeros, and `select` can replace them",
              s->at};
  }
  return {};
}

bool RowConversion::reads_one_tensor() const {
  const Body& body = as<For>(loop)->body;
  int tensors = 0, pieces = 0;
  for (std::size_t i = 0; i < statements.size(); ++i) {
    if (statements[i] != Of::piece) continue;
    const auto* load = as<Load>(body[i]);
    ++pieces;
    tensors += load && !load->from.view.is_tile() ? 1 : 0;
  }
  return pieces == 1 && tensors == 1;
}

}  // namespace tegula::passes
