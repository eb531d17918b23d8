// Plain formulas in double precision for some elements of a large result: enough to see that the work that
// is timed is done.
#pragma once
#include "tegula/tensor.hpp"

namespace tegula::bench {

// Throws unless 64 elements of c [m, n], chosen by chance, are those of a [m, k] times b [k, n].
void check_product(const TensorRef& a, const TensorRef& b, const TensorRef& c);

// The same for rows of attention without a mask, all tensors [1, s, h, d]; `indices` [1, h, blocks, n] lists
// the blocks of `block` keys that each block of as many queries sees, all of them if it is null.
void check_attention(const TensorRef& q, const TensorRef& k, const TensorRef& v, const TensorRef& out,
                     const TensorRef* indices = nullptr, int block = 64);

}  // namespace tegula::bench
