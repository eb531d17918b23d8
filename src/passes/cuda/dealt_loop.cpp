#include "passes/cuda/dealt_loop.hpp"

#include <algorithm>
#include <functional>

#include "ir/effects.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"

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
  const bool in_place =
      is_whole(load->from.view) && is_whole(store->to.view) && equal(load->from.index, store->to.index);
  return in_place && from->space == Space::fragment && from->type == tile->type ? from : nullptr;
}

// A loop that multiplies rows by factors, for rows whose factor is not one: warps that have none leave it
// out. Other loops as they are.
Stmt without_ones(const Stmt& s) {
  const auto* loop = as<For>(s);
  if (!loop || loop->body.size() != 3) return s;
  const auto* factor = as<Load>(loop->body[0]);
  const auto* element = as<Load>(loop->body[1]);
  const auto* store = as<Store>(loop->body[2]);
  if (!factor || !element || !store || factor->from.view.buffer->rank() != 1 || store->value->op != Op::mul ||
      factor->from.view.buffer->space != Space::fragment ||
      element->from.view.buffer != store->to.view.buffer)
    return s;
  const std::vector<Expr>& args = store->value->args;
  const auto is_one_of = [&](const VariablePtr& v) {
    return is_variable(args[0], v) || is_variable(args[1], v);
  };
  if (!same_place(element->from, store->to) || !is_one_of(factor->variable) || !is_one_of(element->variable))
    return s;
  const Expr one = constant(factor->variable->type, 1.0, s->at);
  const Expr changes = make(Op::ne, boolean, {variable(factor->variable, s->at), one}, s->at);
  For result = *loop;
  result.body = {loop->body[0], statement(If{changes, {loop->body[1], loop->body[2]}, {}}, s->at)};
  return statement(std::move(result), s->at);
}

// The steps of one loop.
class DealtLoop {
 public:
  DealtLoop(const For& loop, const Loc& at, const DealtProgram& program, DealtSteps& out)
      : loop_(loop),
        at_(at),
        step_(program.step),
        columns_(program.columns),
        halves_(program.halves),
        group_(program.group),
        roles_(program.roles),
        type_(loop.begin[0]->held()),
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
    const Expr before =
        op(Op::add, op(Op::sub, op(Op::add, first, one), group), op(Op::mul, index, number(2)));
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

  // A loop that gives every element of the rows a value, made of what is loaded before.
  Stmt over_rows(const BufferPtr& rows,
                 const std::function<Expr(const Expr& row, Body& before)>& value) const {
    const Body loop = over_view(whole(rows), at_, [&](const std::vector<Expr>& index, const Access& element) {
      Body body;
      const Expr made = value(index[0], body);
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
      result.push_back(over_rows(own.sum, [&](const Expr& row, Body& before) {
        const Expr old = loaded(own.sum, {row}, before);
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
      const Body loop =
          over_view(whole(own.sum), at_, [&](const std::vector<Expr>& index, const Access& part) {
            Body body;
            const Expr x = loaded(own.sum, part.index, body);
            const Access to{whole(parts), {variable(group_, at_), index[0]}};
            body.push_back(statement(Store{to, x}, at_));
            return body;
          });
      left.push_back(loop.front());
      added.push_back(over_rows(own.sum, [&](const Expr& row, Body& before) {
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
      result.push_back(over_rows(own.sum, [&](const Expr& row, Body& before) {
        const Expr old = loaded(own.sum, {row}, before);
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

  // What all groups do, with that left operand; `own`: in a step of the group.
  Body all_with(const BufferPtr& operand, bool own) const {
    Body result;
    for (const Stmt& s : step_.all) result.push_back(without_ones(*columns_.divided(s)));
    Gemm product = *as<Gemm>(result.back());
    product.a = whole(operand);
    if (halves_) product.b = whole(own ? halves_->own() : halves_->other());
    result.back() = statement(std::move(product), step_.all.back()->at);
    return result;
  }

  // `meets`: threads of the group may still read the messages of the step before.
  Body own_part(const Expr& step, bool meets) {
    Body part = halves_ ? halves_->work() : step_.own;
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
    part = at_step(joined({part, all_with(weights, true)}), step);
    if (meets) out_.meetings.emplace(part[first].get(), Meeting::own);
    out_.meetings.emplace(part[last].get(), Meeting::send);
    return joined({tiles_of_own(), part});
  }

  Body other_part(const Expr& step) {
    Body part;
    for (const BufferPtr& row : step_.rows_of_step) part.push_back(statement(Declare{row}, row->at));
    const std::size_t first = part.size();
    for (std::size_t i = 0; i < step_.rows.size(); ++i)
      part.push_back(element_copy(messages_[i + 1], step_.rows[i], step_.made->at));
    part = at_step(joined({part, all_with(step_.operand, false), scaled_parts()}), step);
    out_.meetings.emplace(part[first].get(), Meeting::receive);
    const auto [before, behind] = tiles_of_other();
    return joined({before, part, behind});
  }

  Stmt kept(const BufferPtr& tile) {
    const Stmt result = statement(Declare{tile}, tile->at);
    out_.kept.insert(result.get());
    return result;
  }

  // Whether only the step's group has any use for the tile.
  bool is_of_own(const BufferPtr& tile) const {
    const int ring = roles_.ring_of(tile.get());  // of a tile in halves there is none
    return ring >= 0 && ring != roles_.ring_of(of_both().get());
  }

  const BufferPtr& of_both() const { return halves_ ? halves_->other() : step_.product().b.buffer; }

  // Of a half, one group does not read what it does not multiply by, and the other one does so last.
  Body tiles_of_own() {
    if (!halves_) return step_.tiles;
    Body result{statement(Declare{halves_->own()}, at_), kept(halves_->other())};
    for (const Stmt& s : step_.tiles) {
      const BufferPtr& tile = as<Declare>(s)->tile;
      if (tile != step_.product().b.buffer) result.push_back(is_of_own(tile) ? s : kept(tile));
    }
    return result;
  }

  // In front of a step of the other group, and behind it.
  std::pair<Body, Body> tiles_of_other() {
    std::pair<Body, Body> result{{statement(Declare{of_both()}, step_.product().b.buffer->at)}, {}};
    if (halves_) result.second.push_back(kept(halves_->own()));
    for (const Stmt& s : step_.tiles)
      if (is_of_own(as<Declare>(s)->tile)) result.second.push_back(kept(as<Declare>(s)->tile));
    return result;
  }

  const For& loop_;
  const Loc& at_;
  const StepShares& step_;
  const OwnColumns& columns_;
  const std::optional<StepHalves>& halves_;
  const VariablePtr& group_;
  const Roles& roles_;
  const DType type_;
  DealtSteps& out_;
  std::vector<BufferPtr> messages_;  // the operand, and the rows
};

}  // namespace

Stmt dealt_loop(const For& loop, const Loc& at, const DealtProgram& program, DealtSteps& out, Body& tiles) {
  return DealtLoop(loop, at, program, out).run(tiles);
}

}  // namespace tegula::passes
