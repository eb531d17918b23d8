// The programs that bring pairs of tokens and experts into the order of experts, their rows with them, and
// results back.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// Arguments: experts i32 [pairs], the scalar groups, order [pairs], places [pairs] and offsets [groups + 1].
struct MoeSortKernel {
  int lists = 64;  // experts, rounded up to a power of two
  auto fields() const { return std::tuple(lists); }
};
MoeSortKernel planned_sort(std::int64_t groups);
lang::Kernel moe_sort_program(const MoeSortKernel& instance);

struct MoeRowsKernel {
  DType type = bf16;
  std::optional<DType> weights = {};
  int topk = 1;
  bool whole_pieces = false;  // rows begin at multiples of 16 bytes
  int rows = 8, columns = 256;
  auto fields() const {
    return std::tuple(type, labelled("weights", weights), labelled("topk", topk),
                      labelled("pieces", whole_pieces), joined("t", rows, columns));
  }
};
MoeRowsKernel planned_rows(DType type, std::int64_t d, std::int64_t topk, int most_columns = 512);
// For moe_unpermute_program.
inline MoeRowsKernel planned_sums(DType type, std::int64_t d, std::int64_t topk) {
  return planned_rows(type, d, topk, 1024);
}
// Arguments: x [tokens, d], order [pairs], out [pairs, d].
lang::Kernel moe_permute_program(const MoeRowsKernel& instance);
// The same from places [tokens, topk], for which rows are read once; rows of no pair are left as they were.
lang::Kernel moe_scatter_program(const MoeRowsKernel& instance);
// Arguments: y [pairs, d], places and weights [tokens, topk], out [tokens, d].
lang::Kernel moe_unpermute_program(const MoeRowsKernel& instance);
// Arguments: y [pairs, d], dout [tokens, d], order [pairs], weights and dweights [pairs], dy [pairs, d].
// dweights of pairs that are left out are zero.
lang::Kernel moe_unpermute_gradient(const MoeRowsKernel& instance);

// The sums of the rows of every group: rows [m, n], offsets [groups + 1], sums f32 [groups, n].
struct GroupSumsKernel {
  DType type = bf16;
  auto fields() const { return std::tuple(type); }
};
lang::Kernel group_sums_program(const GroupSumsKernel& instance);

}  // namespace tegula::ops
