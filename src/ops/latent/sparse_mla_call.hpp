// A checked call of attention to listed rows in the form of its programs, and what formulas see of it.
#pragma once
#include <functional>

#include "ops/latent/sparse_mla_kernel.hpp"
#include "ops/latent/sparse_mla_table.hpp"
#include "ops/reference/softmax.hpp"

namespace tegula::ops {

// The first features of rows, and those after them.
struct LatentViews {
  TensorRef values, rest;

  LatentViews() = default;
  LatentViews(const TensorRef& rows, std::int64_t d_v)
      : values(rows.slice(-1, 0, d_v)), rest(rows.slice(-1, d_v, rows.size(-1))) {}
};

// The instance, except for its splits.
SparseMlaKernel sparse_mla_instance(const Bound<SparseMla>& c);

// The heads of a call as the formula of attention has them: the keys of both sources stand one after the
// other.
class ListedHeads {
 public:
  ListedHeads(const Bound<SparseMla>& c, Exact& exact) : c_(c), exact_(exact) {}

  struct One {
    std::int64_t b, h, member;
    reference::Softmax softmax;
    reference::Head head;

    // The part of [batch, queries, kv heads, group, …].
    Tensor rows(const Tensor& of) const { return of.select(0, b).select(1, h).select(1, member); }
  };
  void each(const std::function<void(const One&)>& body) const;

 private:
  void see(std::int64_t b, std::int64_t h, std::int64_t query, std::vector<double>& times) const;

  const Bound<SparseMla>& c_;
  Exact& exact_;
};

}  // namespace tegula::ops
