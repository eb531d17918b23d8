#include "passes/cuda/cuda_passes.hpp"

#include <fmt/format.h>

#include "ir/simplify.hpp"
#include "passes/cuda/choose_threads.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/dump.hpp"

namespace tegula::passes {

namespace {

std::string name_of(const CudaTarget& target) {
  return fmt::format("sm_{}{}{}", target.architecture, target.copy_engine ? "" : "_by_threads",
                     target.pairs ? "_in_pairs" : "");
}

// Behind the choice of threads, which holds however the rest of the plan turns out.
ir::Kernel with_other_bytes(const ir::Kernel& kernel, const OtherBytes& others) {
  ir::Kernel result = kernel;
  for (std::size_t i = 0; i < others.size(); ++i) result.grids[i].hints.other_shared_bytes = others[i];
  return result;
}

}  // namespace

std::vector<Pass> cuda_passes(const CudaTarget& target, const OtherBytes& others) {
  return {
      {"merge_clears", "a product or reduction of what was just cleared overwrites it", merge_clears},
      {"simplify", "decided branches, needless guards and unused values cost time in inner loops",
       [](const ir::Kernel& own) { return ir::simplify(own); }},
      {"choose_threads", "instructions are planned for as many warps as a block has",
       [target, others](const ir::Kernel& kernel) {
         return with_other_bytes(choose_threads(kernel, target), others);
       }},
      {"lower_for_cuda", "what no instruction does is done element by element",
       [target](const ir::Kernel& kernel) { return lower_for_cuda(kernel, target); }},
  };
}

ir::Kernel for_cuda(const ir::Kernel& kernel, const CudaTarget& target, const OtherBytes& others) {
  return run(cuda_passes(target, others), kernel, dumper(name_of(target)));
}

}  // namespace tegula::passes
