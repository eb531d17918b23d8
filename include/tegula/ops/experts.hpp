// Mixture of experts: pairs of tokens and experts sorted by expert, and the experts themselves. The selection
// and gates of the router come from `topk`.
#pragma once
#include <optional>

#include "tegula/ops/gated_units.hpp"
#include "tegula/ops/quantised_gemm.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// A pair is a token and one of its experts; token t has pairs t · topk to t · topk + topk − 1.
struct MoeSort {
  TensorRef experts = {};   // i32 [tokens, topk]: expert numbers; negative: the pair is dropped
  std::int64_t groups = 0;  // number of experts
  std::optional<TensorRef> order = {}, places = {}, offsets = {};
  Target target = Target::automatic();
};
struct MoeOrder {
  Tensor order;  // i32 [tokens · topk]: pairs sorted by expert and, within an expert, by number; −1 after the
                 // last
  Tensor places;   // i32 [tokens, topk]: the position of a pair in `order`; −1 if it is dropped
  Tensor offsets;  // i32 [groups + 1]: the start of each expert's pairs, and the end of the last one's
};
// Throws an ArgumentError for wrong shapes or dtypes; the number of an expert that does not exist is a
// ProgramError.
MoeOrder moe_sort(const TensorRef& experts, std::int64_t groups, MoeSort options = {});

struct MoePermute {
  TensorRef x = {};                   // [tokens, d], f32, f16 or bf16
  TensorRef order = {};               // i32 [pairs]
  std::int64_t topk = 0;              // experts per token
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};
// The row of the token of each pair: out[p] = x[order[p] / topk], zeros where order[p] is negative. `order`
// contains each pair at most once.
Tensor moe_permute(const TensorRef& x, const TensorRef& order, std::int64_t topk, MoePermute options = {});

struct MoeUnpermute {
  TensorRef y = {};                       // [pairs, d], f32, f16 or bf16
  TensorRef places = {};                  // i32 [tokens, topk]
  std::optional<TensorRef> weights = {};  // [tokens, topk], f32, f16 or bf16; default: 1
  std::optional<TensorRef> out = {};      // preallocated output
  Target target = Target::automatic();
};
// out[t] = Σ weights[t, s] · y[places[t, s]] over the pairs that are not dropped, in the order of s: [tokens,
// d], of y's dtype.
Tensor moe_unpermute(const TensorRef& y, const TensorRef& places, MoeUnpermute options = {});

struct FusedMoe {
  TensorRef x = {};        // [tokens, d], f32, f16 or bf16
  TensorRef experts = {};  // i32 [tokens, topk], as above
  TensorRef weights = {};  // [tokens, topk], f32, f16 or bf16
  TensorRef w1 = {};       // [groups, 2 · inner, d], x's dtype: rows of gates, followed by rows of values
  TensorRef w2 = {};       // [groups, d, inner]
  std::optional<TensorRef> bias1 = {};  // [groups, 2 · inner], f32, f16 or bf16
  std::optional<TensorRef> bias2 = {};  // [groups, d]
  GatedUnit unit = GatedUnit::silu;
  float alpha = 1.702f, limit = 7;    // of swiglu_oai
  bool interleaved = false;           // of swiglu_oai: in w1, each gate row is followed by its value row
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};
// out[t] = Σ weights[t, s] · (unit(x[t] · w1[e]ᵀ + bias1[e]) · w2[e]ᵀ + bias2[e]) with e = experts[t, s],
// over the experts that are not negative. Results of products and of the unit are rounded to x's dtype; the
// sum is formed in f32, in the order of s. The host reads no expert numbers. Throws an ArgumentError for
// wrong shapes, dtypes or options.
Tensor fused_moe(const TensorRef& x, const TensorRef& experts, const TensorRef& weights, const TensorRef& w1,
                 const TensorRef& w2, FusedMoe options = {});

struct FusedMoeGradients {
  Tensor dx;              // of x's dtype
  Tensor dweights;        // of the dtype of weights
  Tensor dw1, dw2;        // f32
  Tensor dbias1, dbias2;  // f32, empty without biases
};
// The gradients for dout, the gradient of the result; dropped pairs contribute nothing.
// Throws an ArgumentError for wrong shapes, dtypes or options.
FusedMoeGradients fused_moe_backward(const TensorRef& dout, const TensorRef& x, const TensorRef& experts,
                                     const TensorRef& weights, const TensorRef& w1, const TensorRef& w2,
                                     FusedMoe options = {});

// The same with quantised weights: those of quantised_gemm, per expert.
struct QuantisedMoe {
  TensorRef x = {};                      // [tokens, d], f16 or bf16
  TensorRef experts = {}, weights = {};  // as above
  TensorRef w1 = {}, scales1 = {};       // [groups, 2 · inner, bytes of a row], [groups, blocks, 2 · inner]
  TensorRef w2 = {}, scales2 = {};       // [groups, d, bytes of a row], [groups, blocks, d]
  std::optional<TensorRef> bias1 = {}, bias2 = {};
  WeightFormat format = WeightFormat::mxfp4;
  bool packed = false;  // w1 and w2 are in the order of `packed_weights`
  int block = 128;      // weights along a row that share a scale; mxfp4: 32, nvfp4: 16
  GatedUnit unit = GatedUnit::silu;
  float alpha = 1.702f, limit = 7;
  bool interleaved = false;
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};
Tensor quantised_moe(const TensorRef& x, const TensorRef& experts, const TensorRef& weights,
                     const TensorRef& w1, const TensorRef& scales1, const TensorRef& w2,
                     const TensorRef& scales2, QuantisedMoe options = {});

// The same with 8-bit weights that have a scale per 128 × 128 block, as in scaled_gemm; before each product,
// rows are cast to e4m3 with a scale per 128 features.
struct ScaledMoe {
  TensorRef x = {};                      // [tokens, d], f16 or bf16
  TensorRef experts = {}, weights = {};  // as above
  TensorRef w1 = {}, scale1 = {};  // e4m3 [groups, 2 · inner, d], f32 [groups, 2 · inner / 128, d / 128]
  TensorRef w2 = {}, scale2 = {};  // e4m3 [groups, d, inner], f32 [groups, d / 128, inner / 128]
  std::optional<TensorRef> bias1 = {}, bias2 = {};
  GatedUnit unit = GatedUnit::silu;
  float alpha = 1.702f, limit = 7;
  bool interleaved = false;
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};
Tensor scaled_moe(const TensorRef& x, const TensorRef& experts, const TensorRef& weights, const TensorRef& w1,
                  const TensorRef& scale1, const TensorRef& w2, const TensorRef& scale2,
                  ScaledMoe options = {});

// One expert for all tokens.
struct GatedMlp {
  TensorRef x = {};                     // [..., d], f32, f16 or bf16
  TensorRef w1 = {};                    // [2 · inner, d]
  TensorRef w2 = {};                    // [d, inner]
  std::optional<TensorRef> bias1 = {};  // [2 · inner], f32, f16 or bf16
  std::optional<TensorRef> bias2 = {};  // [d]
  GatedUnit unit = GatedUnit::silu;
  float alpha = 1.702f, limit = 7;
  bool interleaved = false;
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};
// unit(x · w1ᵀ + bias1) · w2ᵀ + bias2: [..., d].
Tensor gated_mlp(const TensorRef& x, const TensorRef& w1, const TensorRef& w2, GatedMlp options = {});

}  // namespace tegula::ops
TEGULA_API_END
