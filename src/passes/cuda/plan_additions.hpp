// Which sums the copy engine adds to tensors, and what counts the turns of those that are added in an order.
#pragma once
#include <optional>
#include <unordered_set>

#include "passes/cuda/held_sums.hpp"

namespace tegula::passes {

using TurnWords = std::unordered_set<const ir::Buffer*>;

// How the copy engine adds the sum wherever its window is, if it can.
std::optional<TensorStore> plan_addition(const ir::Accumulate& n, const HeldSums& sums, const Loc& at);
// The words that count turns of whole blocks: warp groups count those of their parts, unless contributions
// are also made otherwise, by threads or in other parts.
TurnWords words_of_blocks(const ir::Grid& grid, const HeldSums& sums);

}  // namespace tegula::passes
