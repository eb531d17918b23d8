#include "passes/passes.hpp"

#include "ir/visit.hpp"

namespace tegula::passes {

ir::Kernel for_cpu(const ir::Kernel& kernel) {
  return ir::map_grids(kernel, [](const ir::Grid& grid) { return lower_tile_ops(merge_clears(grid.body)); });
}

}  // namespace tegula::passes
