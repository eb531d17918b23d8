#include "ops/lists/later_first.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

// What keys and values may take of an L2 cache of 50 MB, as in FlashAttention-3; more heads do not gain.
constexpr int cached_bytes = 32 << 20, most_together = 8;

}  // namespace

Order later_first(const Expr& keys, int bytes, const Expr& sharing) {
  Expr heads_of_keys = clamp(cached_bytes / bytes / max(keys, 1), 1, most_together);
  return Order::heavy_first([](Index x, Index, Index) -> Expr { return x; },
                            min(heads_of_keys * sharing, most_together));
}

}  // namespace tegula::ops
