// Loops and branches that steps stand in.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/steps_apart.hpp"

namespace tegula::codegen {

using namespace ir;

void CudaGridPrinter::add_index(const VariablePtr& index, const Expr& begin, const Expr& end) {
  if (begin->held() == end->held()) facts_.add_index(index, begin, end);
}

void CudaGridPrinter::operator()(const For& n, const Stmt& s) {
  if (n.kind == LoopKind::parallel) return elements(n, s);
  if (n.kind == LoopKind::warps || n.kind == LoopKind::warp_groups) return groups(n, s->at);
  const auto ring = plan_.copy_rings.loops.find(s.get());
  if (ring != plan_.copy_rings.loops.end()) return loop_with_ring(n, ring->second, s->at);
  sequential(n, s->at, [&] { in_scope(n.body); });
}

void CudaGridPrinter::sequential(const For& n, const Loc& at, const std::function<void()>& inside,
                                 const std::function<void()>& before_loop) {
  if (!loop_) out_.code();
  const std::string_view type = scalar_type(n.index[0]->type);
  const std::string end = names_.unique("end"), last = value(n.end[0]), first = value(n.begin[0]);
  out_.line(fmt::format("const {} {} = {};", type, end, bare(last)));
  const Facts before = facts_;
  add_index(n.index[0], n.begin[0], n.end[0]);
  const auto outer = step_reads_;
  begin_step_reads(n, first, end);
  if (before_loop) before_loop();
  const std::string name = name_variable(n.index[0]);
  const bool in_branch = std::exchange(in_branch_, false);
  if (n.kind == LoopKind::unrolled) out_.line("#pragma unroll");
  if (n.kind == LoopKind::pipelined) out_.line("#pragma unroll 1");
  open(fmt::format("for ({0} {1} = {2}; {1} < {3}; ++{1}) {{  // {4}", type, name, first, end,
                   location_in_folder(at)),
       StepKind::loop);
  if (!loop_) keep_apart(n);
  inside();
  close();
  in_branch_ = in_branch;
  step_reads_ = outer;
  facts_ = before;
}

// Steps that touch disjoint parts of a tensor need no order among them.
void CudaGridPrinter::keep_apart(const For& n) {
  for (const auto& [tensor, memory] : memory_of_) {
    const bool alone = std::count_if(memory_of_.begin(), memory_of_.end(),
                                     [&](const auto& other) { return other.second == memory; }) == 1;
    if (alone && written_.contains(tensor) && passes::steps_are_apart(n, *tensor, planned_.extents))
      out_.keep_apart(memory);
  }
}

// That of a warp or of a warp group.
void CudaGridPrinter::set_team(bool is_warp) {
  team_.count = team_.threads / (is_warp ? 32 : 128);
  team_.threads = is_warp ? 32 : 128;
  team_.thread = fmt::format("(thread % {})", team_.threads);
  team_.slot = fmt::format("(thread / {})", team_.threads);
  team_.barrier = is_warp ? "tg::warp_sync();" : "tg::warp_group_sync(thread / 128);";
}

void CudaGridPrinter::groups(const For& n, const Loc& at) {
  const Team outer = team_;
  set_team(n.kind == LoopKind::warps);
  const std::string name = name_variable(n.index[0]);
  const Facts before = facts_;
  add_index(n.index[0], n.begin[0], n.end[0]);
  out_.open_step(StepKind::group,
                 fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{  // {4}", name, team_.slot,
                             constant_value(n.end[0]), team_.count, location_in_folder(at)),
                 team_.barrier);
  in_scope(n.body);
  out_.close_step();
  facts_ = before;
  team_ = outer;
}

void CudaGridPrinter::operator()(const If& n, const Stmt& s) {
  const bool in_branch = std::exchange(in_branch_, true);
  branch(n, s->at, [&] { in_scope(n.then); });
  if (!n.otherwise.empty()) otherwise(n);
  in_branch_ = in_branch;
}

void CudaGridPrinter::otherwise(const If& n) {
  const Facts before = facts_;
  open("else {", StepKind::otherwise);
  if (n.of_rows.empty()) facts_.assume(n.condition, false);
  in_scope(n.otherwise);
  close();
  facts_ = before;
}

void CudaGridPrinter::branch(const If& n, const Loc& at, const std::function<void()>& inside) {
  if (!loop_) out_.code();
  const passes::Deciders by = deciders(n);
  const bool apart = by != passes::Deciders::block;
  const std::string condition = value(apart ? of_unit(n.of_rows, by) : n.condition);
  const Facts before = facts_;
  open(fmt::format("if ({}) {{  // {}", bare(condition), location_in_folder(at)),
       apart ? StepKind::rows : StepKind::branch);
  facts_.assume(n.condition);
  inside();
  close();
  facts_ = before;
}

void CudaGridPrinter::operator()(const While& n, const Stmt& s) {
  repeated(n, s->at, [&] { in_scope(n.body); });
}

void CudaGridPrinter::repeated(const While& n, const Loc& at, const std::function<void()>& inside) {
  open(fmt::format("for (;;) {{  // {}", location_in_folder(at)), StepKind::loop);
  const Facts before = facts_;
  body(n.test);
  if (!loop_) out_.code();
  const std::string condition = value(n.condition);
  out_.line(fmt::format("if (!{}) break;", condition));
  if (!loop_) out_.leaves();
  facts_.assume(n.condition);
  inside();
  facts_ = before;
  close();
}

}  // namespace tegula::codegen
