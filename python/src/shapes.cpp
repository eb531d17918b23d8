#include "shapes.hpp"

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

}  // namespace tegula::python
