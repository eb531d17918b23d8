#include "ops/attention/heads.hpp"

#include <cmath>

#include "tegula/lang/value.hpp"

namespace tegula::ops {

TensorRef as_bshd(const TensorRef& tensor, Layout layout) {
  return layout == Layout::bshd ? tensor : tensor.transpose(1, 2);
}

TensorRef split_heads(const TensorRef& tensor, int dim, std::int64_t group) {
  TensorRef result = tensor;
  const auto at = static_cast<std::size_t>(dim);
  const std::int64_t stride = tensor.strides[at];
  result.shape[at] /= group;
  result.strides[at] = stride * group;
  result.shape.insert(result.shape.begin() + dim + 1, group);
  result.strides.insert(result.strides.begin() + dim + 1, stride);
  return result;
}

namespace {

void check_against(const Arguments& args, const HeadTensors& t, const TensorRef& k, const TensorRef& v) {
  if (t.q.rank() == 4) {
    args.check(t.k.size(0) == t.q.size(0), "k", worded("batch {}, as q", t.q.size(0)), k,
               "give both one batch");
    args.check(t.v.size(0) == t.q.size(0), "v", worded("batch {}, as q", t.q.size(0)), v,
               "give both one batch");
  }
  args.check(t.k.size(-1) == t.q.size(-1), "k", worded("{} features, as q", t.q.size(-1)), k,
             "only v may have another number of features");
  args.check(t.v.size(-3) == t.k.size(-3), "v", worded("{} keys, as k", t.k.size(-3)), v, "check the layout");
  args.check(t.v.size(-2) == t.kv_heads, "v", worded("{} heads, as k", t.kv_heads), v, "check the layout");
  args.check(t.heads > 0 || t.kv_heads == 0, "k", "no heads, as q", k,
             "give q a head for each of k, or more");
  args.check(t.kv_heads == 0 ? t.heads == 0 : t.heads % t.kv_heads == 0, "k",
             worded("a number of heads that divides the {} of q", t.heads), k, "check the layout");
  args.check(t.dim() >= 1 && t.dim() <= largest_head_dim, "q", worded("1 to {} features", largest_head_dim),
             worded("{}", t.dim()), "split the heads");
  args.check(t.dim_v() >= 1 && t.dim_v() <= largest_head_dim, "v",
             worded("1 to {} features", largest_head_dim), worded("{}", t.dim_v()), "split the heads");
}

}  // namespace

HeadTensors check_heads(const Arguments& args, const TensorRef& q, const TensorRef& k, const TensorRef& v,
                        int rank, Layout layout) {
  args.check(rank == 4 || q.rank() != 4, "q", "[tokens, heads, features], as packed sequences are", q,
             "leave out the batch, or cu_seqlens_q and cu_seqlens_k");
  args.check_tensor("q", q, float_types, {rank});
  args.check_tensor("k", k, {q.dtype}, {rank});
  args.check_tensor("v", v, {q.dtype}, {rank});
  args.check_contiguous_features("q", q);
  args.check_contiguous_features("k", k);
  args.check_contiguous_features("v", v);
  HeadTensors t;
  t.q = rank == 4 ? as_bshd(q, layout) : q;
  t.k = rank == 4 ? as_bshd(k, layout) : k;
  t.v = rank == 4 ? as_bshd(v, layout) : v;
  t.heads = t.q.size(-2), t.kv_heads = t.k.size(-2);
  check_against(args, t, k, v);
  return t;
}

HeadOutputs make_outputs(const Arguments& args, const HeadTensors& t, Layout layout,
                         const std::optional<TensorRef>& out, const std::optional<TensorRef>& lse) {
  Shape shape = t.q.shape;
  shape.back() = t.dim_v();
  const bool batched = shape.size() == 4;
  const Shape lse_shape = batched ? Shape{shape[0], shape[2], shape[1]} : Shape{shape[1], shape[0]};
  if (batched && layout == Layout::bhsd) std::swap(shape[1], shape[2]);
  HeadOutputs outputs;
  outputs.result.out =
      args.output("out", out, shape, t.q.dtype, "the shape of q with the features of v", t.q.device);
  args.check_contiguous_features("out", outputs.result.out);
  outputs.result.lse = args.output("lse", lse, lse_shape, f32, "[batch, heads, queries]", t.q.device);
  TensorRef own = outputs.result.out.ref();
  if (batched) own = as_bshd(own, layout);
  outputs.out = split_heads(own, own.rank() - 2, t.group());
  outputs.lse = split_heads(outputs.result.lse.ref(), batched ? 1 : 0, t.group());
  return outputs;
}

void check_softcap(const Arguments& args, float softcap) {
  args.check(std::isfinite(softcap) && softcap >= 0, "softcap", "a positive number, or 0 for none",
             worded("{}", softcap), "leave it out");
}

void check_tiles(const Arguments& args, const AttentionTiles& tiles) {
  for (int extent : {tiles.queries, tiles.keys})
    args.check(extent >= 0 && extent <= 1024, "tiles", "extents from 1 to 1024, or 0 for the plan's choice",
               worded("{}", extent), "leave them out");
}

float program_scale(float scale, float softcap) {
  return softcap > 0 ? scale / softcap : scale * lang::log2e;
}

}  // namespace tegula::ops
