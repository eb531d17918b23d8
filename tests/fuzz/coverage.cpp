#include "fuzz/coverage.hpp"

#include <fmt/format.h>

#include <set>

#include "ir/visit.hpp"

namespace tegula::fuzz {
namespace {

using namespace ir;
using Names = std::set<std::string>;

std::string_view space_name(Space space) {
  constexpr std::string_view names[] = {"global", "shared", "fragment"};
  return names[static_cast<int>(space)];
}

constexpr std::string_view orders[] = {"automatic", "row", "column", "grouped", "heavy_first"};

class Collector {
 public:
  explicit Collector(Names& names) : names_(names) {}

  void kernel(const Kernel& kernel) {
    for (const Parameter& p : kernel.parameters) {
      if (p.tensor) buffer(*p.tensor);
      if (p.scalar) add("scalar", p.scalar->type.name());
    }
    for (const BufferPtr& w : kernel.workspaces) buffer(*w);
    if (!kernel.dims.empty()) names_.insert("dims");
    add("grids", kernel.grids.size() > 1 ? "several" : "one");
    for (const Grid& grid : kernel.grids) {
      add("grid rank", std::to_string(grid.index.size()));
      for (const Expr& extent : grid.extents)
        if (is_constant(extent, 0)) names_.insert("empty grid");
      add("order", orders[static_cast<int>(grid.hints.order)]);
    }
    for_each_stmt(kernel, [this](const Stmt& stmt) { statement(stmt); });
  }

 private:
  void add(std::string_view kind, std::string_view which) {
    names_.insert(fmt::format("{} {}", kind, which));
  }

  void buffer(const Buffer& b) {
    constexpr std::string_view roles[] = {"input", "output", "inout", "workspace", "tile"};
    add(b.is_tile() ? space_name(b.space) : roles[static_cast<int>(b.role)], b.type.name());
    if (b.zero) names_.insert("zero");
    for (const Expr& extent : b.shape)
      if (is_constant(extent, 0)) names_.insert("empty tensor");
    if (b.is_tile() && !b.shape.empty() && constant_value(b.shape.back()) >= 48) names_.insert("wide tile");
  }

  void expression(const Expr& e) {
    for_each_node(e, [this](const Expr& node) {
      if (node->op == Op::constant || node->op == Op::variable) return;
      const DType type = node->op >= Op::eq && node->op <= Op::isnan ? node->args[0]->held() : node->type;
      add(name_of(node->op), type.name());
    });
  }

  void view(const View& v) {
    if (!equal_shapes(v)) add("view reshaped", v.is_tile() ? "tile" : "tensor");
    int last = -1;
    for (const ViewDim& dim : v.dims) {
      if (dim.low) add("view range", v.is_tile() ? "tile" : "tensor");
      if (dim.axis < 0) add("view index", v.is_tile() ? "tile" : "tensor");
      if (dim.axis >= 0 && dim.axis < last) add("view transposed", v.is_tile() ? "tile" : "tensor");
      last = std::max(last, dim.axis);
    }
  }
  static bool equal_shapes(const View& v) {
    if (v.shape.size() != v.buffer->shape.size()) return false;
    for (std::size_t d = 0; d < v.shape.size(); ++d) {
      if (!equal(v.shape[d], v.buffer->shape[d])) return false;
    }
    return true;
  }

  void conversion(std::string_view what, const View& from, const View& to) {
    add(what, fmt::format("{} to {}", space_name(from.buffer->space), space_name(to.buffer->space)));
    if (!(from.buffer->type == to.buffer->type)) add(what, "converting");
  }

  void statement(const Stmt& stmt) {
    for_each_expr(stmt, [this](const Expr& e) { expression(e); });
    for_each_view(stmt, [this](const View& v) { view(v); });
    if (const auto* n = as<Declare>(stmt)) buffer(*n->tile);
    if (const auto* n = as<Load>(stmt)) add("load", space_name(n->from.view.buffer->space));
    if (const auto* n = as<Store>(stmt)) add("store", space_name(n->to.view.buffer->space));
    if (const auto* n = as<DeclareVar>(stmt)) add("variable", n->variable->type.name());
    if (as<Assign>(stmt)) names_.insert("assign");
    if (const auto* n = as<If>(stmt)) names_.insert(n->of_rows.empty() ? "when" : "when_rows");
    if (const auto* n = as<If>(stmt); n && !n->otherwise.empty()) names_.insert("otherwise");
    if (as<While>(stmt)) names_.insert("loop_while");
    if (as<Break>(stmt)) names_.insert("break_if");
    if (as<Exit>(stmt)) names_.insert("exit_if");
    if (as<Assert>(stmt)) names_.insert("assert_that");
    tile_operation(stmt);
    if (const auto* n = as<For>(stmt)) loop(*n);
  }

  void tile_operation(const Stmt& stmt) {
    if (const auto* n = as<Copy>(stmt)) {
      conversion("copy", n->from, n->to);
      if (n->fill) names_.insert("copy fill");
    }
    if (const auto* n = as<Gather>(stmt)) conversion("gather", n->from, n->to);
    if (const auto* n = as<Fill>(stmt)) add("fill", space_name(n->to.buffer->space));
    if (const auto* n = as<Gemm>(stmt)) {
      add("gemm", n->a.buffer->type.name());
      add("gemm a", space_name(n->a.buffer->space));
      add("gemm b", space_name(n->b.buffer->space));
    }
    if (const auto* n = as<Reduce>(stmt)) {
      add("reduce", name_of(n->op));
      add("reduce of", n->from.buffer->type.name());
    }
    if (const auto* n = as<Scan>(stmt)) {
      add("scan", name_of(n->op));
      if (n->exclusive) names_.insert("scan exclusive");
      if (n->reverse) names_.insert("scan reverse");
      if (n->starts) names_.insert("scan by segments");
    }
    if (const auto* n = as<Accumulate>(stmt))
      add(n->turn ? "accumulate in turns" : n->order ? "accumulate ordered" : "accumulate", name_of(n->op));
    if (const auto* n = as<Atomic>(stmt)) {
      add("atomic", name_of(n->op));
      add("atomic on", space_name(n->to.view.buffer->space));
      add("atomic of", n->to.view.buffer->type.name());
    }
  }

  void loop(const For& n) {
    add("loop", name_of(n.kind));
    if (n.kind == LoopKind::parallel) add("parallel rank", std::to_string(n.index.size()));
    const bool known = is_constant(n.begin[0]) && is_constant(n.end[0]);
    if (!known) return add("trips", "at run time");
    const std::int64_t trips = constant_value(n.end[0]) - constant_value(n.begin[0]);
    add("trips", trips <= 0 ? "0" : trips == 1 ? "1" : "several");
  }

  Names& names_;
};

template <class List>
void each(Names& names, std::string_view kind, const List& list) {
  for (const auto& which : list) names.insert(fmt::format("{} {}", kind, which));
}

// What a long run should have seen.
Names expected() {
  Names names{"dims",
              "zero",
              "assign",
              "when",
              "when_rows",
              "otherwise",
              "loop_while",
              "break_if",
              "exit_if",
              "assert_that",
              "copy fill",
              "scan exclusive",
              "scan reverse",
              "scan by segments",
              "scan sum",
              "scan max",
              "scan min",
              "gather converting",
              "copy converting",
              "empty tensor",
              "empty grid",
              "wide tile"};
  std::vector<std::string_view> types;
  for (const DType type : all_dtypes) types.push_back(type.name());
  for (const char* kind : {"input", "output", "inout", "workspace", "shared", "fragment"})
    each(names, kind, types);
  each(names, "order", orders);
  each(names, "grid rank", std::vector<int>{1, 2, 3});
  each(names, "parallel rank", std::vector<int>{1, 2, 3});
  each(names, "trips", std::vector<std::string_view>{"0", "1", "several", "at run time"});
  each(names, "copy",
       std::vector<std::string_view>{"global to shared", "global to fragment", "shared to global",
                                     "fragment to global", "shared to fragment", "fragment to shared",
                                     "shared to shared", "fragment to fragment"});
  each(names, "gather", std::vector<std::string_view>{"global to shared", "global to fragment"});
  each(names, "gemm",
       std::vector<std::string_view>{"i8", "i16", "i32", "u8", "e4m3", "e5m2", "f16", "bf16", "f32", "f64"});
  for (const char* kind : {"gemm a", "gemm b", "fill"})
    each(names, kind, std::vector<std::string_view>{"shared", "fragment"});
  for (const char* kind : {"view range", "view index", "view reshaped", "view transposed"})
    each(names, kind, std::vector<std::string_view>{"tile", "tensor"});
  names.erase("view transposed tensor");  // tensors are transposed by their strides
  for (int op = 0; op <= static_cast<int>(ReduceOp::all); ++op)
    names.insert(fmt::format("reduce {}", name_of(static_cast<ReduceOp>(op))));
  for (int kind = 0; kind <= static_cast<int>(LoopKind::warps); ++kind)
    names.insert(fmt::format("loop {}", name_of(static_cast<LoopKind>(kind))));
  for (int op = 0; op <= static_cast<int>(AtomicOp::bit_and); ++op) {
    names.insert(fmt::format("atomic {}", name_of(static_cast<AtomicOp>(op))));
  }
  for (const char* op : {"add", "min", "max"}) {
    names.insert(fmt::format("accumulate {}", op));
    names.insert(fmt::format("accumulate ordered {}", op));
    names.insert(fmt::format("accumulate in turns {}", op));
  }
  return names;
}

}  // namespace

void add_coverage(const Kernel& kernel, std::map<std::string, std::int64_t>& counts) {
  Names names;
  Collector(names).kernel(kernel);
  for (const std::string& name : names) ++counts[name];
}

std::string coverage_text(const std::map<std::string, std::int64_t>& counts) {
  std::string missing, all;
  const Names table = expected();
  std::size_t seen = 0;
  for (const std::string& name : table) {
    if (counts.contains(name))
      ++seen;
    else
      missing += (missing.empty() ? "" : ", ") + name;
  }
  for (const auto& [name, count] : counts)
    all += fmt::format("{}{}: {}", all.empty() ? "" : ", ", name, count);
  return fmt::format(
      "{} of {} constructs of the table covered, {} names in all\nnot covered: {}\nprograms with each: {}\n",
      seen, table.size(), counts.size(), missing.empty() ? "none" : missing, all);
}

}  // namespace tegula::fuzz
