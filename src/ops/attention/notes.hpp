// What a call of attention or of its gradients says about its plan: what no choice of tiles helps.
#pragma once
#include "ops/attention/plan.hpp"
#include "ops/pieces/features.hpp"
#include "ops/pieces/score_cap.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

// What the copy engine does not take costs a copy, which short windows cannot hide.
void note_copied_rows(int dim, int dim_v, const TileFeatures& tiles, Launch& launch);
// Scores that take as long as their products, or longer.
void note_scores(int dim, int dim_v, DType type, ScoreCap cap, Launch& launch);
// Features of tiles that the tensors lack.
void note_added_features(int dim, int dim_v, const TileFeatures& tiles, Launch& launch);
// Scores that tiles of so many queries and keys form beside those of a window of `seen` keys.
void note_window(int queries, int keys, std::int64_t seen, std::int64_t all, Launch& launch);
// Few tiles, and few steps of each.
void note_load(const ProcessorLoad& load, const AttentionPlan& plan, Launch& launch);
// Short sequences whose blocks of keys add to dq one after the other.
void note_turns(std::int64_t queries, std::int64_t keys, int keys_of_block, Launch& launch);
// Heads of a group that a block of keys meets one after the other, for a few rows each.
void note_heads_in_turn(std::int64_t group, std::int64_t queries, int rows, Launch& launch);
// Packed sequences that are shorter than a tile of so many rows on the mean.
void note_short_sequences(std::int64_t tokens, std::int64_t sequences, int rows, Launch& launch);
// Of a CPU: scores of the tiles that no query sees.
void note_parts_of_tiles(const AttentionProblem& problem, const AttentionPlan& plan, Launch& launch);
// Few tiles that divide their keys.
void note_splits(int splits, Launch& launch);

}  // namespace tegula::ops
