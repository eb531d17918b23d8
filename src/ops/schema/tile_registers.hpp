// Lists of kernels that do not depend on the processor of the machine that makes them.
#pragma once

namespace tegula::ops {

// While it lives, plans of this thread for CPUs are made as for a processor that has tile registers, which
// multiply tiles of bf16 faster than those of f32, or as for one that has none.
class SupposedTileRegisters {
 public:
  explicit SupposedTileRegisters(bool present);
  ~SupposedTileRegisters();
  SupposedTileRegisters(const SupposedTileRegisters&) = delete;
  SupposedTileRegisters& operator=(const SupposedTileRegisters&) = delete;
};

}  // namespace tegula::ops
