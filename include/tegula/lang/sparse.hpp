// Products of which one operand has two values of each four along k: 2:4 sparsity.
#pragma once
#include "tegula/lang/tile_ops.hpp"

TEGULA_API_BEGIN
namespace tegula::lang {

// c += a · b where a is sparse, [m, k], and given by `values` [m, k / 2] and `metadata`, u8 [m, k / 8]. Of
// each four elements of a along k, values 2q and 2q + 1 of a row are those at two positions, 0 <= first <
// second <= 3; the others are 0. The byte at column j says where the four values 4j to 4j + 3 of its row
// stand: bits 0 and 1 are the first position of the first two, bits 2 and 3 the second one, bits 4 and 5 and
// bits 6 and 7 those of the other two. Four bits 0, as what lies outside of a tensor reads, are positions 0
// and 1. b [k, n] has the values' type, c [m, n] the type that gemm's sum has. `.swap` and `.from_registers`
// do not matter. k is a multiple of 8.
void gemm_sparse(const Tile& values, const Tile& metadata, const Tile& b, Fragment& c,
                 GemmOptions options = {}, Loc at = Loc::current());

}  // namespace tegula::lang
TEGULA_API_END
