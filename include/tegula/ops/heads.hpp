// Options that operators on heads of queries and keys share.
#pragma once
#include "tegula/compiler.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// Order of the dimensions of q, k, v and out: [batch, sequence, heads, features], or [batch, heads, sequence,
// features].
enum class Layout { bshd, bhsd };

// Queries and keys per tile, at most 1024; 0 leaves the choice to the plan.
struct AttentionTiles {
  int queries = 0, keys = 0;
};

}  // namespace tegula::ops
TEGULA_API_END
