// The shapes of results from those of arguments, for outputs that the caller's library allocates; none for
// arguments that the operator refuses.
#pragma once
#include <optional>

#include "tegula/ops.hpp"

namespace tegula::python {

struct AttentionShapes {
  std::optional<Shape> out = {}, lse = {};
};
AttentionShapes attention_shapes(const TensorRef& q, const TensorRef& v, ops::Layout layout);

}  // namespace tegula::python
