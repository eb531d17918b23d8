// Normal numbers from a table, which is fast enough for one of each block and row.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

namespace tegula::bench {

class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed * 2 + 1), table_(std::size_t{1} << 16) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (float& x : table_) x = normal(random);
  }
  float operator()() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return table_[state_ >> 48];
  }

 private:
  std::uint64_t state_;
  std::vector<float> table_;
};

}  // namespace tegula::bench
