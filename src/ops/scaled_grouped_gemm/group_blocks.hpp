// Rearranges the bytes of the rows of groups for 8-bit tensor core products: contiguous columns, and blocks
// of 128 rows that belong to one group.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

struct GroupBlocksKernel {
  bool by_column = false;  // the rows of a column are contiguous in memory already
  bool padded = false;     // rows begin off 16 bytes: they are copied first
  auto fields() const { return std::tuple(labelled("by_column", by_column), labelled("padded", padded)); }
};
// Arguments: values u8 [m, columns], or [columns, m] by column; offsets [groups + 1]; the scalar parts, of
// the blocks of a group; blocks u32 [columns, rows / 4], where block b of the tensor is, as far as group g
// has it, number b + g. Rows of others are zeros there; blocks of no group are not written.
lang::Kernel group_blocks_program(const GroupBlocksKernel& instance);

}  // namespace tegula::ops
