// Products with a 2:4 sparse operand, which has two nonzero values of every four along k.
#pragma once
#include "tegula/lang/tile_ops.hpp"

TEGULA_API_BEGIN
namespace tegula::lang {

// c += a · b, where a is sparse, [m, k], and represented by `values` [m, k / 2] and `metadata`, u8 [m, k /
// 8]. Values 2q and 2q + 1 of a row are at two positions, 0 <= first < second <= 3, among the four elements
// 4q to 4q + 3 of a; the other two elements are 0. Byte j of a metadata row has the positions of values 4j to
// 4j + 3: bits 0 and 1 are the first position and bits 2 and 3 the second position of the first pair, bits 4
// to 7 those of the second pair. Four zero bits, as read outside a tensor, mean positions 0 and 1. b [k, n]
// has the type of the values, c [m, n] the type that a sum of gemm has. `.swap` and `.from_registers` are
// ignored. k is a multiple of 8.
void gemm_sparse(const Tile& values, const Tile& metadata, const Tile& b, Fragment& c,
                 GemmOptions options = {}, Loc at = Loc::current());

}  // namespace tegula::lang
TEGULA_API_END
