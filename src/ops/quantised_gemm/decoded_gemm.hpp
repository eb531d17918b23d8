// Products of many rows with quantised weights: the weights are decoded once, to a matrix that gemm takes,
// instead of in each tile of rows.
#pragma once
#include "ops/quantised_gemm/weights.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/schema.hpp"
#include "tegula/ops/quantised_gemm.hpp"

namespace tegula::ops {

// Whether weights are numbers of e4m3 but for a factor of their row, and rows too, so that tensor cores
// multiply 8 bits where weights are decoded first.
bool are_weights_of_8_bits(const Bound<QuantisedGemm>& c);
// Whether that takes less time than decoding in each tile.
bool is_worth_decoding(const Bound<QuantisedGemm>& c);
// The matrix of a call as programs read it.
struct StoredWeights {
  TensorRef b, scales, zeros;
};
void launch_decoded(const Bound<QuantisedGemm>& c, const QuantisedWeights& weights,
                    const StoredWeights& stored, Launch& launch);

}  // namespace tegula::ops
