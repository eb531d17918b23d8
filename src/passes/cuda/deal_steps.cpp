#include "passes/cuda/deal_steps.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/own_columns.hpp"
#include "passes/cuda/registers.hpp"
#include "passes/cuda/step_shares.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

Body joined(const std::vector<Body>& parts) {
  Body result;
  for (const Body& part : parts) result.insert(result.end(), part.begin(), part.end());
  return result;
}

Stmt element_copy(const BufferPtr& from, const BufferPtr& to, const Loc& at) {
  const Body loop = over_view(whole(to), at, [&](const std::vector<Expr>& index, const Access& element) {
    const VariablePtr x = new_variable("x", compute_type(from->type), VariableKind::let, at);
    return Body{statement(Load{x, {whole(from), index}}, at),
                statement(Store{element, as_stored(variable(x, at), to->type)}, at)};
  });
  return loop.front();
}

// The fragment that the loop stores as it is.
BufferPtr copied_by(const Stmt& s, const BufferPtr& tile) {
  const auto& loop = *as<For>(s);
  const auto* load = loop.body.size() == 2 ? as<Load>(loop.body[0]) : nullptr;
  const auto* store = loop.body.size() == 2 ? as<Store>(loop.body[1]) : nullptr;
  if (!load || !store || !is_variable(store->value, load->variable)) return nullptr;
  const BufferPtr& from = load->from.view.buffer;
  const auto same = [](const Expr& a, const Expr& b) { return equal(a, b); };
  const auto &a = load->from.index, &b = store->to.index;
  const bool in_place = is_whole(load->from.view) && is_whole(store->to.view) &&
                        std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
  return in_place && from->space == Space::fragment && from->type == tile->type ? from : nullptr;
}

// The steps of one loop.
class DealtLoop {
 public:
  DealtLoop(const For& loop, const Loc& at, const StepShares& step, const OwnColumns& columns,
            const VariablePtr& group, const Roles& roles, DealtSteps& out)
      : loop_(loop),
        at_(at),
        step_(step),
        columns_(columns),
        group_(group),
        type_(loop.begin[0]->held()),
        roles_(roles),
        out_(out) {}

  // The branch in which the loop has a step; the tiles of its messages are declared outside.
  Stmt run(Body& tiles) {
    messages_.push_back(step_.operand);
    for (const BufferPtr& row : step_.rows)
      messages_.push_back(new_tile(row->name.c_str(), Space::shared, row->type, row->shape, at_));
    for (const BufferPtr& tile : messages_) declare(tile, tiles);
    const Expr first = loop_.begin[0], index = variable(loop_.index[0], at_), one = number(1);
    const Expr group = as_stored(variable(group_, at_), type_);
    // The first group takes the first step alone.
    const Expr rest = op(Op::add, op(Op::sub, op(Op::sub, loop_.end[0], first), one), group);
    const Expr before = op(Op::add, op(Op::sub, op(Op::add, first, one), group), op(Op::mul, index, number(2)));
    // Nobody reads the messages of the block before any more.
    const Stmt begun = branch(is_equal(group, 0), own_part(first, false), schedule::Share::first);
    For pairs = loop_;
    pairs.begin[0] = number(0), pairs.end[0] = simplify(op(Op::floordiv, rest, number(2)), Facts());
    pairs.body = joined({other_part(before), own_part(op(Op::add, before, one), true)});
    const Stmt loop = statement(std::move(pairs), at_);
    out_.shares.emplace(loop.get(), schedule::Share::pairs);
    const Stmt last = branch(simplify(is_equal(op(Op::floormod, rest, number(2)), 1), Facts()),
                             other_part(op(Op::sub, loop_.end[0], one)), schedule::Share::left_over);
    out_.meetings.emplace(last.get(), Meeting::all);
    const Expr any = make(Op::lt, boolean, {first, loop_.end[0]}, at_);
    const Stmt result =
        statement(If{any, joined({parts_begin(), {begun, loop, last}, parts_end(tiles)}), {}}, at_);
    out_.non_empty.emplace(result.get(), loop.get());
    return result;
  }

 private:
  void declare(const BufferPtr& tile, Body& tiles) {
    tiles.push_back(statement(Declare{tile}, at_));
    out_.messages.insert(tile.get());
  }

  // A loop that gives every element of the rows a new value.
  Stmt over_rows(const BufferPtr& rows,
                 const std::function<Expr(const Expr& row, const Expr& old, Body& before)>& value) const {
    const Body loop = over_view(whole(rows), at_, [&](const std::vector<Expr>& index, const Access& element) {
      const VariablePtr old = new_variable("old", rows->type, VariableKind::let, at_);
      Body body{statement(Load{old, element}, at_)};
      const Expr made = value(index[0], variable(old, at_), body);
      body.push_back(statement(Store{element, made}, at_));
      return body;
    });
    return loop.front();
  }

  Expr loaded(const BufferPtr& from, std::vector<Expr> index, Body& before) const {
    const VariablePtr x = new_variable("x", from->type, VariableKind::let, at_);
    before.push_back(statement(Load{x, {whole(from), std::move(index)}}, at_));
    return variable(x, at_);
  }

  // What sums hold before the first step is in the first group's part.
  Body parts_begin() const {
    Body result;
    for (const ApartSum& own : step_.apart)
      result.push_back(over_rows(own.sum, [&](const Expr&, const Expr& old, Body&) {
        const Expr is_first = make(Op::eq, boolean, {variable(group_, at_), int32(0, at_)}, at_);
        return make(Op::select, old->type, {is_first, old, constant(old->type, 0.0, at_)}, at_);
      }));
    return result;
  }

  Body parts_end(Body& tiles) {
    Body left, added;
    for (const ApartSum& own : step_.apart) {
      const BufferPtr parts = new_tile(own.sum->name.c_str(), Space::shared, own.sum->type,
                                       {int32(dealt_groups, at_), own.sum->shape[0]}, at_);
      declare(parts, tiles);
      out_.of_both.insert(parts.get());
      const Body loop = over_view(whole(own.sum), at_, [&](const std::vector<Expr>& index, const Access& part) {
        Body body;
        const Expr x = loaded(own.sum, part.index, body);
        const Access to{whole(parts), {variable(group_, at_), index[0]}};
        body.push_back(statement(Store{to, x}, at_));
        return body;
      });
      left.push_back(loop.front());
      added.push_back(over_rows(own.sum, [&](const Expr& row, const Expr&, Body& before) {
        const Expr first = loaded(parts, {int32(0, at_), row}, before);
        return make(Op::add, own.sum->type, {first, loaded(parts, {int32(1, at_), row}, before)}, at_);
      }));
    }
    // Neither leaves those of the next block before both have added these.
    if (!left.empty()) out_.meetings.emplace(left.back().get(), Meeting::all);
    if (!added.empty()) out_.meetings.emplace(added.back().get(), Meeting::all);
    return joined({left, added});
  }

  Body scaled_parts() const {
    Body result;
    for (const ApartSum& own : step_.apart) {
      if (!own.factor) continue;
      result.push_back(over_rows(own.sum, [&](const Expr& row, const Expr& old, Body& before) {
        return make(Op::mul, own.sum->type, {old, loaded(own.factor, {row}, before)}, at_);
      }));
    }
    return result;
  }

  Expr number(int n) const { return constant(type_, n, at_); }
  Expr op(Op op, const Expr& a, const Expr& b) const { return make(op, type_, {a, b}, at_); }
  Expr is_equal(const Expr& a, int n) const { return make(Op::eq, boolean, {a, number(n)}, at_); }

  Stmt branch(const Expr& condition, Body body, schedule::Share share) {
    const Stmt result = statement(If{condition, std::move(body), {}}, at_);
    out_.shares.emplace(result.get(), share);
    return result;
  }

  // At that step, with tiles and variables of its own.
  Body at_step(const Body& part, const Expr& step) const {
    return fresh_copy(simplify_expressions(substitute(part, {{loop_.index[0], step}})));
  }

  // What all groups do, with that left operand.
  Body all_with(const BufferPtr& operand) const {
    Body result;
    for (const Stmt& s : step_.all) result.push_back(*columns_.divided(s));
    Gemm product = *as<Gemm>(result.back());
    product.a = whole(operand);
    result.back() = statement(std::move(product), step_.all.back()->at);
    return result;
  }

  // `meets`: threads of the group may still read the messages of the step before.
  Body own_part(const Expr& step, bool meets) {
    Body part = step_.own;
    BufferPtr weights = copied_by(step_.made, step_.operand);
    if (!weights) {
      const Buffer& tile = *step_.operand;
      weights = new_tile(tile.name.c_str(), Space::fragment, tile.type, tile.shape, at_);
      part.push_back(statement(Declare{weights}, at_));
      part.push_back(rename_buffers({step_.made}, {{step_.operand, weights}}).front());
    }
    const std::size_t first = part.size();
    for (std::size_t i = 0; i < messages_.size(); ++i)
      part.push_back(element_copy(i == 0 ? weights : step_.rows[i - 1], messages_[i], step_.made->at));
    const std::size_t last = part.size() - 1;
    part = at_step(joined({part, all_with(weights)}), step);
    if (meets) out_.meetings.emplace(part[first].get(), Meeting::own);
    out_.meetings.emplace(part[last].get(), Meeting::send);
    return joined({step_.tiles, part});
  }

  Body other_part(const Expr& step) {
    Body part;
    for (const BufferPtr& row : step_.rows_of_step) part.push_back(statement(Declare{row}, row->at));
    const std::size_t first = part.size();
    for (std::size_t i = 0; i < step_.rows.size(); ++i)
      part.push_back(element_copy(messages_[i + 1], step_.rows[i], step_.made->at));
    part = at_step(joined({part, all_with(step_.operand), scaled_parts()}), step);
    out_.meetings.emplace(part[first].get(), Meeting::receive);
    return joined({tiles_of_others(), part});
  }

  // One of each ring, whose slots both groups let go: that of the product from its own.
  Body tiles_of_others() const {
    const BufferPtr& used = step_.product().b.buffer;
    Body result;
    std::unordered_set<int> known;
    for (const Stmt& s : step_.tiles) {
      const BufferPtr& tile = as<Declare>(s)->tile;
      const int ring = roles_.ring_of(tile.get());
      if (tile == used || (ring != roles_.ring_of(used.get()) && known.insert(ring).second)) result.push_back(s);
    }
    return result;
  }

  const For& loop_;
  const Loc& at_;
  const StepShares& step_;
  const OwnColumns& columns_;
  const VariablePtr& group_;
  const DType type_;
  const Roles& roles_;
  DealtSteps& out_;
  std::vector<BufferPtr> messages_;  // the operand, and the rows
};

class Dealing {
 public:
  Dealing(const Roles& roles, const CudaTarget& target)
      : roles_(roles), target_(target), result_(roles), group_(new_variable("group", i32, VariableKind::index, {})) {}

  Planned<Roles> run() {
    if (roles_.stores() || roles_.cluster() > 1) return Reason{};
    find_loops(roles_.consumer);
    if (!reason_.why.empty() || steps_.empty()) return reason_;
    columns_.emplace(steps_.begin()->second.sum, group_, dealt_groups);
    join_rings();
    const auto is_prefix = [&](const Stmt& s) { return as<Let>(s) || as<Load>(s) || as<Assert>(s) || as<Exit>(s); };
    const auto begin = std::find_if_not(roles_.consumer.begin(), roles_.consumer.end(), is_prefix);
    const Body divided = body({begin, roles_.consumer.end()});
    if (!reason_.why.empty()) return reason_;
    const Loc& at = divided.front()->at;
    const Stmt groups = statement(
        For{LoopKind::warp_groups, {group_}, {int32(0, at)}, {int32(dealt_groups, at)}, 0, divided}, at);
    result_.consumer = joined({{roles_.consumer.begin(), begin}, tiles_, {groups}});
    dealt_.group = group_;
    result_.dealt = std::move(dealt_);
    if (fits(roles_) && !fits(result_)) return Reason{"what a warp group alone needs does not fit into registers", ""};
    return std::move(result_);
  }

 private:
  bool fits(const Roles& roles) const {
    return fit(register_needs(roles.consumer, roles.consumers, target_), roles, roles.blocks_per_processor);
  }

  void fail(Reason reason) {
    if (reason_.why.empty()) reason_ = std::move(reason);
  }

  // Loops that take tiles of rings, all of which are to be dealt.
  void find_loops(const Body& statements) {
    for_each_stmt(statements, [&](const Stmt& s) {
      const auto* loop = as<For>(s);
      if (!loop || loop->kind != LoopKind::pipelined) return;
      auto shares = step_shares(*loop, roles_, target_);
      if (!shares) {
        steps_.clear();
        skipped_ = true;
        return fail(shares.reason());
      }
      const bool other = !steps_.empty() && steps_.begin()->second.sum != shares->sum;
      skipped_ |= other;
      steps_.emplace(s.get(), std::move(*shares));
    });
    if (skipped_) steps_.clear();
  }

  // Tiles of a step that come alike also go together.
  void join_rings() {
    for (const auto& [loop, step] : steps_) {
      for (std::size_t i = 0; i < step.tiles.size(); ++i) {
        const int first = ring_of(step.tiles[i]);
        for (std::size_t j = i + 1; j < step.tiles.size(); ++j) join(first, ring_of(step.tiles[j]));
      }
    }
  }

  int ring_of(const Stmt& declaration) const { return result_.ring_of(as<Declare>(declaration)->tile.get()); }

  void join(int first, int other) {
    RingPlan &to = result_.rings[static_cast<std::size_t>(first)],
             &from = result_.rings[static_cast<std::size_t>(other)];
    const bool alike = to.depth == from.depth && to.by_rows == from.by_rows && !to.is_awaited && !from.is_awaited;
    if (first >= other || !alike) return;
    to.tiles.insert(to.tiles.end(), from.tiles.begin(), from.tiles.end());
    result_.rings.erase(result_.rings.begin() + other);
  }

  Body body(const Body& statements) {
    Body result;
    for (const Stmt& s : statements) {
      const auto step = steps_.find(s.get());
      if (step != steps_.end())
        result.push_back(DealtLoop(*as<For>(s), s->at, step->second, *columns_, group_, result_, dealt_).run(tiles_));
      else
        result.push_back(outside(s));
    }
    return result;
  }

  // A statement outside of the loops: each group has its columns; what has none is done by both, but what
  // leaves anything outside of the block by the first one.
  Stmt outside(const Stmt& s) {
    const auto* loop = as<For>(s);
    const bool has_steps = as<If>(s) || as<While>(s) || (loop && loop->kind != LoopKind::parallel);
    if (has_steps) {
      Mapping mapping;
      mapping.body = [&](const Body& inner) { return body(inner); };
      return map(s, mapping);
    }
    if (columns_->touches(s)) {
      if (const auto own = columns_->divided(s)) return *own;
      fail({"work outside of the loop takes sums of all columns together", ""});
      return s;
    }
    return by_first_group(s);
  }

  Stmt by_first_group(const Stmt& s) {
    const Effects e = all_effects(s);
    bool tensors = e.reports, others = e.leaves || !e.assigned.empty();
    for (const Region& r : e.regions) {
      if (!is_write(r.touch)) continue;
      const bool is_tensor = !r.view->is_tile();
      (is_tensor ? tensors : others) = true;
      if (r.view->buffer->space == Space::shared) fail({"threads write a shared tile outside of the loop", ""});
    }
    if (e.leaves) fail({"the block may end behind work on tiles", ""});
    if (!tensors) return s;
    if (others) fail({"a statement writes tensors and tiles", ""});
    const Expr first = make(Op::eq, boolean, {variable(group_, s->at), int32(0, s->at)}, s->at);
    return statement(If{first, {s}, {}}, s->at);
  }

  const Roles& roles_;
  const CudaTarget& target_;
  Roles result_;
  const VariablePtr group_;
  std::unordered_map<const StmtNode*, StepShares> steps_;
  std::optional<OwnColumns> columns_;
  DealtSteps dealt_;
  Body tiles_;  // of messages
  Reason reason_;
  bool skipped_ = false;  // a loop is not of this kind
};

}  // namespace

Planned<Roles> deal_steps(const Roles& roles, const CudaTarget& target) { return Dealing(roles, target).run(); }

}  // namespace tegula::passes
