// The tile programs that choose blocks.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

// A CPU adds the rows of a step one by one, threads of a GPU only a few of them: of so many, equal ones are
// exact to 24 bits.
inline constexpr int summed_on_cpu = 16;
inline constexpr int usual_summed = 64;

struct BlockScoresKernel {
  DType type = f32;
  int dim = 64;
  int q_block = 64, k_block = 64;
  int group = 1;  // query heads whose mean makes a row: all of a group, or 1
  bool causal = false;
  int rows = 64, columns = 64;  // of a tile of scores
  int summed = usual_summed;    // rows of a block that are loaded and summed at a time

  auto fields() const {
    return std::tuple(type, labelled("d", dim), joined("b", q_block, k_block), labelled("g", group),
                      joined("t", rows, columns), labelled("causal", causal),
                      labelled("s", summed == usual_summed ? std::nullopt : std::optional(summed)));
  }
};

// Arguments: q [batch, queries, heads, group, d], k [batch, keys, kv heads, d], out [batch, heads, q_blocks,
// k_blocks], scale. Head h uses head h / (heads / kv heads) of k.
lang::Kernel block_scores_kernel(const BlockScoresKernel& instance);

struct TopkKernel {
  bool first = false, diagonal = false;
  int columns = 256;  // of a tile of scores

  auto fields() const {
    return std::tuple(labelled("t", columns), labelled("first", first), labelled("diagonal", diagonal));
  }
};

// Arguments: scores [rows, blocks], out i32 [rows, count]; with `diagonal` also q_blocks (rows repeat after
// so many), q_block, k_block, offset.
lang::Kernel topk_kernel(const TopkKernel& instance);

}  // namespace tegula::ops
