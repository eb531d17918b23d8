// Casts to fp8 with scales, and back.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// The unit with a scale of its own: 128 features of a token, a block of 128 tokens by 128 features, or the
// whole tensor.
enum class Fp8Scaling { token, block, tensor };

struct CastFp8 {
  TensorRef x = {};  // [m, n] or [batch, m, n], f32, f16 or bf16
  // i32 [groups + 1]: group g has the rows offsets[g] … offsets[g + 1] of x [m, n], and no scale belongs to
  // two groups. Block i of group g has row offsets[g] / 128 + g + i of the scales of blocks.
  std::optional<TensorRef> offsets = {};
  Fp8Scaling scaling = Fp8Scaling::token;
  bool power_of_two = false;  // scales are rounded up to powers of two
  // Of tokens: the result is [groups, group_rows, n], with zeros after the rows that a group has.
  std::int64_t group_rows = 0;
  std::optional<TensorRef> out = {}, scale = {};
  Target target = Target::automatic();
};
struct CastFp8Result {
  Tensor out;  // e4m3, of x's shape or as group_rows asks: x / scale
  // f32 [m, ceil(n/128)], [ceil(m/128), ceil(n/128)], with x's batch if it has one, or [1]; of groups
  // [groups, group_rows, ceil(n/128)] or [m/128 + groups, ceil(n/128)].
  Tensor scale;
};

// The scale is the largest magnitude / 448, at least 2^-126, so zeros remain zeros. A preallocated scale
// tensor may have any strides.
CastFp8Result cast_fp8(const TensorRef& x, CastFp8 options = {});

struct UncastFp8 {
  TensorRef x = {};      // [m, n] or [batch, m, n], e4m3
  TensorRef scale = {};  // as returned by cast_fp8
  std::optional<TensorRef> offsets = {};  // of groups whose blocks have scales of their own
  Fp8Scaling scaling = Fp8Scaling::token;
  DType out_dtype = f32;  // f32, f16 or bf16
  std::optional<TensorRef> out = {};
  Target target = Target::automatic();
};

// x · scale.
Tensor uncast_fp8(const TensorRef& x, const TensorRef& scale, UncastFp8 options = {});

}  // namespace tegula::ops
TEGULA_API_END
