// Random choices of blocks of keys.
#pragma once
#include "tegula/tensor.hpp"

namespace tegula::bench {

// i32 [1, heads, rows, count]: different blocks in each row, in any order.
Tensor random_choice(std::int64_t heads, std::int64_t rows, std::int64_t blocks, std::int64_t count);
// i32 [1, tokens, 1, count]: for each token different blocks of `block` keys up to its own, −1 where fewer
// are there.
Tensor random_selection(std::int64_t tokens, int block, std::int64_t count);

}  // namespace tegula::bench
