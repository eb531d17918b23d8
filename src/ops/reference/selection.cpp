#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention/heads.hpp"
#include "ops/reference/reference.hpp"

namespace tegula::ops::reference {

namespace {

// Means over blocks of tokens and over the `group` heads of a result head: [batch, heads / group, blocks, d].
Tensor block_means(const TensorRef& tensor, int block, std::int64_t group) {
  const Tensor x = Tensor::adopt(tensor, nullptr).to(f64).contiguous();
  const std::int64_t tokens = x.size(1), blocks = (tokens + block - 1) / block;
  Tensor means = Tensor::zeros({x.size(0), x.size(2) / group, blocks, x.size(3)}, f64);
  for (std::int64_t b = 0; b < x.size(0); ++b)
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t at = t / block, count = std::min<std::int64_t>(block, tokens - at * block) * group;
      for (std::int64_t h = 0; h < x.size(2); ++h)
        for (std::int64_t d = 0; d < x.size(3); ++d)
          means.at<double>(b, h / group, at, d) += x.at<double>(b, t, h, d) / static_cast<double>(count);
    }
  return means;
}

// The `count` best of a row, in order of their number.
std::vector<std::int64_t> best_blocks(const std::vector<double>& scores, std::int64_t count) {
  std::vector<std::int64_t> order;
  for (std::size_t j = 0; j < scores.size(); ++j)
    if (scores[j] > -std::numeric_limits<double>::infinity()) order.push_back(static_cast<std::int64_t>(j));
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(count)));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

Tensor block_scores(const TensorRef& q, const TensorRef& k, const BlockScoresOptions& options) {
  const TensorRef queries = as_bshd(q, options.layout), keys = as_bshd(k, options.layout);
  const std::int64_t group = keys.size(2) == 0 ? 1 : queries.size(2) / keys.size(2);
  const Tensor x = block_means(queries, options.q_block, options.per_kv_head ? group : 1);
  const Tensor y = block_means(keys, options.k_block, 1);
  const double scale = options.scale ? *options.scale : 1 / std::sqrt(static_cast<double>(x.size(3)));
  Tensor out = Tensor::zeros({x.size(0), x.size(1), x.size(2), y.size(2)}, f64);
  for (std::int64_t b = 0; b < out.size(0); ++b)
    for (std::int64_t h = 0; h < out.size(1); ++h)
      for (std::int64_t i = 0; i < out.size(2); ++i)
        for (std::int64_t j = 0; j < out.size(3); ++j) {
          double sum = 0;
          for (std::int64_t d = 0; d < x.size(3); ++d)
            sum += x.at<double>(b, h, i, d) * y.at<double>(b, h / (out.size(1) / y.size(1)), j, d);
          const std::int64_t last = std::min((i + 1) * options.q_block, queries.size(1)) - 1;
          const bool seen = !options.causal || j * options.k_block <= last + keys.size(1) - queries.size(1);
          out.at<double>(b, h, i, j) = seen ? sum * scale : -std::numeric_limits<double>::infinity();
        }
  return out;
}

Tensor topk_blocks(const TensorRef& scores, std::int64_t count, const TopkBlocksOptions& options) {
  Tensor out = Tensor::full({scores.size(0), scores.size(1), scores.size(2), count}, i32, -1);
  const double infinity = std::numeric_limits<double>::infinity();
  const std::int64_t blocks = scores.size(3);
  for (std::int64_t b = 0; b < scores.size(0); ++b)
    for (std::int64_t h = 0; h < scores.size(1); ++h)
      for (std::int64_t i = 0; i < scores.size(2); ++i) {
        // Kept blocks go first: they get a score that no f32 has.
        std::vector<double> row;
        const double last = static_cast<double>((i + 1) * options.q_block - 1 + options.key_offset);
        const double diagonal = std::min(std::floor(last / options.k_block), static_cast<double>(blocks - 1));
        for (std::int64_t j = 0; j < blocks; ++j) {
          const double score = scores.get({b, h, i, j});
          const bool kept =
              (options.keep_first && j == 0) || (options.keep_diagonal && static_cast<double>(j) == diagonal);
          const bool none = std::isnan(score) || score == -infinity;
          row.push_back(none ? -infinity : kept ? infinity : std::min(score, 1e300));
        }
        std::int64_t n = 0;
        for (std::int64_t block : best_blocks(row, count))
          out.at<std::int32_t>(b, h, i, n++) = static_cast<std::int32_t>(block);
      }
  return out;
}

}  // namespace tegula::ops::reference
