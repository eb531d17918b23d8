#include "ir/print.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/inline_reads.hpp"
#include "ir/print_expr.hpp"
#include "ir/print_lines.hpp"

namespace tegula::ir {
namespace {

std::string_view name_of(Space space) {
  return space == Space::shared ? "shared" : space == Space::fragment ? "fragment" : "global";
}

std::string_view name_of(Role role) {
  constexpr std::string_view names[] = {"input", "output", "inout", "workspace", "tile"};
  return names[static_cast<int>(role)];
}

std::string options(const GemmHints& hints) {
  std::string text;
  if (hints.accumulation == Accumulation::tensor_core) text += ", accumulate = tensor_core";
  constexpr std::string_view warps[] = {"automatic", "rows", "columns", "square"};
  constexpr std::string_view precisions[] = {"ieee", "tf32", "tf32x3"};
  if (hints.precision != Precision::ieee)
    text += fmt::format(", precision = {}", precisions[static_cast<int>(hints.precision)]);
  if (hints.warps != Warps::automatic)
    text += fmt::format(", warps = {}", warps[static_cast<int>(hints.warps)]);
  if (hints.swap) text += fmt::format(", swap = {}", *hints.swap);
  if (hints.from_registers) text += fmt::format(", from_registers = {}", *hints.from_registers);
  return text;
}

class Printer {
 public:
  std::string kernel(const Kernel& kernel);
  std::string body(const Body& body);

  ExprPrinter text;

 private:
  void line(std::string row, const Loc& at = {}) { lines_.push_back({depth_, std::move(row), at}); }

  void name_free(const Body& body);
  void signature(const Kernel& kernel);
  void dims(const Kernel& kernel);
  void tensor(const BufferPtr& tensor);
  void grid(const Grid& grid);
  std::string options(const GridHints& hints);

  // The statements of a body in a scope of their own; the text of `tail`, evaluated after them.
  std::string scope(const Body& body, const Expr& tail = nullptr);
  // A line that opens, the body, a line that closes.
  void block(const std::string& open, const Body& body, const std::string& close, const Loc& at);
  std::string loop_range(const For& loop, std::size_t k);
  std::string tensor_side(const View& view, const View& other);

  void print(const Let& n, const Loc& at);
  void print(const Load& n, const Loc& at);
  void print(const Store& n, const Loc& at);
  void print(const Declare& n, const Loc& at);
  void print(const DeclareVar& n, const Loc& at);
  void print(const Assign& n, const Loc& at);
  void print(const Atomic& n, const Loc& at);
  void print(const Copy& n, const Loc& at);
  void print(const Gather& n, const Loc& at);
  void print(const Fill& n, const Loc& at);
  void print(const Gemm& n, const Loc& at);
  void print(const Reduce& n, const Loc& at);
  void print(const Scan& n, const Loc& at);
  void print(const Accumulate& n, const Loc& at);
  void print(const Turn& n, const Loc& at);
  void print(const For& n, const Loc& at);
  void print(const If& n, const Loc& at);
  void print(const While& n, const Loc& at);
  void print(const Break& n, const Loc& at);
  void print(const Exit& n, const Loc& at);
  void print(const Print& n, const Loc& at);
  void print(const Assert& n, const Loc& at);

  std::vector<Line> lines_;
  int depth_ = 0;
  UseCounts uses_;
};

std::string Printer::kernel(const Kernel& kernel) {
  line(fmt::format("kernel {} {{", kernel.name), kernel.at);
  ++depth_;
  signature(kernel);
  for (const Grid& g : kernel.grids) grid(g);
  --depth_;
  line("}");
  return layout(lines_);
}

// What the statements do not define themselves is named first, in the order in which they mention it.
void Printer::name_free(const Body& body) {
  const Effects all = all_effects(body);
  const auto inside = [](const auto& list, const auto& x) {
    return std::find(list.begin(), list.end(), x) != list.end();
  };
  for (const VariablePtr& v : all.used) {
    if (!inside(all.defined, v)) text.names.of(v);
  }
  for (const Region& region : all.regions) {
    if (!inside(all.declared, region.view->buffer)) text.names.of(region.view->buffer);
  }
}

std::string Printer::body(const Body& body) {
  uses_ = count_uses(body);
  name_free(body);
  scope(body);
  return layout(lines_);
}

void Printer::dims(const Kernel& kernel) {
  if (kernel.dims.empty()) return;
  std::vector<std::string> names;
  for (const Dim& dim : kernel.dims)
    names.push_back(text.names.of(dim.variable) +
                    (dim.multiple == 1 ? "" : fmt::format(".multiple_of({})", dim.multiple)));
  line(fmt::format("dim {}", fmt::join(names, ", ")), kernel.dims.front().variable->at);
}

void Printer::tensor(const BufferPtr& tensor) {
  line(fmt::format("{} {}: {}{}{}", name_of(tensor->role), text.names.of(tensor), tensor->type.name(),
                   text.shape(tensor->shape), tensor->zero ? " = 0" : ""),
       tensor->at);
}

void Printer::signature(const Kernel& kernel) {
  dims(kernel);
  for (const Parameter& p : kernel.parameters) {
    if (p.tensor) {
      tensor(p.tensor);
    } else {
      line(fmt::format("scalar {}: {}", text.names.of(p.scalar), p.scalar->type.name()), p.scalar->at);
    }
  }
  for (const BufferPtr& workspace : kernel.workspaces) tensor(workspace);
  for (const auto& [a, b] : kernel.may_alias) {
    line(fmt::format("may_alias({}, {})", text.names.of(a), text.names.of(b)));
  }
  for (const Requirement& r : kernel.requirements) {
    line(fmt::format("require({}, \"{}\")", text(r.condition), r.message), r.at);
  }
}

std::string Printer::options(const GridHints& hints) {
  std::string out;
  if (hints.threads != 0) out += fmt::format(", threads = {}", hints.threads);
  if (hints.persistent) out += ", persistent";
  switch (hints.order) {
    case GridOrder::automatic:
      break;
    case GridOrder::row:
      out += ", order = row";
      break;
    case GridOrder::column:
      out += ", order = column";
      break;
    case GridOrder::grouped:
      out += fmt::format(", order = grouped({})", hints.group);
      break;
    case GridOrder::heavy_first:
      out += fmt::format(", order = heavy_first({}{})", text(hints.cost),
                         hints.together ? fmt::format(", {} together", text(hints.together)) : "");
      break;
  }
  if (hints.cluster != 1) out += fmt::format(", cluster = {}", hints.cluster);
  if (hints.blocks_per_processor != 0) {
    out += fmt::format(", blocks_per_processor = {}", hints.blocks_per_processor);
  }
  return out;
}

void Printer::grid(const Grid& grid) {
  uses_ = count_uses(grid.body);
  line("");
  text.names.enter();
  std::vector<std::string> ranges;
  for (std::size_t k = 0; k < grid.index.size(); ++k) {
    const std::string extent = text(grid.extents[k]);
    ranges.push_back(fmt::format("{} in {}", text.names.of(grid.index[k]), extent));
  }
  block(fmt::format("grid {}{} {{", fmt::join(ranges, ", "), options(grid.hints)), grid.body, "}", grid.at);
  text.names.leave();
}

std::string Printer::scope(const Body& body, const Expr& tail) {
  text.names.enter();
  const std::vector<bool> in_place = inlined_reads(body, tail, uses_);
  for (std::size_t k = 0; k < body.size(); ++k) {
    const Stmt& stmt = body[k];
    if (in_place[k]) {
      const auto* load = as<Load>(stmt);
      text.write_in_place(load ? load->variable : as<Let>(stmt)->variable, stmt);
    } else {
      std::visit([&](const auto& node) { print(node, stmt->at); }, stmt->node);
    }
  }
  const std::string result = tail ? text(tail) : "";
  text.names.leave();
  return result;
}

void Printer::block(const std::string& open, const Body& body, const std::string& close, const Loc& at) {
  line(open, at);
  ++depth_;
  scope(body);
  --depth_;
  line(close);
}

void Printer::print(const Let& n, const Loc& at) {
  const std::string value = text(n.value);
  line(fmt::format("{} = {}", text.names.of(n.variable), value), at);
}

void Printer::print(const Load& n, const Loc& at) {
  const std::string value = text(n.from);
  line(fmt::format("{} = {}", text.names.of(n.variable), value), at);
}

void Printer::print(const Store& n, const Loc& at) {
  line(fmt::format("{} = {}", text(n.to), text(n.value)), at);
}

void Printer::print(const Declare& n, const Loc& at) {
  line(fmt::format("{} {}: {}{}", name_of(n.tile->space), text.names.of(n.tile), n.tile->type.name(),
                   text.shape(n.tile->shape)),
       at);
}

void Printer::print(const DeclareVar& n, const Loc& at) {
  const std::string value = text(n.value);
  line(fmt::format("var {}: {} = {}", text.names.of(n.variable), n.variable->type.name(), value), at);
}

void Printer::print(const Assign& n, const Loc& at) {
  line(fmt::format("{} = {}", text.names.of(n.variable), text(n.value)), at);
}

void Printer::print(const Atomic& n, const Loc& at) {
  line(fmt::format("atomic_{}({}, {})", ir::name_of(n.op), text(n.to), text(n.value)), at);
}

// A window has the extents of the tile on the other side.
std::string Printer::tensor_side(const View& view, const View& other) {
  const bool window = !view.is_tile() && view.extents.size() == other.extents.size();
  return window ? text(view, other.extents) : text(view);
}

void Printer::print(const Copy& n, const Loc& at) {
  const bool zero = !n.fill || is_constant(n.fill, 0) ||
                    (is_constant(n.fill) && equal(n.fill, constant(n.fill->type, 0.0)));
  const std::string fill = zero ? "" : ", fill = " + text(n.fill);
  const char* beyond = n.any_beyond_limits ? ", any beyond limits" : "";
  const char* outside = n.any_outside ? ", any outside" : "";
  const char* turned = n.turned_sum ? ", a turned sum" : "";
  line(fmt::format("copy({}, {}{}{}{}{})", tensor_side(n.from, n.to), tensor_side(n.to, n.from), fill, beyond,
                   outside, turned),
       at);
}

void Printer::print(const Gather& n, const Loc& at) {
  const std::string open = fmt::format("gather({}, {}, ", text(n.from), text(n.to));
  text.names.enter();
  const std::string index = text.names.of(n.index);
  const std::size_t first = lines_.size();
  line(fmt::format("{}{} -> {{", open, index), at);
  ++depth_;
  const std::string row = scope(n.body, n.row);
  if (lines_.size() == first + 1) {
    lines_.back().text = fmt::format("{}{} -> {})", open, index, row);
    --depth_;
  } else {
    line(row);
    --depth_;
    line("})");
  }
  text.names.leave();
}

void Printer::print(const Fill& n, const Loc& at) {
  line(fmt::format("fill({}, {})", text(n.to), text(n.value)), at);
}

void Printer::print(const Gemm& n, const Loc& at) {
  const std::string left =
      n.metadata ? fmt::format("_sparse({}, {}", text(n.a), text(*n.metadata)) : "(" + text(n.a);
  line(fmt::format("gemm{}, {}, {}{}{})", left, text(n.b), text(n.c), n.overwrite ? ", overwrite" : "",
                   ir::options(n.hints)),
       at);
}

void Printer::print(const Reduce& n, const Loc& at) {
  line(fmt::format("reduce_{}({}, {}, dim = {}{})", ir::name_of(n.op), text(n.from), text(n.to), n.dim,
                   n.overwrite ? ", overwrite" : ""),
       at);
}

void Printer::print(const Scan& n, const Loc& at) {
  line(fmt::format("scan_{}({}, {}, dim = {}{}{}{})", ir::name_of(n.op), text(n.from), text(n.to), n.dim,
                   n.exclusive ? ", exclusive" : "", n.reverse ? ", reverse" : "",
                   n.starts ? ", starts = " + text(*n.starts) : ""),
       at);
}

void Printer::print(const Accumulate& n, const Loc& at) {
  const std::string op = n.op == AtomicOp::add ? "" : fmt::format("_{}", ir::name_of(n.op));
  std::string order = n.order ? ", order = " + text(n.order) : "";
  if (n.turn) order += n.overwrite ? ", consecutive, overwrite" : ", consecutive";
  line(fmt::format("accumulate{}({}, {}{})", op, tensor_side(n.to, n.tile), text(n.tile), order), at);
}

void Printer::print(const Turn& n, const Loc& at) {
  line(n.order ? fmt::format("wait_turn({})", text(n.order)) : "pass_turn()", at);
}

std::string Printer::loop_range(const For& loop, std::size_t k) {
  const std::string end = text(loop.end[k]);
  const bool from_zero = is_constant(loop.begin[k], 0);
  const std::string range = from_zero ? end : fmt::format("{} : {}", text(loop.begin[k]), end);
  return fmt::format("{} in {}", text.names.of(loop.index[k]), range);
}

void Printer::print(const For& n, const Loc& at) {
  text.names.enter();
  std::vector<std::string> ranges;
  for (std::size_t k = 0; k < n.index.size(); ++k) ranges.push_back(loop_range(n, k));
  const std::string stages = n.stages == 0 ? "" : fmt::format(", stages = {}", n.stages);
  block(fmt::format("{} {}{} {{", ir::name_of(n.kind), fmt::join(ranges, ", "), stages), n.body, "}", at);
  text.names.leave();
}

void Printer::print(const If& n, const Loc& at) {
  std::string open = n.of_rows.empty() ? "when " + text(n.condition) : "";
  for (const Expr& e : n.of_rows) open += (open.empty() ? "when_rows " : ", ") + text(e);
  if (n.together) open += ", together = " + text(n.together);
  if (n.otherwise.empty()) return block(open + " {", n.then, "}", at);
  line(open + " {", at);
  ++depth_;
  scope(n.then);
  --depth_;
  block("} otherwise {", n.otherwise, "}", {});
}

void Printer::print(const While& n, const Loc& at) {
  const std::size_t first = lines_.size();
  line("while {", at);
  ++depth_;
  const std::string condition = scope(n.test, n.condition);
  --depth_;
  if (lines_.size() == first + 1) {
    lines_.pop_back();
    return block(fmt::format("while {} {{", condition), n.body, "}", at);
  }
  ++depth_;
  line(condition);
  --depth_;
  block("} do {", n.body, "}", {});
}

void Printer::print(const Break& n, const Loc& at) {
  line(fmt::format("break_if({})", text(n.condition)), at);
}
void Printer::print(const Exit& n, const Loc& at) { line(fmt::format("exit_if({})", text(n.condition)), at); }

void Printer::print(const Print& n, const Loc& at) {
  line(fmt::format("print(\"{}\", {})", n.label, text(n.value)), at);
}

void Printer::print(const Assert& n, const Loc& at) {
  line(fmt::format("assert_that({}, \"{}\")", text(n.condition), n.message), at);
}

}  // namespace

std::string print(const Kernel& kernel) { return Printer().kernel(kernel); }
std::string print(const Body& body) { return Printer().body(body); }
std::string print(const Stmt& stmt) { return Printer().body({stmt}); }
std::string print(const Expr& e) { return ExprPrinter()(e); }
std::string print(const View& view) { return ExprPrinter()(view); }

}  // namespace tegula::ir
