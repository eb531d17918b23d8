#include "ops/decode/cache_formula.hpp"

#include <algorithm>
#include <set>

#include "ops/decode/table.hpp"

namespace tegula::ops {

namespace {

// A head of a sequence: its keys in their order, times their factors.
Tensor gathered(Exact& exact, const Bound<AttentionWithKvCache>& c, const char* name, const char* scale_name,
                const SequencePlaces& sequence, std::int64_t head) {
  const auto cache = exact.array(name);
  const std::int64_t dim = cache.extents[3];
  const Tensor rows = Tensor::zeros({sequence.length, dim}, f64);
  double* next = rows.data_as<double>();
  for (const auto& [page, row] : sequence.places) {
    const double scale = c.has(scale_name) && page >= 0 ? exact.array(scale_name)(page, row, head) : 1;
    for (std::int64_t j = 0; j < dim; ++j) *next++ = page < 0 ? 0 : cache(page, row, head, j) * scale;
  }
  return rows;
}

// Whether a head of keys of a sequence has chosen the block of a key.
class Chosen {
 public:
  Chosen(const Bound<AttentionWithKvCache>& c, std::int64_t b, std::int64_t h) : block_(c->k_block_size) {
    if (c.has("mask")) {
      const TensorRef mask = c.formed("mask");
      for (std::int64_t n = 0; n < mask.size(2); ++n)
        if (mask.get({b, h, n}) != 0) blocks_.insert(n);
      return;
    }
    all_ = !c.has("indices");
    if (all_) return;
    const TensorRef indices = c.formed("indices");
    const auto count =
        c.has("counts") ? static_cast<std::int64_t>(c.formed("counts").get({b, h})) : indices.size(2);
    for (std::int64_t n = 0; n < std::min(count, indices.size(2)); ++n)
      blocks_.insert(static_cast<std::int64_t>(indices.get({b, h, n})));
  }
  bool has(std::int64_t key) const { return all_ || blocks_.contains(key / block_); }

 private:
  bool all_ = false;
  std::int64_t block_;
  std::set<std::int64_t> blocks_;
};

}  // namespace

void cache_formula(const Bound<AttentionWithKvCache>& c, Exact& exact) {
  const Tensor &q = exact["q"], &out = exact["out"], &lse = exact["lse"];
  const double* sinks = exact.data_if("sinks");
  for (std::int64_t b = 0; b < c.dim("batch"); ++b) {
    const SequencePlaces sequence(c.call(), b);
    const auto all = sight_of(c.call(), b, sequence, c->causal, c->left);
    for (std::int64_t h = 0; h < c.dim("kv_heads"); ++h) {
      const Chosen chosen(c, b, h);
      const auto sight = [&](std::int64_t i, std::vector<double>& times) {
        all(i, times);
        for (std::size_t t = 0; t < times.size(); ++t)
          if (!chosen.has(static_cast<std::int64_t>(t))) times[t] = 0;
      };
      const Tensor k = gathered(exact, c, "k_cache", "k_scale", sequence, h),
                   v = gathered(exact, c, "v_cache", "v_scale", sequence, h);
      for (std::int64_t g = 0; g < c.dim("group"); ++g) {
        reference::Softmax softmax{.scale = c.real("scale"), .softcap = c->softcap, .steps = exact.steps()};
        if (sinks) softmax.sink = sinks[h * c.dim("group") + g];
        reference::attend(softmax, {q.select(0, b).select(1, h).select(1, g), k, v, sight},
                          out.select(0, b).select(1, h).select(1, g),
                          lse.select(0, b).select(0, h).select(0, g));
      }
    }
  }
}

}  // namespace tegula::ops
