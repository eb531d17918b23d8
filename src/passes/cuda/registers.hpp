// The registers per thread that the fragments of a block need, and those that a thread has.
//
// ptxas compiles m64nNk16 on f32 sums (and k32 of 8 bits) only if a thread has, at launch, registers for the
// instruction's N / 2 sums and for 26 more, 30 where A is in registers: the "register target" of its error
// C7602, read from NVRTC 13.0 for N = 16 … 256. The registers that warps get later (setmaxnreg) do not count
// for this; they determine what spills, see `to_work_with`.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "passes/cuda/infer_layouts.hpp"
#include "passes/cuda/specialize_roles.hpp"
#include "passes/note.hpp"

namespace tegula::passes {

// A product by wgmma, and what a thread needs for it.
struct ProductNeeds {
  ir::Stmt gemm;
  int at_launch = 0;            // registers without which ptxas refuses it
  std::int64_t all = 0;         // with all its sums: with fewer they do not stay in registers
  bool from_registers = false;  // A is
};

struct RegisterNeeds {
  std::int64_t live = 0;  // of 32 bits, that hold fragments at the place where most do
  std::vector<ProductNeeds> products;
  bool by_warps = false;  // some products are by mma.sync, whose operands pass through registers

  int at_launch() const;
  std::int64_t widest() const;  // product, with all its sums
};

RegisterNeeds register_needs(const ir::Body& body, int threads, const CudaTarget& target);

// Registers per thread: at launch, and while it computes.
struct Registers {
  int launch = 0, work = 0;
};
// Where so many blocks of so many threads, all of which do the same, share a processor.
Registers registers_of(int threads, int blocks);
Registers registers_of(const Roles& roles);
// With so many blocks of the roles on a processor.
Registers registers_of(const Roles& roles, int blocks);

// Registers in addition to fragments, for addresses, counters and descriptors. Plain products, [64 … 256, 64
// … 256] on one to four warp groups, spill if their sums leave less: of 112, 160, 208 and 232 registers, sums
// may take 84, 128, 144 and 192 without spills, but not 96, 160, 240 and 208. If threads store the sums of
// one product element by element instead of by the copy engine, 160 of 208 and 168 of 232 spill, 144 and 156
// do not.
inline constexpr int to_work_with = 32, to_store_with = 66;
// With mma.sync, 72 of 128 and 100 of 168 registers spill, and fewer may.
inline constexpr int to_load_with = 70;

bool fit(const RegisterNeeds& needs, const Registers& registers);
// While such roles, with so many blocks on a processor, multiply and store.
bool fit(const RegisterNeeds& needs, const Roles& roles, int blocks);

// A product that ptxas refuses, or whose sums cannot stay in registers.
std::optional<ProductNeeds> too_large(const RegisterNeeds& needs, const Registers& registers);

// Where more fragments are alive in the lowered grid than fit: what the user may want to know.
std::optional<Note> note_on_registers(const ir::Grid& grid, const Roles* roles, const CudaTarget& target);

}  // namespace tegula::passes
