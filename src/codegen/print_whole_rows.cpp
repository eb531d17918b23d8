// Rows of tensors that are read where they are: if all of a row exists and lies side by side, which is asked
// once before its loop, the loop reads vectors without asking for each. Values that a row's loop computes and
// reads again stay in registers.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/grid_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr int bytes_ahead = 1024;  // of a row, which are on their way while a vector is computed with
constexpr std::size_t most_statements = 200;  // that are worth printing twice

bool is_plain(const Body& body) {
  return std::all_of(body.begin(), body.end(),
                     [](const Stmt& s) { return as<Let>(s) || as<Load>(s) || as<Store>(s); });
}

bool defines_any(const std::vector<RowOp>& ops, const Expr& e) {
  bool result = false;
  for_each_variable(e, [&](const VariablePtr& v) {
    for (const RowOp& op : ops)
      for (const Stmt& s : op.body)
        for_each_definition(s, [&](const VariablePtr& own) { result |= own == v; });
  });
  return result;
}

const Access* access_of_tile(const Stmt& s, const Buffer* tile) {
  const auto* load = as<Load>(s);
  const auto* store = as<Store>(s);
  const Access* access = load ? &load->from : store ? &store->to : nullptr;
  return access && access->view.buffer.get() == tile ? access : nullptr;
}

// Whether the value is computed from elements along the row, and so is a vector.
bool is_of_row(const Body& body, const Expr& value, const VariablePtr& lane) {
  return std::any_of(body.begin(), body.end(), [&](const Stmt& s) {
    const auto* load = as<Load>(s);
    return load && uses(value, load->variable) &&
           std::any_of(load->from.index.begin(), load->from.index.end(),
                       [&](const Expr& e) { return uses(e, lane); });
  });
}

// How many statements of a pass access the tile, if all but the first, which stores it, load from the same
// place.
std::size_t loads_of_stored(const std::vector<RowOp>& ops, std::size_t first_op, std::size_t first,
                            const Access& stored) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < ops.size(); ++i)
    for (std::size_t k = 0; k < ops[i].body.size(); ++k) {
      const Access* other = access_of_tile(ops[i].body[k], stored.view.buffer.get());
      if (!other) continue;
      const bool is_store = i == first_op && k == first;
      const bool follows = i > first_op || (i == first_op && k > first);
      if (!is_store && !(follows && as<Load>(ops[i].body[k]) && same_place(*other, stored))) return 0;
      ++count;
    }
  return count;
}

// The value takes the place of the tile's element.
void forward(std::vector<RowOp>& ops, const VariablePtr& value, const Buffer* tile) {
  for (RowOp& op : ops)
    for (Stmt& s : op.body) {
      if (!access_of_tile(s, tile)) continue;
      if (const auto* store = as<Store>(s))
        s = statement(Let{value, store->value}, s->at);
      else
        s = statement(Let{as<Load>(s)->variable, variable(value, s->at)}, s->at);
    }
}

}  // namespace

std::vector<RowOp> GridPrinter::with_values_kept(std::vector<RowOp> ops) const {
  if (!std::all_of(ops.begin(), ops.end(), [](const RowOp& op) { return is_plain(op.body); })) return ops;
  for (std::size_t i = 0; i < ops.size(); ++i)
    for (std::size_t k = 0; k < ops[i].body.size(); ++k) {
      const auto* store = as<Store>(ops[i].body[k]);
      if (!store || !store->to.view.is_tile() || store->value->held() != store->to.view.buffer->type ||
          !is_of_row(ops[i].body, store->value, ops[i].lane))
        continue;
      const Buffer* tile = store->to.view.buffer.get();
      const auto mentions = uses_.mentions.find(tile);
      const std::size_t own = loads_of_stored(ops, i, k, store->to);
      if (own < 2 || mentions == uses_.mentions.end() || mentions->second != own) continue;
      const auto value = std::make_shared<const Variable>(
          Variable{"kept", store->value->held(), VariableKind::let, ops[i].body[k]->at});
      forward(ops, value, tile);
    }
  return ops;
}

std::string GridPrinter::whole_rows(const std::vector<RowOp>& ops) {
  std::size_t statements = 0;
  Terms conditions;
  lane_ = Lane{ops[0].lane, "0", "", ops[0].extent};
  for (const RowOp& op : ops) {
    statements += op.body.size();
    if (!is_plain(op.body)) statements = most_statements + 1;
  }
  for (const RowOp& op : ops)
    for (const Stmt& s : op.body) {
      const auto* load = as<Load>(s);
      if (statements > most_statements || !load || load->from.view.is_tile()) continue;
      bool own_place = false;  // which the loop finds out, or each vector, in the index or in the view
      const auto look = [&](const Expr& e) {
        own_place |= e && (defines_any(ops, e) || differs_by_group(e));
      };
      for (const Expr& e : load->from.index) look(e);
      for_each_expr(load->from.view, look);
      if (own_place) continue;
      const Address at = address(load->from);
      if (at.kind != Address::Kind::row) continue;
      whole_.insert(&load->from);
      Terms own{at.guard, at.step == "1" ? "" : fmt::format("{} == 1", at.step),
                at.begin.empty() ? "" : fmt::format("{} <= 0", at.begin),
                at.end.empty() ? "" : fmt::format("{} >= {}", at.end, scalar(ops[0].extent))};
      for (std::string& condition : own)
        if (!condition.empty() &&
            std::find(conditions.begin(), conditions.end(), condition) == conditions.end())
          conditions.push_back(std::move(condition));
    }
  lane_.reset();
  varying_.clear();
  return fmt::format("{}", fmt::join(conditions, " && "));
}

// What is wanted next after the elements of an access: of rows that a loop goes through, each of them in
// steps, those that its next iteration reads in the same step; else what follows in the row.
std::string GridPrinter::ahead_of(const Access& access, const Address& at) {
  const std::vector<Expr> place = coordinates(access);
  for (const std::vector<VariablePtr>& loop : loops_) {
    const VariablePtr& index = loop.back();
    const bool is_of_rows =
        std::any_of(place.begin(), place.end() - 1, [&](const Expr& e) { return uses(e, index); });
    if (loop.size() != 1 || &loop == &loops_.back() || !is_of_rows || uses(place.back(), index)) continue;
    const Expr next = make(Op::add, i32, {variable(index, index->at), int32(1, index->at)}, index->at);
    const auto value = std::make_shared<const Variable>(
        Variable{"ahead", compute_type(access.view.buffer->type), VariableKind::let, index->at});
    const Body moved = substitute(Body{statement(Load{value, access}, index->at)}, {{index, next}});
    return fmt::format("(const char*)({})", address(as<Load>(moved[0])->from).pointer);
  }
  return fmt::format("(const char*)({}) + {}", at.pointer, bytes_ahead);
}

// Whether every iteration of a loop reads the same row from its beginning on: it is in a cache then, and what
// is fetched in vain takes the place of what is on its way.
bool GridPrinter::is_read_again(const Access& access) const {
  std::vector<Expr> place = coordinates(access);
  for (Expr& e : place) e = expanded(e);
  bool again = false, passes = false;
  for (const std::vector<VariablePtr>& loop : loops_) {
    const auto in = [&](const Expr& e) {
      return std::any_of(loop.begin(), loop.end(), [&](const VariablePtr& index) { return uses(e, index); });
    };
    again |= std::none_of(place.begin(), place.end(), in);
    passes |= again && in(place.back());
  }
  return passes;
}

std::string GridPrinter::load_whole(const Access& access, const Address& at) {
  if (!is_read_again(access)) out_.line(fmt::format("__builtin_prefetch({});", ahead_of(access, at)));
  return fmt::format("load({})", at.pointer);
}

}  // namespace tegula::codegen
