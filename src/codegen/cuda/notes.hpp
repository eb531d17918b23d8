// Notes on what a grid does more slowly than its program suggests, and a description of how it is executed.
#pragma once
#include <string>
#include <vector>

#include "passes/cuda/cuda_plan.hpp"
#include "passes/note.hpp"

namespace tegula::codegen {

class Notes {
 public:
  explicit Notes(std::vector<passes::Note>& all) : all_(all) {}

  // Unless the reason is empty; at its own place, if it has one.
  void add(passes::NoteKind kind, const passes::Reason& reason, const Loc& at);
  void of_gemm(const ir::Gemm& n, const passes::GemmPlan& plan, const Loc& at);
  // A fragment that moves through shared memory for a loop over elements; for another statement.
  void of_loop(const ir::Buffer& fragment, bool by_one_thread, const Loc& at);
  void of_conversion(const ir::Buffer& fragment, const Loc& at);
  void of_hints(const ir::Grid& grid, const passes::GridPlan& plan, const passes::CudaTarget& target);
  void of_blocks(const ir::Grid& grid, int blocks);

 private:
  std::vector<passes::Note>& all_;
};

// Roles, what loads, and the instructions of products.
std::string way_of(const ir::Body& body, int threads, const passes::GridPlan& plan,
                   const passes::CudaTarget& target);

}  // namespace tegula::codegen
