#include "ops/attention/notes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tegula::ops {

void note_copied_rows(int dim, int dim_v, const TileFeatures& tiles, Launch& launch) {
  if (!tiles.copied && !tiles.copied_keys) return;
  launch.note([&] {
    return fmt::format(
        "plan: rows of {} and {} features are copied to rows that start at multiples of {} bytes; "
        "multiples of {} features are faster",
        dim, dim_v, tiles.copied ? 16 : 32, tiles.copied ? 8 : 16);
  });
}

void note_scores(int dim, int dim_v, DType type, ScoreCap cap, Launch& launch) {
  constexpr int few_features = 64;
  if (cap != ScoreCap::none)
    launch.note([] { return std::string("plan: softcap takes a hyperbolic tangent of every score"); });
  if (type.bits() == 16 && std::max(dim, dim_v) <= few_features)
    launch.note([&] {
      return fmt::format(
          "plan: with {} and {} features the exponentials and maxima of scores take as long as products; "
          "more features do more in that time",
          dim, dim_v);
    });
}

void note_added_features(int dim, int dim_v, const TileFeatures& tiles, Launch& launch) {
  if (tiles.of(dim) + tiles.of_v(dim_v) == dim + dim_v) return;
  launch.note([&] {
    return fmt::format("plan: tiles have {} and {} features, of which {} and {} are those of the tensors",
                       tiles.of(dim), tiles.of_v(dim_v), dim, dim_v);
  });
}

void note_window(int queries, int keys, std::int64_t seen, std::int64_t all, Launch& launch) {
  if (seen >= all) return;
  const std::int64_t formed = std::min(all, seen + keys + queries);
  launch.note([&] {
    return fmt::format("plan: tiles of {} x {} form {:.0f} % more scores than a window of {} keys has",
                       queries, keys, 100.0 * static_cast<double>(formed - seen) / static_cast<double>(seen),
                       seen);
  });
}

void note_parts_of_tiles(const AttentionProblem& problem, const AttentionPlan& plan, Launch& launch) {
  constexpr double many = 1.25;
  if (launch.runs() || problem.packed > 1 || problem.left >= 0) return;
  const double formed = formed_by_seen(problem, plan);
  if (formed < many) return;
  launch.note([&] {
    return fmt::format("plan: tiles of {} x {} form {:.0f} % more scores than {} queries see of {} keys",
                       plan.queries, plan.keys, 100 * (formed - 1), problem.queries, problem.keys);
  });
}

void note_splits(int splits, Launch& launch) {
  launch.note([&] {
    return fmt::format(
        "plan: the keys of a tile of queries are divided among {} blocks, whose results are merged", splits);
  });
}

void note_short_sequences(std::int64_t tokens, std::int64_t sequences, int rows, Launch& launch) {
  if (sequences == 0 || tokens >= sequences * rows) return;
  launch.note([&] {
    return fmt::format("plan: sequences have {} tokens on the mean, and each takes a tile of {} for itself",
                       tokens / sequences, rows);
  });
}

void note_turns(std::int64_t queries, std::int64_t keys, int keys_of_block, Launch& launch) {
  constexpr std::int64_t few = 1024;
  if (queries > few || keys > few) return;
  launch.note([&] {
    return fmt::format(
        "plan: under a causal mask {} blocks of {} keys add to dq in turns, and have few steps between them; "
        "deterministic=false lets them add in any order",
        (keys + keys_of_block - 1) / keys_of_block, keys_of_block);
  });
}

void note_heads_in_turn(std::int64_t group, std::int64_t queries, int rows, Launch& launch) {
  constexpr std::int64_t many = 12;
  if (group < many || 2 * queries > rows) return;
  launch.note([&] {
    return fmt::format(
        "plan: the {} heads of a group follow one another, each with a tile of {} rows for {} queries", group,
        rows, queries);
  });
}

void note_load(const ProcessorLoad& load, const AttentionPlan& plan, Launch& launch) {
  constexpr double filled = 0.75, few_steps = 13;
  if (load.filled < filled)
    launch.note([&] {
      return fmt::format("plan: tiles of {} queries fill {:.0f} % of the processors' time", plan.queries,
                         100 * load.filled);
    });
  else if (load.steps < few_steps)
    launch.note([&] {
      return fmt::format(
          "plan: a processor has {:.0f} steps of {} keys, and blocks take as long to begin and end",
          load.steps, plan.keys);
    });
}

}  // namespace tegula::ops
