#include "passes/passes.hpp"

#include <array>

#include "ir/print.hpp"
#include "ir/simplify.hpp"
#include "ir/verify.hpp"
#include "passes/copies_in_loops.hpp"
#include "passes/dump.hpp"
#include "passes/expand_sparse.hpp"
#include "passes/round_operands.hpp"

namespace tegula::passes {

std::span<const Pass> cpu_passes() {
  static const std::array<Pass, 6> list{{
      {"round_operands", "products in tf32 are products in f32 of rounded operands", round_operands_for_cpu},
      {"simplify", "decided branches, unnecessary guards and unused values cost time in inner loops",
       [](const ir::Kernel& kernel) { return ir::simplify(kernel); }},
      {"merge_clears", "a product or reduction of what was just cleared overwrites it", merge_clears},
      {"lower_tile_ops", "copies between tiles, fills, strided reductions and scans are loops",
       lower_tile_ops},
      {"expand_sparse", "a CPU has no sparse products: the operand becomes a dense tile",
       [](const ir::Kernel& kernel) {
         return expand_sparse(kernel, [](const ir::Gemm&, int) { return false; });
       }},
      {"copies_in_loops",
       "a tile that is filled to be read once, or to be stored, costs a pass through the cache",
       copies_in_loops},
  }};
  return list;
}

ir::Kernel run(std::span<const Pass> passes, const ir::Kernel& kernel, const Observer& observer) {
  ir::verify(kernel);
  ir::Kernel result = kernel;
  for (const Pass& pass : passes) {
    ir::Kernel after = pass.run(result);
    ir::verify(after);
    if (observer) observer({pass.name, pass.reason, after.name, ir::print(result), ir::print(after)});
    result = std::move(after);
  }
  return result;
}

ir::Kernel for_cpu(const ir::Kernel& kernel) { return run(cpu_passes(), kernel, dumper("cpu")); }

}  // namespace tegula::passes
