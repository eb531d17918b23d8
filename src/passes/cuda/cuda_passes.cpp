#include "passes/cuda/cuda_passes.hpp"

#include <fmt/format.h>

#include "ir/simplify.hpp"
#include "ir/verify.hpp"
#include "passes/cuda/build_schedule.hpp"
#include "passes/cuda/choose_threads.hpp"
#include "passes/cuda/exits_of_all.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/order_loads.hpp"
#include "passes/dump.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {

namespace {

std::string name_of(const CudaTarget& target) {
  return fmt::format("sm_{}{}{}", target.architecture, target.copy_engine ? "" : "_by_threads",
                     target.pairs ? "_in_pairs" : "");
}

// A pass over the program alone.
std::function<void(CudaPlan&)> of_kernel(ir::Kernel (*pass)(const ir::Kernel&)) {
  return [pass](CudaPlan& plan) { plan.kernel = pass(plan.kernel); };
}

// A pass over the plan of one grid after the other.
std::function<void(CudaPlan&)> of_grids(void (*pass)(const CudaPlan&, const ir::Grid&, GridPlan&)) {
  return [pass](CudaPlan& plan) {
    for (std::size_t i = 0; i < plan.grids.size(); ++i) pass(plan, plan.kernel.grids[i], plan.grids[i]);
  };
}

// The same for grids with roles.
std::function<void(CudaPlan&)> of_roles(void (*pass)(const CudaPlan&, GridPlan&)) {
  return [pass](CudaPlan& plan) {
    for (GridPlan& own : plan.grids)
      if (own.roles) pass(plan, own);
  };
}

const CudaPass list[] = {
    {"merge_clears", "a product or reduction of what was just cleared overwrites it",
     of_kernel(merge_clears)},
    {"simplify", "decided branches, needless guards and unused values cost time in inner loops",
     of_kernel([](const ir::Kernel& kernel) { return ir::simplify(kernel); })},
    {"choose_threads", "instructions are planned for as many warps as a block has",
     [](CudaPlan& plan) {
       plan.kernel = choose_threads(plan.kernel, plan.target);
       // Behind the choice of threads, which holds however the rest of the plan turns out.
       for (std::size_t i = 0; i < plan.others.size(); ++i)
         plan.kernel.grids[i].hints.other_shared_bytes = plan.others[i];
     }},
    {"lower_for_cuda", "what no instruction does is done element by element",
     [](CudaPlan& plan) { plan.kernel = lower_for_cuda(plan.kernel, plan.target); }},
    {"plan_grid_waits", "a grid's blocks take their places while the grid before ends",
     [](CudaPlan& plan) { plan.waits = plan_grid_waits(plan.kernel); }},
    {"specialize_roles", "a producer loads ahead of the consumers, who multiply",
     of_grids([](const CudaPlan& plan, const ir::Grid& grid, GridPlan& own) {
       auto roles = specialize_roles(grid, plan.target);
       if (roles)
         own.roles = std::move(*roles);
       else
         own.no_roles = roles.reason();
     })},
    {"exits_of_all", "who takes one block after the other asks once whether there is work at all",
     of_grids([](const CudaPlan&, const ir::Grid& grid, GridPlan& own) {
       if (own.roles) own.exits_of_all = exits_of_all_blocks(grid);
     })},
    {"delay_products", "tensor cores multiply while the other units do the next step's work",
     of_roles([](const CudaPlan& plan, GridPlan& own) {
       own.consumers = delay_products(*own.roles, plan.target);
     })},
    {"order_loads", "tiles come in the order in which the delayed products use them",
     of_roles([](const CudaPlan&, GridPlan& own) { own.roles = order_loads(*own.roles, own.consumers); })},
    {"build_schedule", "every wait and release of both roles, simulated before anything is printed",
     of_roles([](const CudaPlan& plan, GridPlan& own) {
       own.schedule = build_schedule(own.function, *own.roles, own.consumers, plan.target);
       schedule::check(*own.schedule);
     })},
    {"copy_rings", "tiles of later steps are on their way while all threads compute with this one's",
     [](CudaPlan& plan) {
       for (std::size_t i = 0; i < plan.grids.size(); ++i) {
         GridPlan& own = plan.grids[i];
         if (own.roles) continue;
         own.copy_rings = plan_copy_rings(plan.kernel, i, plan.target);
         if (own.copy_rings.empty()) continue;
         own.schedule = copy_ring_schedule(own.function, plan.kernel.grids[i], own.copy_rings);
         schedule::check(*own.schedule);
       }
     }},
    {"infer_layouts", "fragments that meet element by element lie in the same registers",
     [](CudaPlan& plan) {
       for (std::size_t i = 0; i < plan.grids.size(); ++i)
         plan.grids[i].layouts = infer_layouts(plan.computing(i), plan.computing_threads(i), plan.target);
     }},
};

}  // namespace

std::span<const CudaPass> cuda_passes() { return list; }

CudaPlan plan_for_cuda(const ir::Kernel& kernel, const CudaTarget& target, const OtherBytes& others,
                       const Observer& observer) {
  CudaPlan plan{target, kernel, others, {}, {}};
  for (std::size_t i = 0; i < kernel.grids.size(); ++i)
    plan.grids.emplace_back().function = fmt::format("{}_{}", kernel.name, i);
  ir::verify(kernel);
  for (const CudaPass& pass : list) {
    const std::string before = observer ? print(plan) : "";
    pass.run(plan);
    ir::verify(plan.kernel);
    if (observer) observer({pass.name, pass.reason, kernel.name, before, print(plan)});
  }
  return plan;
}

CudaPlan plan_for_cuda(const ir::Kernel& kernel, const CudaTarget& target, const OtherBytes& others) {
  return plan_for_cuda(kernel, target, others, dumper(name_of(target)));
}

}  // namespace tegula::passes
