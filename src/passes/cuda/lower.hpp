// Tile operations without an instruction become parallel loops over elements; the operands of all others have
// forms that the printer knows.
#pragma once
#include "ir/kernel.hpp"
#include "passes/cuda/plan_gemms.hpp"
#include "passes/cuda/store_forms.hpp"

namespace tegula::passes {

// Lowers a kernel whose threads are chosen. Afterwards
//   copies, fills and gathers are loops, except copies between a tensor and rows of a shared tile, and those
//     of sums of products to a tensor that the copy engine could do; accumulations alike, else loops between
//     turns;
//   reductions go from a whole fragment into a whole fragment;
//   gemm accumulates into a whole fragment, its operands are in shared memory, A also in registers;
//   no fragment is used in each_group that is declared outside.
// What the copy engine could store has two `forms`, of which choose_stores takes one.
ir::Kernel lower_for_cuda(const ir::Kernel& kernel, const CudaTarget& target, StoreForms& forms);

// With so many threads, and with all stores by threads.
ir::Body lower_plainly(const ir::Grid& grid, int threads, const CudaTarget& target);

// The threads that run the body of such a loop, where `threads` run the loop.
int threads_of(const ir::For& loop, int threads);

// All products of a body, each with the threads that run it: those of its group in each_group.
struct TeamProduct {
  const ir::Gemm* gemm = nullptr;
  int threads = 0;
};
std::vector<TeamProduct> team_products(const ir::Body& body, int threads);

}  // namespace tegula::passes
