#include "passes/cuda/rows_of_groups.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/fragment_axes.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// Whether every row is within one warp, and run i of the rows within unit i of the threads.
bool is_by_rows(const layout::Layout& layout, std::int64_t units, int threads_of_unit) {
  const std::int64_t rows = layout.shape()[0];
  if (rows % units != 0) return false;
  std::vector<std::int64_t> warp_of(static_cast<std::size_t>(rows), -1);
  for (std::int64_t thread = 0; thread < layout.thread_count(); ++thread)
    for (std::int64_t reg = 0; reg < layout.register_count(); ++reg) {
      const layout::Coordinates at = layout.coordinates(thread, reg);
      if (!layout.is_inside(at)) continue;
      std::int64_t& warp = warp_of[static_cast<std::size_t>(at[0])];
      if (thread / threads_of_unit != at[0] / (rows / units) || (warp >= 0 && warp != thread / 32))
        return false;
      warp = thread / 32;
    }
  return true;
}

class Check {
 public:
  Check(int threads_of_unit, int threads, const Layouts& layouts, const CudaTarget& target)
      : threads_of_unit_(threads_of_unit),
        units_(threads / threads_of_unit),
        threads_(threads),
        layouts_(layouts),
        target_(target) {}

  bool holds(const Body& body) {
    bool all = true;
    for_each_stmt(body, [&](const Stmt& s) { all = all && statement(s); });
    return all;
  }

 private:
  bool statement(const Stmt& s) {
    if (const auto* gemm = as<Gemm>(s)) return product(*gemm);
    if (const auto* reduce = as<Reduce>(s))
      return reduce->dim == 1 && fragment(reduce->from.buffer) && fragment(reduce->to.buffer) &&
             layout_of(reduce->from.buffer).slice(1) == layout_of(reduce->to.buffer);
    if (const auto* declared = as<Declare>(s)) return fragment(declared->tile);
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::parallel && !is_by_register(*loop, s)) return false;
    if (as<Copy>(s) || as<Gather>(s) || as<Fill>(s) || as<Scan>(s) || as<Accumulate>(s) || as<Turn>(s))
      return false;
    const Effects own = effects(s);
    return !own.leaves && !own.reports &&
           std::all_of(own.regions.begin(), own.regions.end(), [&](const Region& r) {
             return r.view->buffer->space == Space::fragment ? fragment(r.view->buffer) : !is_write(r.touch);
           });
  }

  bool product(const Gemm& gemm) {
    const GemmPlan plan = plan_gemm(gemm, threads_, target_);
    const auto wanted = threads_of_unit_ == 32 ? GemmInstruction::mma_sync : GemmInstruction::wgmma;
    return plan.instruction == wanted && !needs_promotion(gemm, plan) && plan.parts.along_m == units_ &&
           fragment(gemm.c.buffer) && layout_of(gemm.c.buffer) == plan.accumulator &&
           (gemm.a.buffer->space != Space::fragment ||
            (fragment(gemm.a.buffer) && layout_of(gemm.a.buffer) == plan.operand_a));
  }

  // What is not as the loop goes would be moved through shared memory, with barriers.
  bool is_by_register(const For& loop, const Stmt& s) {
    const auto layout = layouts_.loops.find(s.get());
    bool direct = layout != layouts_.loops.end();
    for_each_stmt(loop.body, [&](const Stmt& inner) {
      const Access* access = fragment_access(inner);
      if (!direct || !access) return;
      const auto axes = loop_axes(loop, *access);
      direct = axes && fragment(access->view.buffer) &&
               layout_of(access->view.buffer) == projected(layout->second, *axes);
    });
    return direct;
  }

  const layout::Layout& layout_of(const BufferPtr& tile) const { return layouts_.fragments.at(tile.get()); }

  bool fragment(const BufferPtr& tile) {
    if (tile->space != Space::fragment) return false;
    const auto known = by_rows_.find(tile.get());
    if (known != by_rows_.end()) return known->second;
    const auto layout = layouts_.fragments.find(tile.get());
    const bool own =
        layout != layouts_.fragments.end() && is_by_rows(layout->second, units_, threads_of_unit_);
    return by_rows_.emplace(tile.get(), own).first->second;
  }

  int threads_of_unit_, units_;
  int threads_;
  const Layouts& layouts_;
  const CudaTarget& target_;
  std::unordered_map<const Buffer*, bool> by_rows_;
};

}  // namespace

Deciders deciders(const If& branch, int threads, const Layouts& layouts, const CudaTarget& target) {
  const auto runs = static_cast<int>(branch.of_rows.size());
  for (const auto& [unit, of_unit] : {std::pair{Deciders::warp_groups, 128}, {Deciders::warps, 32}}) {
    if (runs > 1 && runs * of_unit == threads && Check(of_unit, threads, layouts, target).holds(branch.then))
      return unit;
  }
  return Deciders::block;
}

}  // namespace tegula::passes
