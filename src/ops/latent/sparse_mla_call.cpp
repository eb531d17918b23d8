#include "ops/latent/sparse_mla_call.hpp"

#include <algorithm>

#include "ops/pieces/plan.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

SparseMlaKernel sparse_mla_instance(const Bound<SparseMla>& c) {
  SparseMlaKernel kernel;
  kernel.type = c.type("q"), kernel.compute = multiplied_type(kernel.type, c.on_gpu());
  kernel.dim = c.small_dim("d"), kernel.dim_v = static_cast<int>(c->d_v);
  kernel.padded = tile_features(kernel.dim_v, kernel.rest(), kernel.compute);
  kernel.padded.copied = false;
  kernel.causal = c->causal, kernel.counts = c.has("counts"), kernel.more = c.has("more_kv");
  kernel.sinks = c.type_if("sinks");
  const int group = c.small_dim("group");
  // With 32-bit operands, less fits into shared memory, and products do not profit from 64 rows.
  const bool small = c.on_gpu() && kernel.compute == f32;
  // Two warp groups divide wide sums of 64 rows by their columns, and are faster than one with 32 rows.
  const bool few = group <= 32 && !(c.on_gpu() && kernel.dim_v > most_undivided);
  kernel.rows = small || group <= 16 ? 16 : few ? 32 : 64;
  kernel.keys = small ? 32 : 64;
  // A step of few heads is over before the numbers of the next one have come.
  constexpr int few_steps = 4;
  kernel.numbers_ahead = c.on_gpu() && kernel.rows < 64 && c.dim("entries") > few_steps * kernel.keys;
  kernel.whole = !kernel.counts && c.dim("entries") % kernel.keys == 0 &&
                 (!kernel.more || c.dim("more_entries") % kernel.keys == 0);
  return kernel;
}

void ListedHeads::see(std::int64_t b, std::int64_t h, std::int64_t query, std::vector<double>& times) const {
  const std::int64_t keys = c_.dim("keys"), queries = c_.dim("queries");
  const auto add = [&](const char* lists, std::int64_t entries, std::int64_t begin, std::int64_t end) {
    const Tensor list = exact_[lists].select(0, b).select(0, query).select(0, h);
    for (std::int64_t n = 0; n < entries; ++n)
      if (const std::int64_t row = list.at<std::int32_t>(n); row >= 0 && row < end)
        times[static_cast<std::size_t>(begin + row)] += 1;
  };
  const std::int64_t entries = c_.dim("entries");
  const std::int64_t count =
      c_.has("counts") ? std::clamp<std::int64_t>(exact_["counts"].at<std::int32_t>(b, query, h), 0, entries)
                       : entries;
  add("indices", count, 0, c_->causal ? std::min(keys, query + keys - queries + 1) : keys);
  if (c_.has("more_kv")) add("more_indices", c_.dim("more_entries"), keys, c_.dim("more_keys"));
}

void ListedHeads::each(const std::function<void(const One&)>& body) const {
  const std::int64_t keys = c_.dim("keys"), more = c_.has("more_kv") ? c_.dim("more_keys") : 0,
                     d = c_.dim("d");
  for (std::int64_t b = 0; b < c_.dim("batch"); ++b)
    for (std::int64_t h = 0; h < c_.dim("kv_heads"); ++h) {
      const Tensor k = Tensor::zeros({keys + more, d}, f64);
      copy_elements(exact_["kv"].select(0, b).select(1, h), k.slice(0, 0, keys));
      if (more > 0) copy_elements(exact_["more_kv"].select(0, b).select(1, h), k.slice(0, keys, keys + more));
      for (std::int64_t member = 0; member < c_.dim("group"); ++member) {
        One own{b, h, member, {c_.real("scale"), 0}, {}};
        own.softmax.steps = exact_.steps();
        if (c_.has("sinks")) own.softmax.sink = exact_["sinks"].at<double>(h, member);
        own.head = {
            own.rows(exact_["q"]), k, k.slice(1, 0, c_->d_v),
            [this, b, h](std::int64_t query, std::vector<double>& times) { see(b, h, query, times); }};
        body(own);
      }
    }
}

}  // namespace tegula::ops
