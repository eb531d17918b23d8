#include "references.hpp"

#include <fmt/format.h>

#include <algorithm>
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

void add_block(std::vector<bool>& seen, std::int64_t block, int size, std::int64_t end) {
  for (std::int64_t j = block * size; block >= 0 && j < std::min(end, (block + 1) * size); ++j)
    seen[static_cast<std::size_t>(j)] = true;
}

// The product of rows of tensors [1, s, h, d].
double dot(const TensorRef& a, std::int64_t i, const TensorRef& b, std::int64_t j, std::int64_t head) {
  double sum = 0;
  const std::int64_t of_a = head * a.size(2) / std::max(a.size(2), b.size(2)),
                     of_b = head * b.size(2) / std::max(a.size(2), b.size(2));
  for (std::int64_t d = 0; d < a.size(3); ++d)
    sum += double(a.at<float>(0, i, of_a, d)) * double(b.at<float>(0, j, of_b, d));
  return sum;
}

// Adds to rows that belong to query i and key j of a head.
struct Row {
  std::vector<double> sum;
  double size = 0;

  void add(double factor, const TensorRef& from, std::int64_t i, std::int64_t head) {
    sum.resize(static_cast<std::size_t>(from.size(3)));
    for (std::size_t d = 0; d < sum.size(); ++d)
      sum[d] += factor * double(from.at<float>(0, i, head, std::int64_t(d)));
    size += std::abs(factor);
  }
  void compare_with(const TensorRef& row_of, std::int64_t i, std::int64_t head, const char* what) const {
    for (std::size_t d = 0; d < sum.size(); ++d)
      compare(sum[d], double(row_of.at<float>(0, i, head, std::int64_t(d))), std::max(1.0, size), what);
  }
};

// Weight and gradient of the score of query i and key j.
std::pair<double, double> of_score(const Gradients& g, std::int64_t head, std::int64_t i, std::int64_t j) {
  const double scale = 1 / std::sqrt(double(g.q.size(3)));
  const double weight = std::exp(dot(g.q, i, g.k, j, head) * scale - double(g.lse.at<float>(0, head, i)));
  return {weight, weight * scale * (dot(g.dout, i, g.v, j, head) - dot(g.dout, i, g.out, i, head))};
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

Seen all_keys(std::int64_t keys) {
  return [=](std::int64_t, std::int64_t) { return std::vector<bool>(static_cast<std::size_t>(keys), true); };
}

Seen chosen_blocks(const TensorRef& indices, std::int64_t keys, int block) {
  return [=](std::int64_t head, std::int64_t query) {
    std::vector<bool> seen(static_cast<std::size_t>(keys));
    for (std::int64_t n = 0; n < indices.size(3); ++n)
      add_block(seen, indices.at<std::int32_t>(0, head, query / block, n), block, keys);
    return seen;
  };
}

Seen selected_blocks(const TensorRef& indices, std::int64_t keys, int block) {
  return [=](std::int64_t, std::int64_t token) {
    std::vector<bool> seen(static_cast<std::size_t>(keys));
    for (std::int64_t n = 0; n < indices.size(3); ++n)
      add_block(seen, indices.at<std::int32_t>(0, token, 0, n), block, token + 1);
    return seen;
  };
}

void check_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v, const TensorRef& out,
                     const Seen& seen) {
  Random random;
  for (int n = 0; n < samples; ++n) {
    const std::int64_t head = random.below(q.size(2)), query = random.below(q.size(1));
    const std::vector<bool> keys = seen(head, query);
    Row row;
    double total = 0;  // scores of normal data are small: no maximum is needed
    for (std::int64_t j = 0; j < k.size(1); ++j) {
      if (!keys[static_cast<std::size_t>(j)]) continue;
      const double weight = std::exp(dot(q, query, k, j, head) / std::sqrt(double(q.size(3))));
      total += weight;
      row.add(weight, v, j, head * v.size(2) / q.size(2));
    }
    for (double& x : row.sum) x /= total;
    row.size = 1;
    row.compare_with(out, query, head, "attention");
  }
}

void check_gradients(const Gradients& g, const Seen& seen) {
  Random random;
  for (int n = 0; n < samples / 8; ++n) {
    const std::int64_t head = random.below(g.q.size(2)), query = random.below(g.q.size(1)),
                       key = random.below(g.k.size(1));
    Row dq, dk, dv;
    const std::vector<bool> keys = seen(head, query);
    for (std::int64_t j = 0; j < g.k.size(1); ++j)
      if (keys[static_cast<std::size_t>(j)]) dq.add(of_score(g, head, query, j).second, g.k, j, head);
    for (std::int64_t i = 0; i < g.q.size(1); ++i) {
      if (!seen(head, i)[static_cast<std::size_t>(key)]) continue;
      const auto [weight, gradient] = of_score(g, head, i, key);
      dk.add(gradient, g.q, i, head), dv.add(weight, g.dout, i, head);
    }
    dq.compare_with(g.dq, query, head, "dq"), dk.compare_with(g.dk, key, head, "dk");
    dv.compare_with(g.dv, key, head, "dv");
  }
}

}  // namespace tegula::bench
