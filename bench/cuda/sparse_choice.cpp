#include "sparse_choice.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "noise.hpp"

namespace tegula::bench {
namespace {

constexpr float kept_of_score = 0.966F;  // from row to row: neighbours share 82 % of a tenth of the blocks

using Row = std::vector<std::int32_t>;  // ascending

class Rows {
 public:
  Rows(const SparseShape& shape, std::uint64_t seed)
      : shape_(shape), random_(static_cast<std::uint32_t>(seed)), noise_(seed) {}

  Row next(std::int64_t row) {
    const std::int64_t seen = shape_.seen(row);
    Row result = shape_.drift == Drift::slow ? highest(seen) : spread(seen);
    const auto last = static_cast<std::int32_t>(seen - 1);
    if (shape_.causal && (result.empty() || result.back() != last)) result.push_back(last);
    return result;
  }

 private:
  Row spread(std::int64_t seen) {
    Row result;
    for (std::int64_t n = 0; n < seen / shape_.period; ++n)
      result.push_back(static_cast<std::int32_t>(n * shape_.period +
                                                 static_cast<std::int64_t>(random_()) % shape_.period));
    return result;
  }
  Row highest(std::int64_t seen) {
    for (float& score : scores_)
      score = kept_of_score * score + std::sqrt(1 - kept_of_score * kept_of_score) * noise_();
    while (std::ssize(scores_) < seen) scores_.push_back(noise_());
    Row result(static_cast<std::size_t>(seen));
    std::iota(result.begin(), result.end(), 0);
    const std::int64_t count = seen / shape_.period;
    std::nth_element(result.begin(), result.begin() + count, result.end(),
                     [&](std::int32_t a, std::int32_t b) {
                       return scores_[static_cast<std::size_t>(a)] > scores_[static_cast<std::size_t>(b)];
                     });
    result.resize(static_cast<std::size_t>(count));
    std::sort(result.begin(), result.end());
    return result;
  }

  SparseShape shape_;
  std::minstd_rand random_;
  Noise noise_;
  std::vector<float> scores_;
};

struct Sums {
  double shared = 0, of_neighbours = 0, pairs = 0, nominal = 0;
};

// Keys that the queries of a row see of a block.
double pairs_of(const SparseShape& s, std::int64_t row, std::int64_t block) {
  const std::int64_t begin = row * s.q_block, end = std::min(begin + s.q_block, s.length),
                     keys = std::min(s.k_block, s.length - block * s.k_block);
  if (!s.causal) return static_cast<double>((end - begin) * keys);
  double pairs = 0;
  for (std::int64_t i = begin; i < end; ++i)
    pairs += static_cast<double>(std::clamp<std::int64_t>(i + 1 - block * s.k_block, 0, keys));
  return pairs;
}

Sums fill(const SparseShape& s, std::int64_t head, std::int32_t* at) {
  Rows rows(s, static_cast<std::uint64_t>(head) + 3);
  Sums sums;
  Row before;
  for (std::int64_t i = 0; i < s.q_blocks(); ++i, at += s.entries()) {
    const Row own = rows.next(i);
    std::fill(std::copy(own.begin(), own.end(), at), at + s.entries(), -1);
    Row shared;
    std::set_intersection(before.begin(), before.end(), own.begin(), own.end(), std::back_inserter(shared));
    sums.shared += static_cast<double>(shared.size()),
        sums.of_neighbours += static_cast<double>(before.size());
    sums.nominal += static_cast<double>(std::ssize(own) * s.q_block * s.k_block);
    for (const std::int64_t block : own) sums.pairs += pairs_of(s, i, block);
    before = own;
  }
  return sums;
}

}  // namespace

SparseChoice choose_blocks(const SparseShape& shape) {
  SparseChoice result;
  const std::int64_t row = shape.entries() * shape.q_blocks();
  result.indices = Tensor::empty({1, shape.kv_heads, shape.q_blocks(), shape.entries()}, i32);
  std::vector<Sums> sums(static_cast<std::size_t>(shape.kv_heads));
  std::vector<std::thread> threads;
  for (std::int64_t h = 0; h < shape.kv_heads; ++h)
    threads.emplace_back([&, h] {
      sums[static_cast<std::size_t>(h)] = fill(shape, h, result.indices.data_as<std::int32_t>() + h * row);
    });
  for (std::thread& thread : threads) thread.join();
  double shared = 0, of_neighbours = 0;
  for (const Sums& own : sums) {
    shared += own.shared, of_neighbours += own.of_neighbours;
    result.pairs += own.pairs, result.nominal += own.nominal;
  }
  result.overlap = shared / std::max(of_neighbours, 1.0);
  return result;
}

}  // namespace tegula::bench
