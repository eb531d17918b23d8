// Chooses the layout of every fragment, and which thread runs which iteration of every loop over elements.
//
// Fragments and loops that access the same elements together get the same layout; a vector that is used along
// the rows of a matrix gets a slice of its layout. Products fix layouts; without a product, a blocked layout
// is chosen. Accesses that do not fit are not refused: the printer moves them through shared memory. Sums
// that only go to memory are shared among the lanes that add them up.
#pragma once
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "layout/lane_shares.hpp"
#include "passes/cuda/exchange_registers.hpp"
#include "passes/cuda/plan_gemms.hpp"

namespace tegula::passes {

// Layouts of the fragments, and of the parallel loops that use them. A loop that is not here goes over its
// iterations in order, dealt to the threads.
struct Layouts {
  std::unordered_map<const ir::Buffer*, layout::Layout> fragments;
  std::unordered_map<const ir::StmtNode*, layout::Layout> loops;
  // Of fragments whose elements lanes share: by which exchanges each comes to its own.
  std::unordered_map<const ir::Buffer*, std::vector<layout::Halving>> shares;
};

// `held` fragments lie as is said there. In kernels with products, in this body or others, no row ends within
// what a thread has of it: their texts load pieces at multiples of 16 bytes alone. Rows of shared tiles end
// there only if pieces of these are read wherever they begin: `anywhere`.
Layouts infer_layouts(const ir::Body& body, int threads, const CudaTarget& target,
                      const HeldFragments& held = {}, bool has_products = false,
                      const std::unordered_set<const ir::Buffer*>& anywhere = {});

}  // namespace tegula::passes
