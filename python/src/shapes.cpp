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

std::optional<Shape> product_shape(const TensorRef& a, const TensorRef& b, const ops::GemmOptions& options) {
  const auto is_matrix = [](const TensorRef& x) { return x.rank() == 2 || x.rank() == 3; };
  if (!is_matrix(a) || !is_matrix(b)) return std::nullopt;
  const std::int64_t m = a.size(options.transpose_a ? -1 : -2), n = b.size(options.transpose_b ? -2 : -1);
  if (a.rank() == 2 && b.rank() == 2) return Shape{m, n};
  return Shape{b.rank() == 2 || (a.rank() == 3 && a.shape[0] != 1) ? a.shape[0] : b.shape[0], m, n};
}

DType product_dtype(const TensorRef& a, const ops::GemmOptions& options) {
  return options.out_dtype.value_or(a.dtype.is_floating() && a.dtype.bits() == 8 ? bf16 : a.dtype);
}

}  // namespace tegula::python
