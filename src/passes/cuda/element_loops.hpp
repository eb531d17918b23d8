// How threads access their registers in a loop over elements.
#pragma once
#include "passes/cuda/infer_layouts.hpp"

namespace tegula::passes {

// Whether the loop also loads from memory that it writes: then replicas of an iteration would see each
// other's work. Atomics alone do not count, because one replica makes them and none sees the result.
bool reads_what_it_writes(const ir::For& loop);

// Whether a thread that goes over its part of the loop meets the registers of the fragment that it holds. No
// layout: the loop is dealt to the threads.
bool is_direct(const ir::For& loop, const layout::Layout* layout, const ir::Access& access,
               const Layouts& layouts);

// Whether each thread does all with the registers that it holds.
bool is_by_register(const ir::For& loop, const ir::Stmt& stmt, const Layouts& layouts);

}  // namespace tegula::passes
