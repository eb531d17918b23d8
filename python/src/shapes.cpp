#include "shapes.hpp"

#include <algorithm>

namespace tegula::python {

using ops::Layout;

AttentionShapes attention_shapes(const TensorRef& q, const TensorRef& v, Layout layout) {
  if (q.rank() != v.rank()) return {};
  const Shape& s = q.shape;
  if (s.size() == 3) return {Shape{s[0], s[1], v.shape[2]}, Shape{s[1], s[0]}};
  if (s.size() != 4) return {};
  return {Shape{s[0], s[1], s[2], v.shape[3]},
          layout == Layout::bshd ? Shape{s[0], s[2], s[1]} : Shape{s[0], s[1], s[2]}};
}

std::optional<Shape> scores_shape(const TensorRef& q, const TensorRef& k,
                                  const ops::BlockScoresOptions& options) {
  if (q.rank() != 4 || k.rank() != 4 || options.q_block < 1 || options.k_block < 1) return std::nullopt;
  const int sequence = options.layout == Layout::bshd ? 1 : 2, heads = 3 - sequence;
  if ((q.size(heads) == 0) != (k.size(heads) == 0)) return std::nullopt;
  const auto blocks = [&](const TensorRef& x, int size) { return (x.size(sequence) + size - 1) / size; };
  return Shape{q.shape[0], (options.per_kv_head ? k : q).size(heads), blocks(q, options.q_block),
               blocks(k, options.k_block)};
}

std::optional<Shape> topk_shape(const TensorRef& scores, std::int64_t count) {
  // More than there are, or than lists of a common width have.
  constexpr std::int64_t most_padded = 4096;
  if (scores.rank() != 4 || count < 1 || count > std::max(scores.size(3), most_padded)) return std::nullopt;
  return Shape{scores.shape[0], scores.shape[1], scores.shape[2], count};
}

}  // namespace tegula::python
