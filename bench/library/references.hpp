// Plain formulas in double precision for some elements of a large result: enough to see that the work that
// is timed is done.
#pragma once
#include <functional>
#include <vector>

#include "tegula/tensor.hpp"

namespace tegula::bench {

// Throws unless 64 random elements of c [m, n] are those of a [m, k] times b [k, n].
void check_product(const TensorRef& a, const TensorRef& b, const TensorRef& c);

// Which keys a query of a head sees.
using Seen = std::function<std::vector<bool>(std::int64_t head, std::int64_t query)>;
Seen all_keys(std::int64_t keys);
// `indices` [1, h, blocks, n] lists the blocks of `block` keys that each block of as many queries sees.
Seen chosen_blocks(const TensorRef& indices, std::int64_t keys, int block);
// `indices` [1, tokens, 1, n] lists the blocks of `block` keys of which each token sees those up to its own.
Seen selected_blocks(const TensorRef& indices, std::int64_t keys, int block);

// The same for rows of attention without a mask, all tensors [1, s, heads, d].
void check_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v, const TensorRef& out,
                     const Seen& seen);

// Arguments and results of a backward pass, all [1, s, h, d] but lse [1, h, s].
struct Gradients {
  TensorRef q, k, v, out, lse, dout, dq, dk, dv;
};
void check_gradients(const Gradients& call, const Seen& seen);

}  // namespace tegula::bench
