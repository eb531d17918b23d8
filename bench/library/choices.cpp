#include "choices.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace tegula::bench {
namespace {

// Different numbers below `end`, as many as there are.
void draw(std::int32_t* row, std::int64_t count, std::int64_t end, std::mt19937& random) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(end));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  for (std::int64_t n = 0; n < count; ++n) row[n] = n < end ? all[static_cast<std::size_t>(n)] : -1;
}

}  // namespace

Tensor random_choice(std::int64_t heads, std::int64_t rows, std::int64_t blocks, std::int64_t count) {
  const Tensor indices = Tensor::empty({1, heads, rows, count}, i32);
  std::mt19937 random(static_cast<unsigned>(count));
  for (std::int64_t row = 0; row < heads * rows; ++row)
    draw(indices.data_as<std::int32_t>() + row * count, count, blocks, random);
  return indices;
}

Tensor random_selection(std::int64_t tokens, int block, std::int64_t count) {
  const Tensor indices = Tensor::empty({1, tokens, 1, count}, i32);
  std::mt19937 random(static_cast<unsigned>(count));
  for (std::int64_t token = 0; token < tokens; ++token)
    draw(indices.data_as<std::int32_t>() + token * count, count, token / block + 1, random);
  return indices;
}

}  // namespace tegula::bench
