// The blocks that one function runs, one after the other; by themselves, or in pairs that share loads.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// The grid with half as many blocks along one index.
Grid pairs_of(const Grid& grid, std::size_t index) {
  Grid result = grid;
  const Expr& extent = grid.extents[index];
  const DType type = extent->held();
  const Expr more = make(Op::add, type, {extent, constant(type, 1)}, extent->at);
  result.extents[index] = make(Op::div, type, {more, constant(type, 2)}, extent->at);
  result.index[index] =
      passes::new_variable("pair", grid.index[index]->type, VariableKind::index, extent->at);
  if (index == 1) result.hints.group = std::max(1, grid.hints.group / 2);
  return result;
}

}  // namespace

// How many blocks the grid has.
std::string CudaGridPrinter::blocks_text(const Grid& grid) {
  Texts extents;
  for (const Expr& extent : grid.extents) extents.push_back(fmt::format("uint32_t({})", bare(value(extent))));
  return fmt::format("{}", fmt::join(extents, " * "));
}

void CudaGridPrinter::tiles(const schedule::Loop& n) {
  const std::string tile = names_.unique("tile"), count = names_.unique("tiles");
  const Facts before = facts_;
  const bool in_pairs = roles_->cluster() > 1;
  const Grid grid = in_pairs ? pairs_of(*grid_, static_cast<std::size_t>(roles_->pair_index)) : *grid_;
  out_.code();
  out_.line(fmt::format("const uint32_t {} = {};", count, blocks_text(grid)));
  out_.line("#pragma unroll 1");
  out_.open_step(StepKind::loop,
                 fmt::format("for (uint32_t {0} = blockIdx.x{2}; {0} < {1}; {0} += gridDim.x{2}) {{", tile,
                             count, in_pairs ? " / 2" : ""));
  order_.decode(grid, tile);
  if (in_pairs) name_in_pair(grid);
  name_divisions();
  const std::string outside = std::exchange(leave_, "continue;");
  events(n.body);
  leave_ = outside;
  values_.forget_names();
  out_.close_step();
  facts_ = before;
}

// The index of this block: the last pair may reach beyond the grid by one, and finds nothing to do there.
void CudaGridPrinter::name_in_pair(const Grid& pairs) {
  const auto i = static_cast<std::size_t>(roles_->pair_index);
  out_.line(fmt::format("const int {} = {} * 2 + int(blockIdx.x % 2);", name_variable(grid_->index[i]),
                        variable_text(pairs.index[i])));
  facts_.add_range(grid_->index[i], {0, INT32_MAX});
}

namespace {

// Whether all that the division needs is known at launch, but for some of these variables. Division by
// constants is fast.
bool is_division(const Expr& e, const std::function<bool(const VariablePtr&)>& of) {
  const bool divides = e->op == Op::div || e->op == Op::mod || e->op == Op::floordiv ||
                       e->op == Op::floormod || e->op == Op::ceildiv;
  if (!divides || e->held() != i32 || is_constant(e->args[1])) return false;
  bool known = true, depends = false;
  for_each_variable(e, [&](const VariablePtr& v) {
    known &= of(v) || is_host(v->kind);
    depends |= of(v);
  });
  return known && depends;
}

}  // namespace

// Once for a block.
void CudaGridPrinter::name_divisions() {
  values_.forget_names();
  name_divisions([&](const VariablePtr& v) {
    return std::find(grid_->index.begin(), grid_->index.end(), v) != grid_->index.end();
  });
}

// The compiler would repeat them wherever only some threads go, for every element of a thread where signs
// have to be tested, and they take longer than anything else there.
void CudaGridPrinter::name_divisions(const std::function<bool(const VariablePtr&)>& of) {
  if (!roles_ || (!is_consumer_ && !roles_->one_loader)) return;  // whose threads have few registers
  std::vector<Expr> named;
  const auto add = [&](const Expr& e) {
    if (!is_division(e, of)) return;
    for (const Expr& division : named)
      if (equal(e, division)) return;
    const std::string text = value(e), name = names_.unique("d");
    out_.line(fmt::format("const {} {} = {};", scalar_type(e->held()), name, text));
    values_.set_name(e, name);
    named.push_back(e);
  };
  for_each_stmt(grid_->body,
                [&](const Stmt& s) { for_each_expr(s, [&](const Expr& e) { for_each_node(e, add); }); });
}

}  // namespace tegula::codegen
