// The operators' structs, by which tests ask for their formulas.
#pragma once
#include "ops/schema/table.hpp"
#include "tegula/ops/selection.hpp"

namespace tegula::ops {

struct BlockScores : BlockScoresOptions {
  TensorRef q = {}, k = {};
};

struct TopkBlocks : TopkBlocksOptions {
  TensorRef scores = {};
  std::int64_t count = 0;
};

const OperatorSchema& block_scores_schema();
const OperatorSchema& topk_blocks_schema();

}  // namespace tegula::ops
