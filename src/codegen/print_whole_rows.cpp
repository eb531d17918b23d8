// Rows of tensors that are read where they are: if all of a row exists and lies side by side, which is asked
// once before its loop, the loop reads vectors without asking for each. Values that a row's loop computes and
// reads again stay in registers.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "codegen/grid_printer.hpp"
#include "ir/representable.hpp"
#include "ir/visit.hpp"
#include "passes/by_any_name.hpp"
#include "passes/tile_versions.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Of a row, which are on their way while a vector is computed with; of those that a loop goes through, which
// computes more with each.
constexpr int bytes_ahead = 4096, bytes_ahead_in_loops = 1024;
constexpr std::size_t most_statements = 200;  // that are worth printing twice

bool is_plain(const Body& body) {
  return std::all_of(body.begin(), body.end(),
                     [](const Stmt& s) { return as<Let>(s) || as<Load>(s) || as<Store>(s); });
}

// Variables that nothing assigns are values.
Body with_values(const Body& body) {
  std::unordered_set<const Variable*> assigned;
  for_each_stmt(body, [&](const Stmt& s) {
    if (const auto* assign = as<Assign>(s)) assigned.insert(assign->variable.get());
  });
  Body result;
  Substitution by;
  for (const Stmt& s : body) {
    const auto* declare = as<DeclareVar>(s);
    if (!declare || assigned.contains(declare->variable.get())) {
      result.push_back(s);
      continue;
    }
    const Variable& own = *declare->variable;
    const auto value =
        std::make_shared<const Variable>(Variable{own.name, own.type, VariableKind::let, own.at});
    by.emplace(declare->variable, variable(value, s->at));
    result.push_back(statement(Let{value, declare->value}, s->at));
  }
  return by.empty() ? body : substitute(result, by);
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

// What the values of a pass are: whether they differ along the row, and the types that surely hold them.
struct Values {
  std::unordered_set<const Variable*> of_row;
  std::unordered_map<const Variable*, DType> types;

  bool differs(const Expr& e, const VariablePtr& lane) const {
    bool found = false;
    for_each_variable(e, [&](const VariablePtr& v) { found |= v == lane || of_row.contains(v.get()); });
    return found;
  }
  bool is_held(const Expr& e, DType type) const {
    return is_representable(e, type, [&](const VariablePtr& v) {
      const auto found = types.find(v.get());
      return found == types.end() ? std::nullopt : std::optional(found->second);
    });
  }
};

Values values_of(const std::vector<RowOp>& ops) {
  Values result;
  for (const RowOp& op : ops)
    for (const Stmt& s : op.body) {
      if (const auto* load = as<Load>(s)) {
        const std::vector<Expr> at = coordinates(load->from);
        if (std::any_of(at.begin(), at.end(), [&](const Expr& e) { return result.differs(e, op.lane); }))
          result.of_row.insert(load->variable.get());
        result.types.emplace(load->variable.get(), load->from.view.buffer->type);
      } else if (const auto* let = as<Let>(s)) {
        if (result.differs(let->value, op.lane)) result.of_row.insert(let->variable.get());
        const Expr& e = let->value;
        const auto known = e->op == Op::variable ? result.types.find(e->variable.get()) : result.types.end();
        if (known != result.types.end()) result.types.emplace(let->variable.get(), known->second);
        if (e->op == Op::cast) result.types.emplace(let->variable.get(), e->type);
      }
    }
  return result;
}

// How many statements of a pass access the tile, and how many of them behind the one that stores it.
struct Accesses {
  std::size_t all = 0, behind = 0;
};

// If all others load from the same place.
std::optional<Accesses> accesses_of_stored(const std::vector<RowOp>& ops, std::size_t first_op,
                                           std::size_t first, const Access& stored) {
  Accesses result;
  for (std::size_t i = 0; i < ops.size(); ++i)
    for (std::size_t k = 0; k < ops[i].body.size(); ++k) {
      const Access* other = access_of_tile(ops[i].body[k], stored.view.buffer.get());
      if (!other) continue;
      const bool is_store = i == first_op && k == first;
      if (!is_store && !(as<Load>(ops[i].body[k]) && same_place(*other, stored))) return std::nullopt;
      ++result.all;
      result.behind += i > first_op || (i == first_op && k > first);
    }
  return result;
}

// What a tile holds once the value is stored.
Expr as_held(const Expr& value, DType type, const Values& values) {
  const bool stays =
      value->held() == type || (value->held() == compute_type(type) && values.is_held(value, type));
  return stays ? value : make(Op::cast, type, {value}, value->at);
}

// From where it is stored, the value takes the place of the tile's element, which stays where others read it.
void forward(std::vector<RowOp>& ops, const VariablePtr& value, const Buffer* tile, bool stays) {
  const Values values = values_of(ops);
  bool is_stored = false;
  for (RowOp& op : ops) {
    Body result;
    for (const Stmt& s : op.body) {
      const auto* store = as<Store>(s);
      if (!access_of_tile(s, tile) || (!store && !is_stored)) {
        result.push_back(s);
      } else if (store) {
        is_stored = true;
        result.push_back(statement(Let{value, as_held(store->value, tile->type, values)}, s->at));
        if (stays) result.push_back(statement(Store{store->to, variable(value, s->at)}, s->at));
      } else {
        result.push_back(statement(Let{as<Load>(s)->variable, variable(value, s->at)}, s->at));
      }
    }
    op.body = std::move(result);
  }
}

bool is_reduced_to(std::span<const RowOp> ops, const Buffer* tile) {
  return std::any_of(ops.begin(), ops.end(),
                     [&](const RowOp& op) { return op.reduces && op.to.view.buffer.get() == tile; });
}

bool accesses(std::span<const RowOp> ops, const Buffer* tile) {
  bool found = is_reduced_to(ops, tile);
  for (const RowOp& op : ops) {
    for_each_stmt(op.body, [&](const Stmt& s) {
      for_each_view(s, [&](const View& view) { found |= view.buffer.get() == tile; });
    });
  }
  return found;
}

bool is_same_load(const Access& a, const Access& b) {
  if (!same_place(a, b)) return false;
  for (std::size_t d = 0; d < a.view.dims.size(); ++d) {
    const ViewDim &x = a.view.dims[d], &y = b.view.dims[d];
    const auto same = [](const Expr& e, const Expr& f) { return e == f || (e && f && equal(e, f)); };
    if (!same(x.low, y.low) || !same(x.high, y.high)) return false;
  }
  return true;
}

// Whether loops over all elements of a window read the same ones.
bool is_same_window(const Access& a, const Access& b) {
  const auto is_index = [](const Expr& e) { return e->op == Op::variable || is_constant(e); };
  if (a.view.buffer != b.view.buffer || a.view.dims.size() != b.view.dims.size()) return false;
  for (std::size_t d = 0; d < a.view.dims.size(); ++d) {
    const ViewDim &x = a.view.dims[d], &y = b.view.dims[d];
    if (x.axis != y.axis || !equal(x.offset, y.offset)) return false;
  }
  return std::all_of(a.index.begin(), a.index.end(), is_index) &&
         std::all_of(b.index.begin(), b.index.end(), is_index);
}

// An element that a pass does not write, under any name, is loaded once.
void load_once(std::vector<RowOp>& ops, const Kernel& kernel) {
  passes::Tensors written;
  for (const RowOp& op : ops)
    for (const Stmt& s : op.body)
      if (const auto* store = as<Store>(s)) written.insert(store->to.view.buffer.get());
  written = passes::by_any_name(std::move(written), kernel);
  std::vector<std::pair<Access, VariablePtr>> known;
  for (RowOp& op : ops)
    for (Stmt& s : op.body) {
      const auto* load = as<Load>(s);
      if (!load || written.contains(load->from.view.buffer.get())) continue;
      const auto before = std::find_if(known.begin(), known.end(), [&](const auto& other) {
        return is_same_load(other.first, load->from);
      });
      if (before == known.end())
        known.emplace_back(load->from, load->variable);
      else
        s = statement(Let{load->variable, variable(before->second, s->at)}, s->at);
    }
}

}  // namespace

std::vector<RowOp> GridPrinter::with_values_kept(std::vector<RowOp> ops, std::span<const RowOp> later) const {
  for (RowOp& op : ops) op.body = with_values(op.body);
  if (!std::all_of(ops.begin(), ops.end(), [](const RowOp& op) { return is_plain(op.body); })) return ops;
  load_once(ops, signature_.kernel());
  for (std::size_t i = 0; i < ops.size(); ++i)
    for (std::size_t k = 0; k < ops[i].body.size(); ++k) {
      const auto* store = as<Store>(ops[i].body[k]);
      if (!store || !store->to.view.is_tile() || store->to.view.buffer->type.is_boolean() ||
          !values_of(ops).differs(store->value, ops[i].lane))
        continue;
      const Buffer* tile = store->to.view.buffer.get();
      const auto mentions = uses_.mentions.find(tile);
      const std::optional<Accesses> own = accesses_of_stored(ops, i, k, store->to);
      if (!own || mentions == uses_.mentions.end()) continue;
      const bool is_finished =
          finished_.contains(tile) && !accesses(later, tile) && !is_reduced_to(ops, tile);
      const bool stays = mentions->second != own->all && !is_finished;
      if (own->behind == 0 && stays) continue;
      const auto value = std::make_shared<const Variable>(
          Variable{"kept", compute_type(tile->type), VariableKind::let, ops[i].body[k]->at});
      forward(ops, value, tile, stays);
    }
  return ops;
}

// What is chosen where elements of rows exist, while all of them do.
Expr GridPrinter::of_whole_rows(const Expr& value) const {
  const auto is_known = [&](const Expr& inside) { return equal(value->args[0], inside); };
  const bool chosen = value->op == Op::select && !whole_.empty() &&
                      std::any_of(true_of_rows_.begin(), true_of_rows_.end(), is_known);
  return chosen ? value->args[1] : value;
}

WholeRows GridPrinter::whole_rows(const std::vector<RowOp>& ops) {
  std::size_t statements = 0;
  for (const RowOp& op : ops) {
    statements += op.body.size();
    if (!is_plain(op.body)) return {};
  }
  if (statements > most_statements) return {};
  WholeRows whole;
  lane_ = Lane{ops[0].lane, "0", "", ops[0].extent};
  for (const RowOp& op : ops)
    for (const Stmt& s : op.body) {
      const auto* load = as<Load>(s);
      const auto* store = as<Store>(s);
      if (load) add_whole_row(ops, load->from, whole);
      if (store) add_whole_row(ops, store->to, whole);
    }
  lane_.reset();
  varying_.clear();
  return whole;
}

void GridPrinter::add_whole_row(const std::vector<RowOp>& ops, const Access& access, WholeRows& whole) {
  if (access.view.is_tile() || access.view.buffer->type.bits() == 64) return;
  bool own_place = false;  // which the loop finds out, or each vector, in the index or in the view
  const auto look = [&](const Expr& e) { own_place |= e && (defines_any(ops, e) || differs_by_group(e)); };
  for (const Expr& e : access.index) look(e);
  for_each_expr(access.view, look);
  if (own_place) return;
  const Address at = address(access);
  if (at.kind != Address::Kind::row) return;
  whole_.insert(&access);
  if (Expr inside =
          passes::is_along_rows(access.view) ? passes::existence(access.view, access.index, {}) : nullptr)
    true_of_rows_.push_back(std::move(inside));
  const auto add = [](Terms& terms, const std::string& term) {
    if (!term.empty() && std::find(terms.begin(), terms.end(), term) == terms.end()) terms.push_back(term);
  };
  for (const std::string& condition : {at.guard, at.step == "1" ? "" : fmt::format("{} == 1", at.step),
                                       at.begin.empty() ? "" : fmt::format("{} <= 0", at.begin)})
    add(whole.conditions, condition), add(whole.of_pieces, condition);
  if (at.end.empty()) return;
  const std::string reaches = fmt::format("{} >= {}", at.end, scalar(ops[0].extent));
  add(whole.conditions, reaches);
  // A piece begins anywhere in its row: of the last one a part exists.
  const std::vector<Expr> place = coordinates(access);
  const bool is_piece =
      std::none_of(place.begin(), place.end(), [&](const Expr& e) { return is_lane_index(e); });
  add(is_piece ? whole.ends : whole.of_pieces, is_piece ? at.end : reaches);
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
  return fmt::format("(const char*)({}) + {}", at.pointer,
                     loops_.empty() ? bytes_ahead : bytes_ahead_in_loops);
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

// Whether a list names the row and it ends before what would be fetched, which is a row that nobody named.
bool GridPrinter::is_short_of_list(const Access& access) const {
  const std::vector<Expr> place = coordinates(access);
  const bool named = std::any_of(place.begin(), place.end(), [&](const Expr& e) {
    bool found = false;
    for_each_variable(e, [&](const VariablePtr& v) { found |= of_lists_.contains(v.get()); });
    return found;
  });
  const int ahead = loops_.empty() ? bytes_ahead : bytes_ahead_in_loops;
  return named && is_constant(lane_->extent) &&
         constant_value(lane_->extent) * access.view.buffer->type.bits() / 8 <= ahead;
}

// Rows of a window that another pass has read are in the cache, as are tensors of one row.
std::string GridPrinter::load_whole(const Access& access, const Address& at) {
  const auto same = [&](const Access& other) { return is_same_window(access, other); };
  if (!is_read_again(access) && !is_short_of_list(access) && access.view.buffer->rank() > 1 &&
      std::none_of(fetched_.begin(), fetched_.end(), same)) {
    out_.line(fmt::format("__builtin_prefetch({});", ahead_of(access, at)));
    fetched_of_pass_.push_back(access);
  }
  return fmt::format("load({})", at.pointer);
}

void GridPrinter::store_whole(const BufferPtr& buffer, const Address& at, const std::string& value) {
  constexpr int bytes_ahead_of_stores = 1024;
  out_.line(fmt::format("__builtin_prefetch((const char*)({}) + {}, 1);", at.pointer, bytes_ahead_of_stores));
  const char* pairs = buffer->type == bf16 ? ", call->has_tiles > 0" : "";
  out_.line(fmt::format("store({}, {}{});", at.pointer, value, pairs));
}

}  // namespace tegula::codegen
