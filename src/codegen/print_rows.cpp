// Loops over the rows of tiles, each row by vectors.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "codegen/grid_printer.hpp"
#include "ir/effects.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

std::string identity(ReduceOp op, DType type) {
  switch (op) {
    case ReduceOp::max:
      if (type.is_floating()) return type == f64 ? "(-__builtin_inf())" : "(-__builtin_inff())";
      return type == i32 ? "INT32_MIN" : type == i64 ? "INT64_MIN" : "0u";
    case ReduceOp::min:
      if (type.is_floating()) return type == f64 ? "__builtin_inf()" : "__builtin_inff()";
      return type == i32 ? "INT32_MAX" : type == i64 ? "INT64_MAX" : "UINT32_MAX";
    case ReduceOp::any:
      return "false";
    case ReduceOp::all:
      return "true";
    default:
      return fmt::format("{}(0)", scalar_type(type));
  }
}

// The running vector `a` is never NaN.
std::string combined(ReduceOp op, const std::string& a, const std::string& b) {
  switch (op) {
    case ReduceOp::sum:
      return fmt::format("{} + {}", a, b);
    case ReduceOp::max:
      return fmt::format("max_into({}, {})", a, b);
    case ReduceOp::min:
      return fmt::format("min_into({}, {})", a, b);
    case ReduceOp::absmax:
      return fmt::format("max_into({}, abs({}))", a, b);
    case ReduceOp::any:
      return fmt::format("{} | {}", a, b);
    default:
      return fmt::format("{} & {}", a, b);
  }
}

// What the result holds, which may be NaN, with the total of a row.
std::string updated(ReduceOp op, const std::string& old, const std::string& total) {
  constexpr const char* forms[] = {"{} + {}",     "max({}, {})", "min({}, {})",
                                   "max({}, {})", "{} || {}",    "{} && {}"};
  return fmt::format(fmt::runtime(forms[static_cast<int>(op)]), old, total);
}

const char* folded(ReduceOp op) {
  constexpr const char* names[] = {"reduce_sum", "fold_max", "fold_min", "fold_max", "any", "all"};
  return names[static_cast<int>(op)];
}

// Takes the statements out that have one result for a whole row: those that read neither the lane nor what
// the pass computes or writes.
Body taken_of_row(std::vector<RowOp>& ops, bool tensors_are_apart) {
  Effects all;
  for (const RowOp& op : ops) {
    const Effects own = all_effects(op.body);
    if (!tensors_are_apart && own.writes_tensors()) return {};
    all.regions.insert(all.regions.end(), own.regions.begin(), own.regions.end());
    all.statements.insert(all.statements.end(), own.statements.begin(), own.statements.end());
  }
  std::unordered_set<const Variable*> inner;
  Body taken;
  for (RowOp& op : ops) {
    Body rest;
    for (const Stmt& s : op.body) {
      const auto* load = as<Load>(s);
      bool of_row = as<Let>(s) || (load && !all.writes(load->from.view.buffer));
      for_each_expr(s, [&](const Expr& e) {
        for_each_variable(e, [&](const VariablePtr& v) {
          of_row = of_row && v != op.lane && !inner.contains(v.get()) && v->kind != VariableKind::mutable_;
        });
      });
      (of_row ? taken : rest).push_back(s);
      if (!of_row) for_each_definition(s, [&](const VariablePtr& v) { inner.insert(v.get()); });
    }
    op.body = std::move(rest);
  }
  return taken;
}

// Numbers of 64 bits are complete, not fast: g++ 12 fails at some of their vectors in loops of a few steps.
bool has_wide_numbers(const std::vector<RowOp>& ops) {
  bool found = false;
  for (const RowOp& op : ops)
    for_each_stmt(op.body, [&](const Stmt& s) {
      for_each_view(s, [&](const View& view) { found |= view.buffer->type.bits() == 64; });
      for_each_definition(s, [&](const VariablePtr& v) { found |= v->type.bits() == 64; });
    });
  return found;
}

// How many elements of a row are in vectors that are surely full: of rows whose length is known, all but
// those of the last one.
std::int64_t elements_in_full_vectors(const std::vector<RowOp>& ops) {
  const Expr& extent = ops.front().extent;
  if (!is_constant(extent)) return 0;
  const std::int64_t n = constant_value(extent), full = n / row_unit * row_unit;
  return full < n && has_wide_numbers(ops) ? 0 : full;
}

}  // namespace

void GridPrinter::outer_loop(const VariablePtr& index, const Expr& extent, const Loc& at) {
  open_loop(index, int32(0), extent, at);
}

// Sums that a step multiplies by what its maxima have changed: mostly by one, when the largest are known.
// Such rows are left alone.
bool GridPrinter::scales_rows(const RowOp& op) const {
  const auto found = factor_of_row(op);
  return found && of_maxima_.contains(found->of_row->from.view.buffer.get());
}

void GridPrinter::rows(const std::vector<RowOp>& group) {
  const RowOp& first = group.front();
  const std::string ahead = std::exchange(fetches_next_, false) ? rows_of_next() : "";
  for (std::size_t i = 0; i < first.outer.size(); ++i)
    outer_loop(first.outer[i], first.outer_extents[i], first.at);
  if (!ahead.empty())
    out_.line(fmt::format("{}.fetch({}, {});", ahead, scalar(variable(first.outer[0])),
                          scalar(first.outer_extents[0])));
  std::vector<RowOp> ops;
  const std::span<const RowOp> all(group);
  for (std::size_t i = 0; i < group.size(); ++i) {
    const bool alone = !ops.empty() && (scales_rows(group[i]) || scales_rows(ops.back()));
    if (!ops.empty() && (alone || !can_share_pass(group[i], ops))) {
      pass(ops, all.subspan(i));
      ops.clear();
    }
    ops.push_back(group[i]);
  }
  pass(ops, {});
  for (std::size_t i = 0; i < first.outer.size(); ++i) out_.close();
}

void GridPrinter::scalar_op(const RowOp& op) {
  open_loop(op.lane, int32(0), op.extent, op.at);
  loops_.push_back(op.outer);
  loops_.back().push_back(op.lane);
  in_scope(op.body);
  loops_.pop_back();
  out_.close();
}

std::string GridPrinter::begin_reduction(const RowOp& op) {
  if (!op.reduces) return "";
  const DType type = op.to.view.buffer->type;
  const std::string name = names_.unique("acc");
  out_.line(fmt::format("{} {} = splat({});", vector_type(type), name, identity(op.op, compute_type(type))));
  return name;
}

void GridPrinter::row_body(const RowOp& op, const std::string& accumulator) {
  if (!op.reduces) return in_scope(op.body);
  body(op.body);
  const DType type = compute_type(op.to.view.buffer->type);
  std::string x = variable_text(op.value);
  if (op.value->type != type) x = fmt::format("to_{}({})", type.name(), x);
  if (!lane_->active.empty()) {
    x = fmt::format("select(lanes_below({}), {}, splat({}))", lane_->active, x, identity(op.op, type));
  }
  out_.line(fmt::format("{} = {};", accumulator, combined(op.op, accumulator, x)));
}

void GridPrinter::end_reduction(const RowOp& op, const std::string& accumulator) {
  if (!op.reduces) return;
  const std::string total = fmt::format("{}({})", folded(op.op), accumulator);
  store(op.to, op.overwrite ? total : updated(op.op, load_text(op.to), total), false);
}

void GridPrinter::vectors(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                          const Lane& lane) {
  lane_ = lane;
  for (std::size_t i = 0; i < ops.size(); ++i) row_body(ops[i], accumulators[i]);
  lane_.reset();
  varying_.clear();
}

// One sum would wait for itself at every vector: four are formed side by side.
void GridPrinter::sums_side_by_side(const std::vector<RowOp>& ops,
                                    const std::vector<std::string>& accumulators, const std::string& end) {
  constexpr int count = 4;
  const RowOp& first = ops.front();
  const std::string step = names_.unique("step"), index = name_variable(first.lane);
  std::string parameters;
  std::vector<std::vector<std::string>> all(count, accumulators);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].reduces) continue;
    parameters += fmt::format(", {}& {}", vector_type(ops[i].to.view.buffer->type), accumulators[i]);
    for (std::size_t k = 1; k < count; ++k) all[k][i] = begin_reduction(ops[i]);
  }
  out_.open(fmt::format("const auto {} = [&](const int32_t {}{}) __attribute__((always_inline)) {{  // {}",
                        step, index, parameters, short_location(first.at)));
  vectors(ops, accumulators, Lane{first.lane, index, "", first.extent});
  out_.close("};");
  const auto call = [&](std::size_t k, const std::string& at) {
    std::string arguments;
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (ops[i].reduces) arguments += ", " + all[k][i];
    out_.line(fmt::format("{}({}{});", step, at, arguments));
  };
  out_.line(fmt::format("int32_t {} = 0;", index));
  out_.open(fmt::format("for (; {0} + {1} * W <= {2}; {0} += {1} * W) {{", index, count, end));
  for (std::size_t k = 0; k < count; ++k) call(k, k == 0 ? index : fmt::format("{} + {} * W", index, k));
  out_.close();
  out_.open(fmt::format("for (; {0} < {1}; {0} += W) {{", index, end));
  call(0, index);
  out_.close();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].reduces) continue;
    const ReduceOp op = ops[i].op;
    out_.line(fmt::format("{} = {};", all[0][i],
                          combined(op, "(" + combined(op, all[0][i], all[1][i]) + ")",
                                   "(" + combined(op, all[2][i], all[3][i]) + ")")));
  }
}

// The vectors of a row that are full, from its first element on.
void GridPrinter::full_vectors(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                               const FullVectors& full) {
  constexpr std::int64_t least_of_sums = 8 * row_unit, enough_sums = 4;
  const RowOp& first = ops.front();
  out_.open("{");
  const auto sums = std::count_if(ops.begin(), ops.end(), [](const RowOp& op) { return op.reduces; });
  if (full.most >= least_of_sums && sums > 0 && sums < enough_sums) {
    sums_side_by_side(ops, accumulators, full.end);
    return out_.close();
  }
  const std::string index = name_variable(first.lane);
  // Rows are short, so that the loop itself would be a good part of the work; elsewhere the compiler's time
  // counts.
  if (pipelined_ > 0) out_.line("#pragma GCC unroll 4");
  out_.open(fmt::format("for (int32_t {0} = 0; {0} < {1}; {0} += W) {{  // {2}", index, full.end,
                        short_location(first.at)));
  vectors(ops, accumulators, Lane{first.lane, index, "", first.extent});
  out_.close();
  out_.close();
}

bool GridPrinter::accesses_narrow(const std::vector<RowOp>& ops) const {
  bool found = false;
  for (const RowOp& op : ops)
    for_each_stmt(op.body, [&](const Stmt& s) {
      for_each_view(s, [&](const View& view) { found |= uses_.narrow.contains(view.buffer.get()); });
    });
  return found;
}

// Tiles lie in one of two ways, which the processor decides.
void GridPrinter::whole_vectors(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                                std::int64_t end) {
  if (!accesses_narrow(ops)) return full_vectors(ops, accumulators, {end});
  out_.open("if (call->has_tiles != 0) {");
  by_tiles_ = true;
  full_vectors(ops, accumulators, {end});
  by_tiles_ = false;
  out_.reopen("} else {");
  full_vectors(ops, accumulators, {end});
  out_.close();
}

void GridPrinter::remaining_vectors(const std::vector<RowOp>& ops,
                                    const std::vector<std::string>& accumulators, const std::string& begin,
                                    std::int64_t end) {
  const RowOp& first = ops.front();
  const std::string index = name_variable(first.lane);
  out_.open(fmt::format("for (int32_t {0} = {1}; {0} < {2}; {0} += W) {{  // {3}", index, begin, end,
                        short_location(first.at)));
  vectors(ops, accumulators, Lane{first.lane, index, "", first.extent});
  out_.close();
}

void GridPrinter::vectors_from(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                               std::int64_t begin) {
  const RowOp& first = ops.front();
  const std::string index = name_variable(first.lane), end = scalar(first.extent);
  out_.open(fmt::format("for (int32_t {0} = {1}; {0} < {2}; {0} += W) {{  // {3}", index, begin, end,
                        short_location(first.at)));
  vectors(ops, accumulators, Lane{first.lane, index, fmt::format("{} - {}", end, index), first.extent});
  out_.close();
}

// The vectors of a piece of a row that exists in part, and where they end.
std::string GridPrinter::vectors_of_piece(const std::vector<RowOp>& ops,
                                          const std::vector<std::string>& accumulators, std::int64_t end,
                                          const WholeRows& whole) {
  const std::string inside = names_.unique("inside");
  std::string least = std::to_string(end);
  for (const std::string& one : whole.ends) least = fmt::format("min(int64_t({}), int64_t({}))", least, one);
  out_.line(fmt::format("int32_t {} = 0;", inside));
  out_.open(whole.of_pieces.empty() ? "{" : fmt::format("if ({}) {{", fmt::join(whole.of_pieces, " && ")));
  out_.line(fmt::format("{} = int32_t(max(int64_t(0), {})) / W * W;", inside, least));
  full_vectors(ops, accumulators, {end, inside});
  out_.close();
  return inside;
}

// The full vectors of rows that may not be whole, in a function of their own: what the questions of each
// vector need would take registers from the loop that asks none.
void GridPrinter::apart(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                        std::int64_t end, const WholeRows& whole) {
  std::vector<std::string> parameters, sums, own;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].reduces) continue;
    parameters.push_back(fmt::format("{}& {}", vector_type(ops[i].to.view.buffer->type), accumulators[i]));
    sums.push_back(accumulators[i]);
    own.push_back(names_.unique("own"));
    out_.line(fmt::format("auto {} = {};", own.back(), sums.back()));
  }
  const std::string parts = names_.unique("parts");
  out_.open(fmt::format("const auto {} = [=]({}) __attribute__((noinline)) {{", parts,
                        fmt::join(parameters, ", ")));
  // What a function captures is in memory, which any store might change: copies that are inlined are not.
  std::string captured = "=";
  for (const std::string& sum : sums) captured += ", &" + sum;
  out_.open(fmt::format("[{}]() __attribute__((always_inline)) {{", captured));
  const bool is_in_pieces = !whole.ends.empty();
  const std::string inside = is_in_pieces ? vectors_of_piece(ops, accumulators, end, whole) : "";
  whole_.clear(), true_of_rows_.clear();
  if (!is_in_pieces) full_vectors(ops, accumulators, {end});
  if (is_in_pieces) remaining_vectors(ops, accumulators, inside, end);
  out_.close("}();");
  out_.close("};");
  out_.line(fmt::format("{}({});", parts, fmt::join(own, ", ")));
  for (std::size_t i = 0; i < own.size(); ++i) out_.line(fmt::format("{} = {};", sums[i], own[i]));
}

// Each of several rows of a tensor is reduced by vectors of its own.
void GridPrinter::look_for_short_rows(const std::vector<RowOp>& ops) {
  const RowOp& first = ops.front();
  if (first.outer.empty() || !is_constant(first.extent)) return;
  const std::int64_t numbers = constant_value(first.extent);
  if (numbers < 2 || numbers >= 2 * row_unit || numbers % row_unit == 0) return;
  bool reduces = false, reads_tensor = false;
  for (const RowOp& op : ops) {
    reduces |= op.reduces;
    for_each_stmt(op.body, [&](const Stmt& s) {
      const auto* load = as<Load>(s);
      reads_tensor |= load && !load->from.view.is_tile();
    });
  }
  if (reduces && reads_tensor) short_row_ = short_row_ == 0 ? numbers : std::min(short_row_, numbers);
}

// `later` are the loops of the same rows that follow.
void GridPrinter::pass(const std::vector<RowOp>& given, std::span<const RowOp> later) {
  const RowOp& first = given.front();
  if (!first.vector) return scalar_op(first);
  std::vector<RowOp> ops = with_values_kept(given, later);
  look_for_short_rows(ops);
  std::vector<std::string> accumulators;
  for (const RowOp& op : ops) accumulators.push_back(begin_reduction(op));
  facts_.add_index(first.lane, int32(0), first.extent);
  const bool is_known = is_constant(first.extent);
  const std::int64_t full = elements_in_full_vectors(ops);
  out_.open("{");
  const Body taken = is_known ? taken_of_row(ops, signature_.kernel().may_alias.empty()) : Body{};
  body(taken);
  const bool scales = is_known && scales_rows(first) && ops.front().body.size() == 2;
  if (scales) out_.open(fmt::format("if ({} != 1.0f) {{", scalar(factor_of_row(first)->factor)));
  for_each_stmt(taken, [&](const Stmt& s) {
    if (const auto* load = as<Load>(s)) of_lists_.insert(load->variable.get());
  });
  // What is taken of a row may say where another one is.
  const WholeRows whole = full > 0 && !accesses_narrow(ops) ? whole_rows(ops) : WholeRows{};
  if (!whole.conditions.empty()) {
    out_.open(fmt::format("if (__builtin_expect({}, 1)) {{", fmt::join(whole.conditions, " && ")));
    full_vectors(ops, accumulators, {full});
    out_.reopen("} else {");
    apart(ops, accumulators, full, whole);
    out_.close();
  } else if (full > 0) {
    whole_vectors(ops, accumulators, full);
  }
  whole_.clear(), true_of_rows_.clear();
  if (!is_known || full < constant_value(first.extent)) vectors_from(ops, accumulators, full);
  if (scales) out_.close();
  out_.close();
  fetched_.insert(fetched_.end(), fetched_of_pass_.begin(), fetched_of_pass_.end());
  fetched_of_pass_.clear(), of_lists_.clear();
  for (std::size_t i = 0; i < ops.size(); ++i) end_reduction(ops[i], accumulators[i]);
}

}  // namespace tegula::codegen
