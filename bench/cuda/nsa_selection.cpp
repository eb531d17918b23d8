#include "nsa_selection.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "noise.hpp"

namespace tegula::bench {
namespace {

constexpr int fixed = 3;
constexpr int neighbours = 4;

// How much of a score is new at each token; found by trying, for 13 of so many blocks.
float renewal(Drift drift, std::size_t blocks) {
  if (drift == Drift::independent) return 1;
  return std::min(1.0F,
                  0.0295F * std::pow(126.0F / static_cast<float>(std::max<std::size_t>(blocks, 1)), 0.38F));
}

// The blocks of one head, token by token.
class Head {
 public:
  Head(const SelectionShape& shape, Drift drift, std::uint64_t seed)
      : shape_(shape), drift_(drift), noise_(seed) {}

  std::vector<std::int32_t> of(std::int64_t token) {
    const std::int64_t own = token / shape_.block;
    const auto free = static_cast<std::size_t>(std::max<std::int64_t>(0, own - 2));
    const float fresh = renewal(drift_, free), kept = 1 - fresh, noise = std::sqrt(1 - kept * kept);
    for (float& score : scores_) score = kept * score + noise * noise_();
    while (scores_.size() < free) scores_.push_back(noise_());
    order_.resize(free);
    std::iota(order_.begin(), order_.end(), 0);
    const auto count = std::min(free, static_cast<std::size_t>(shape_.entries - fixed));
    std::nth_element(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count), order_.end(),
                     [&](std::int32_t a, std::int32_t b) {
                       return scores_[static_cast<std::size_t>(a)] > scores_[static_cast<std::size_t>(b)];
                     });
    std::vector<std::int32_t> result{0};
    if (own > 0) result.push_back(static_cast<std::int32_t>(own));
    if (own > 1) result.push_back(static_cast<std::int32_t>(own - 1));
    for (std::size_t i = 0; i < count; ++i) result.push_back(order_[i] + 1);
    return result;
  }

 private:
  SelectionShape shape_;
  Drift drift_;
  Noise noise_;
  std::vector<float> scores_;
  std::vector<std::int32_t> order_;
};

struct Sums {
  double shared = 0, drawn = 0, united = 0, tiles = 0, pairs = 0, nominal = 0;
};

Sums fill(const SelectionShape& shape, Drift drift, std::int64_t h, const Tensor& indices) {
  Head head(shape, drift, static_cast<std::uint64_t>(h) + 1);
  Sums sums;
  std::set<std::int32_t> before, united;
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    const std::vector<std::int32_t> own = head.of(t);
    std::int32_t* row = &indices.at<std::int32_t>(std::int64_t{0}, t, h, std::int64_t{0});
    std::fill(std::copy(own.begin(), own.end(), row), row + shape.entries, -1);
    sums.nominal += static_cast<double>(std::ssize(own) * shape.block);
    for (const std::int32_t block : own)
      sums.pairs +=
          static_cast<double>(std::min<std::int64_t>(shape.block, t + 1 - std::int64_t{block} * shape.block));
    const std::set<std::int32_t> drawn(own.begin() + std::min<std::ptrdiff_t>(fixed, std::ssize(own)),
                                       own.end());
    sums.drawn += static_cast<double>(drawn.size());
    for (const std::int32_t block : drawn) sums.shared += before.contains(block) ? 1 : 0;
    before = drawn;
    united.insert(own.begin(), own.end());
    if (t % neighbours == neighbours - 1) {
      sums.united += static_cast<double>(united.size()), sums.tiles += 1;
      united.clear();
    }
  }
  return sums;
}

}  // namespace

NsaSelection make_selection(const SelectionShape& shape, Drift drift) {
  NsaSelection result;
  result.indices = Tensor::empty({1, shape.tokens, shape.kv_heads, shape.entries}, i32);
  std::vector<Sums> sums(static_cast<std::size_t>(shape.kv_heads));
  std::vector<std::thread> threads;
  for (std::int64_t h = 0; h < shape.kv_heads; ++h)
    threads.emplace_back(
        [&, h] { sums[static_cast<std::size_t>(h)] = fill(shape, drift, h, result.indices); });
  for (std::thread& thread : threads) thread.join();
  Sums total;
  for (const Sums& own : sums) {
    total.shared += own.shared, total.drawn += own.drawn, total.pairs += own.pairs,
        total.nominal += own.nominal;
    total.united += own.united, total.tiles += own.tiles;
  }
  result.overlap = total.shared / std::max(total.drawn, 1.0);
  result.union_of = total.united / std::max(total.tiles, 1.0);
  result.pairs = total.pairs, result.nominal = total.nominal;
  return result;
}

}  // namespace tegula::bench
