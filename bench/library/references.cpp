#include "references.hpp"

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <stdexcept>

namespace tegula::bench {
namespace {

constexpr int samples = 64;
constexpr double tolerance = 2e-5;

void compare(double expected, double got, double size, const char* what) {
  if (!(std::abs(expected - got) <= tolerance * size))
    throw std::runtime_error(fmt::format("{} is wrong: {} instead of {}", what, got, expected));
}

struct Random {
  std::mt19937 engine{7};
  std::int64_t below(std::int64_t end) {
    return std::uniform_int_distribution<std::int64_t>(0, end - 1)(engine);
  }
};

std::vector<bool> seen_keys(std::int64_t keys, std::int64_t head, std::int64_t query,
                            const TensorRef* indices, int block) {
  std::vector<bool> seen(static_cast<std::size_t>(keys), indices == nullptr);
  if (indices == nullptr) return seen;
  for (std::int64_t n = 0; n < indices->size(3); ++n) {
    const std::int64_t entry = indices->at<std::int32_t>(0, head, query / block, n);
    for (std::int64_t j = entry * block; entry >= 0 && j < std::min(keys, (entry + 1) * block); ++j)
      seen[static_cast<std::size_t>(j)] = true;
  }
  return seen;
}

}  // namespace

void check_product(const TensorRef& a, const TensorRef& b, const TensorRef& c) {
  Random random;
  for (int n = 0; n < samples; ++n) {
    const std::int64_t i = random.below(c.size(0)), j = random.below(c.size(1));
    double sum = 0, size = 0;
    for (std::int64_t p = 0; p < a.size(1); ++p) {
      const double term = double(a.at<float>(i, p)) * double(b.at<float>(p, j));
      sum += term, size += std::abs(term);
    }
    compare(sum, double(c.at<float>(i, j)), size, "a product");
  }
}

void check_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v, const TensorRef& out,
                     const TensorRef* indices, int block) {
  Random random;
  const std::int64_t keys = k.size(1), dim = q.size(3);
  for (int n = 0; n < samples; ++n) {
    const std::int64_t head = random.below(q.size(2)), query = random.below(q.size(1));
    const std::vector<bool> seen = seen_keys(keys, head, query, indices, block);
    std::vector<double> sums(static_cast<std::size_t>(v.size(3)));
    double total = 0;  // scores of normal data are small: no maximum is needed
    for (std::int64_t j = 0; j < keys; ++j) {
      if (!seen[static_cast<std::size_t>(j)]) continue;
      double score = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        score += double(q.at<float>(0, query, head, d)) * double(k.at<float>(0, j, head, d));
      const double weight = std::exp(score / std::sqrt(double(dim)));
      total += weight;
      for (std::size_t d = 0; d < sums.size(); ++d)
        sums[d] += weight * double(v.at<float>(0, j, head, std::int64_t(d)));
    }
    for (std::size_t d = 0; d < sums.size(); ++d)
      compare(sums[d] / total, double(out.at<float>(0, query, head, std::int64_t(d))), 1, "attention");
  }
}

}  // namespace tegula::bench
