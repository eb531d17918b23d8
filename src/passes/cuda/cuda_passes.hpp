// What is done to a kernel before it is printed for a GPU. Printing then asks of every grid, in this order,
//   specialize_roles  who loads and who computes; without roles all threads do everything. At its end
//     choose_depths     how many slots each ring has
//     pair_blocks       which blocks share what they load
//     rows_of_warps     which rows are multiplied by warps alone
//   exits_of_all      which exits end the loop over blocks
//   delay_products    which products run under the next step's work; with it
//     split_steps       which steps of a loop can be without a mask
//   order_loads       in which order the producer brings the tiles of these
//   build_schedule    all waits, releases and turns of both roles; schedule::check simulates them
//   infer_layouts     which thread holds which element in which register
//   lane_sums         which sums of rows each lane keeps for itself
//   rows_of_groups    which branches warps or warp groups decide for themselves
//   place_sync        barriers around other shared memory (codegen/cuda)
// and of all of them together
//   plan_grid_waits   which wait for the one before at their begin, and which at their end
// with plan_gemm, plan_copy, plan_store and plan_rows as the tables of what instructions can do.
#pragma once
#include <vector>

#include "passes/cuda/plan_gemms.hpp"
#include "passes/passes.hpp"

namespace tegula::passes {

// Of each grid, GridHints::other_shared_bytes.
using OtherBytes = std::vector<std::int64_t>;

std::vector<Pass> cuda_passes(const CudaTarget& target, const OtherBytes& others = {});

// The kernel as it is printed, where `others` are those that the printer has found; TEGULA_DUMP writes down
// what every pass changed.
ir::Kernel for_cuda(const ir::Kernel& kernel, const CudaTarget& target, const OtherBytes& others = {});

}  // namespace tegula::passes
