#include "passes/cuda/cuda_passes.hpp"

#include <fmt/format.h>

#include "ir/simplify.hpp"
#include "ir/verify.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/build_schedule.hpp"
#include "passes/cuda/choose_stores.hpp"
#include "passes/cuda/choose_threads.hpp"
#include "passes/cuda/deal_parts.hpp"
#include "passes/cuda/deal_steps.hpp"
#include "passes/cuda/dropped_limits.hpp"
#include "passes/cuda/exchange_registers.hpp"
#include "passes/cuda/exits_of_all.hpp"
#include "passes/cuda/fragments_ahead.hpp"
#include "passes/cuda/halve_sums.hpp"
#include "passes/cuda/late_loads.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/order_loads.hpp"
#include "passes/cuda/own_copies.hpp"
#include "passes/cuda/pair_blocks.hpp"
#include "passes/cuda/relay_tiles.hpp"
#include "passes/cuda/rows_of_warps.hpp"
#include "passes/cuda/spread_blocks.hpp"
#include "passes/cuda/turn_operands.hpp"
#include "passes/dump.hpp"
#include "passes/expand_sparse.hpp"
#include "passes/round_operands.hpp"
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

// The same for each way to store that grids with roles have.
std::function<void(CudaPlan&)> of_ways(void (*pass)(const CudaTarget&, Roles&)) {
  return [pass](CudaPlan& plan) {
    for (GridPlan& own : plan.grids)
      for (Roles& way : own.ways) pass(plan.target, way);
  };
}

using Bodies = std::vector<ir::Body>;

// Bodies that hold to the contract.
struct Checked {
  Bodies program, producer, transposer, consumer, consumers;
};

// Statements do not change: bodies of those that were checked hold to the contract still. What else a grid
// has is checked without them then.
void verify(ir::Kernel kernel, Bodies bodies, ir::Contract contract, Bodies& checked) {
  const bool is_known = bodies == checked;
  for (std::size_t i = 0; i < bodies.size(); ++i) kernel.grids[i].body = is_known ? ir::Body{} : bodies[i];
  ir::verify(kernel, contract);
  checked = std::move(bodies);
}

// The contract of the IR holds for the program, and for what each role of its grids runs; but loads that are
// ordered stand apart from the declaration of their tile, whose slot the schedule names.
void verify(const CudaPlan& plan, Checked& checked) {
  const auto bodies = [&](const auto& body_of) {
    Bodies result;
    for (std::size_t i = 0; i < plan.grids.size(); ++i)
      result.push_back(plan.grids[i].roles ? body_of(plan.grids[i]) : plan.kernel.grids[i].body);
    return result;
  };
  Bodies program;
  for (const ir::Grid& grid : plan.kernel.grids) program.push_back(grid.body);
  verify(plan.kernel, std::move(program), ir::Contract::of_programs, checked.program);
  const auto verify_roles = [&](const auto& body_of, Bodies& known) {
    verify(plan.kernel, bodies(body_of), ir::Contract::of_roles, known);
  };
  verify_roles(
      [](const GridPlan& grid) { return grid.roles->ordered.empty() ? grid.roles->producer : ir::Body{}; },
      checked.producer);
  verify_roles([](const GridPlan& grid) { return grid.roles->transposer; }, checked.transposer);
  verify_roles([](const GridPlan& grid) { return grid.roles->consumer; }, checked.consumer);
  verify_roles([](const GridPlan& grid) { return grid.consumers.body; }, checked.consumers);
}

// Products of warp groups round what they read along k in shared memory, those of warps all that they read.
OperandRules operand_rules(const CudaTarget& target) {
  const bool of_groups = target.has_wgmma();
  const auto reads = [of_groups](const ir::Gemm& product, const ir::View& operand) {
    return !of_groups || (operand.buffer->space == ir::Space::shared && lies_along_k(product, operand));
  };
  return {reads, true, true};
}

const CudaPass list[] = {
    {"merge_clears", "a product or reduction of what was just cleared overwrites it",
     of_kernel(merge_clears)},
    {"round_operands", "tensor cores multiply f32 as K-major numbers of 11 bits",
     [](CudaPlan& plan) { plan.kernel = round_operands(plan.kernel, operand_rules(plan.target)); }},
    {"simplify", "decided branches, unnecessary guards and unused values cost time in inner loops",
     of_kernel([](const ir::Kernel& kernel) { return ir::simplify(kernel); })},
    {"expand_sparse", "a sparse operand that no instruction takes becomes a dense tile",
     [](CudaPlan& plan) {
       plan.kernel = expand_sparse(plan.kernel, [&](const ir::Gemm& gemm, int threads) {
         return plan_gemm(gemm, threads, plan.target).instruction != GemmInstruction::fma;
       });
     }},
    {"drop_limits",
     "the copy engine writes zeros only outside a tensor, not where a limit inside it cuts a tile",
     [](CudaPlan& plan) { plan.kernel = drop_limits(plan.kernel, plan.target); }},
    {"halve_sums",
     "two warp groups have room for the sums of 256 rows, and for half of what is added to them",
     [](CudaPlan& plan) { plan.kernel = halve_sums(plan.kernel, plan.target); }},
    {"choose_threads", "instructions are planned for the number of warps of a block",
     [](CudaPlan& plan) {
       plan.kernel = choose_threads(plan.kernel, plan.target);
       // This comes after the choice of threads, which does not depend on the rest of the plan.
       for (std::size_t i = 0; i < plan.shown.size(); ++i)
         plan.kernel.grids[i].hints.other_shared_bytes = plan.shown[i].other_bytes;
     }},
    {"turn_operands", "warp groups multiply 8-bit operands only if both go along k",
     [](CudaPlan& plan) { plan.kernel = turn_operands(plan.kernel, plan.target); }},
    {"lower_for_cuda", "tile operations without an instruction are done element by element",
     [](CudaPlan& plan) { plan.kernel = lower_for_cuda(plan.kernel, plan.target, plan.stores); }},
    {"plan_grid_waits", "the blocks of a grid become resident while the previous grid ends",
     [](CudaPlan& plan) { plan.waits = plan_grid_waits(plan.kernel); }},
    {"specialize_roles", "a producer loads ahead of the consumers, which multiply",
     [](CudaPlan& plan) {
       for (std::size_t i = 0; i < plan.grids.size(); ++i) {
         GridPlan& own = plan.grids[i];
         auto roles = specialize_roles(plan.kernel, plan.kernel.grids[i], plan.target, plan.stores);
         if (roles)
           own.roles = std::move(*roles);
         else
           own.no_roles = roles.reason();
       }
     }},
    {"choose_depths", "loads run as far ahead as shared memory lets them",
     of_grids([](const CudaPlan& plan, const ir::Grid& grid, GridPlan& own) {
       if (!own.roles) return;
       own.ways = ways_to_store(*own.roles, grid.hints, plan.stores, plan.target);
       if (!own.ways.empty()) return;
       own.roles.reset();
       own.no_roles = {"shared memory has no space for all tiles that would be loaded ahead",
                       "use smaller tiles or a smaller type", grid.at};
     })},
    {"deal_steps", "one warp group multiplies while another one forms the weights of its own step",
     of_ways([](const CudaTarget& target, Roles& way) {
       if (auto dealt = deal_steps(way, target)) way = std::move(*dealt);
     })},
    {"deal_parts",
     "warp groups make operands of different parts of a step, and multiply them, at the same time",
     of_ways([](const CudaTarget&, Roles& way) {
       if (auto dealt = deal_parts(way)) way = std::move(*dealt);
     })},
    {"choose_stores", "the copy engine stores unless its buffers would cost slots",
     [](CudaPlan& plan) {
       for (std::size_t i = 0; i < plan.grids.size(); ++i) {
         GridPlan& own = plan.grids[i];
         ir::Grid& grid = plan.kernel.grids[i];
         if (own.roles) {
           own.roles = best_way_to_store(own.ways, plan.target);
           grid.hints.threads = own.roles->consumers;
         }
         own.ways.clear();
         grid.body = with_stores(grid.body, plan.stores, own.roles && own.roles->stores());
       }
       plan.stores.clear();
     }},
    {"pair_blocks", "neighbouring blocks that need the same tile each load half of it for both",
     of_grids([](const CudaPlan& plan, const ir::Grid& grid, GridPlan& own) {
       if (own.roles && plan.target.pairs) pair_blocks(grid, *own.roles);
     })},
    {"rows_of_warps", "a step that affects few warps of a group is done by each warp alone",
     of_roles([](const CudaPlan& plan, GridPlan& own) {
       own.roles->consumer = rows_of_warps(own.roles->consumer, own.roles->together(), plan.target);
     })},
    {"exits_of_all", "a persistent CTA tests once, not for every block, whether there is any work",
     of_grids([](const CudaPlan&, const ir::Grid& grid, GridPlan& own) {
       if (own.roles) own.exits_of_all = exits_of_all_blocks(grid);
     })},
    {"relay_tiles", "warps pass what a step makes to the next one without all standing still together",
     of_roles([](const CudaPlan& plan, GridPlan& own) { relay_tiles(*own.roles, plan.target); })},
    {"delay_products", "tensor cores multiply while the other units do the next step's work",
     of_roles([](const CudaPlan& plan, GridPlan& own) {
       own.consumers = delay_products(*own.roles, plan.target);
       for (const auto& [loop, reason] : own.consumers.reasons) {
         if (reason.at.line() > 0)
           add(own.roles->notes, {NoteKind::stages, reason.at, reason.why, reason.remedy});
       }
     })},
    {"order_loads", "tiles are loaded in the order in which the delayed products use them",
     of_roles([](const CudaPlan&, GridPlan& own) { own.roles = order_loads(*own.roles, own.consumers); })},
    {"step_parts",
     "a product stays in flight until it is needed, and a slot is released after its last reader",
     of_roles([](const CudaPlan& plan, GridPlan& own) {
       own.steps = step_parts(*own.roles, own.consumers, plan.target);
     })},
    {"build_schedule", "every wait and release of both roles, simulated before anything is printed",
     of_roles([](const CudaPlan&, GridPlan& own) {
       own.schedule = build_schedule(own.function, *own.roles, own.consumers, own.steps);
       schedule::check(*own.schedule);
     })},
    {"spread_blocks", "a block that only its sums bring together has room in several CTAs for what it keeps",
     [](CudaPlan& plan) {
       for (std::size_t i = 0; i < plan.grids.size(); ++i) {
         GridPlan& own = plan.grids[i];
         if (!plan.shown.empty()) own.not_spread = plan.shown[i].not_spread;
         if (own.not_spread.why.empty())
           own.not_spread = reason_not_to_spread(plan.kernel.grids[i], own.roles.has_value(), plan.target);
         spread_block(plan.kernel.grids[i], own.not_spread);
       }
     }},
    {"late_loads", "registers for data that all blocks load keep other blocks off the processor",
     [](CudaPlan& plan) {
       for (std::size_t i = 0; i < plan.grids.size(); ++i)
         if (!plan.grids[i].roles) plan.kernel.grids[i].body = late_loads(plan.kernel.grids[i]);
     }},
    {"fragments_ahead", "data for the registers of later steps is in flight while this step computes",
     [](CudaPlan& plan) {
       for (std::size_t i = 0; i < plan.grids.size(); ++i)
         if (!plan.grids[i].roles) bring_fragments_ahead(plan.kernel, i, plan.target);
     }},
    {"exchange_registers", "elements that meet in one iteration are registers of one thread",
     [](CudaPlan& plan) {
       for (std::size_t i = 0; i < plan.grids.size(); ++i) {
         ir::Grid& grid = plan.kernel.grids[i];
         if (!plan.grids[i].roles) grid.body = exchange_registers(grid, plan.grids[i].held);
       }
     }},
    {"copy_rings", "tiles of later steps are in flight while all threads compute with this step's",
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
    {"infer_layouts", "fragments that are used element by element together have the same layout",
     [](CudaPlan& plan) {
       bool has_products = false;
       for_each_stmt(plan.kernel, [&](const ir::Stmt& s) { has_products |= ir::as<ir::Gemm>(s) != nullptr; });
       for (std::size_t i = 0; i < plan.grids.size(); ++i)
         plan.grids[i].layouts =
             infer_layouts(plan.computing(i), plan.computing_threads(i), plan.target, plan.grids[i].held,
                           has_products, plan.grids[i].copy_rings.anywhere);
     }},
    {"own_copies", "warps that read only what they have copied wait for no others",
     [](CudaPlan& plan) {
       for (std::size_t i = 0; i < plan.grids.size(); ++i) {
         GridPlan& own = plan.grids[i];
         const bool alone = let_warps_go_alone(own.copy_rings, plan.kernel.grids[i], own.layouts);
         if (own.not_spread.why.empty())
           own.not_spread = reason_of_rings(own.copy_rings, plan.kernel.grids[i]);
         if (!alone) continue;
         own.schedule = copy_ring_schedule(own.function, plan.kernel.grids[i], own.copy_rings);
         schedule::check(*own.schedule);
       }
     }},
    {"lane_sums", "lanes keep their partial sums until the loop that forms the sum ends",
     of_roles([](const CudaPlan&, GridPlan& own) {
       own.lane_sums = find_lane_sums(own.schedule->roles[0].events, own.layouts);
     })},
    {"fragment_forms", "operands that products read from registers are packed once, where they are computed",
     [](CudaPlan& plan) {
       for (std::size_t i = 0; i < plan.grids.size(); ++i) {
         GridPlan& own = plan.grids[i];
         own.operands = operands_of(plan.kernel.grids[i].body);
         if (own.roles)
           for (const auto& [copy, tiles] : own.roles->transpositions) own.operands.insert(tiles.from.get());
         // Halves take the place of tiles in the consumers' program.
         if (own.roles && own.roles->dealt) own.operands.merge(operands_of(plan.computing(i)));
         const Computing computing{plan.computing_threads(i), own.layouts, own.operands, plan.target};
         own.operands.merge(staging_tiles(plan.computing(i), computing));
         own.forms = fragment_forms(plan.computing(i), computing);
       }
     }},
};

}  // namespace

std::span<const CudaPass> cuda_passes() { return list; }

namespace {

CudaPlan first_plan(const ir::Kernel& kernel, const CudaTarget& target, const ShownOfGrids& shown) {
  ir::verify(kernel);
  CudaPlan plan{target, kernel, shown, {}, {}, {}};
  for (std::size_t i = 0; i < kernel.grids.size(); ++i)
    plan.grids.emplace_back().function = fmt::format("{}_{}", kernel.name, i);
  return plan;
}

}  // namespace

CudaPlan plan_for_cuda(const ir::Kernel& kernel, const CudaTarget& target, const ShownOfGrids& shown,
                       const Observer& observer) {
  CudaPlan plan = first_plan(kernel, target, shown);
  Checked checked;
  for (const CudaPass& pass : list) {
    const std::string before = observer ? print(plan) : "";
    pass.run(plan);
    verify(plan, checked);
    if (observer) observer({pass.name, pass.reason, kernel.name, before, print(plan)});
  }
  return plan;
}

CudaPlan plan_before(const ir::Kernel& kernel, const CudaTarget& target, std::string_view name) {
  CudaPlan plan = first_plan(kernel, target, {});
  for (const CudaPass& pass : list) {
    if (pass.name == name) return plan;
    pass.run(plan);
  }
  throw InternalError(fmt::format("no pass is called {}", name));
}

CudaPlan plan_for_cuda(const ir::Kernel& kernel, const CudaTarget& target, const ShownOfGrids& shown) {
  return plan_for_cuda(kernel, target, shown, dumper(name_of(target)));
}

}  // namespace tegula::passes
