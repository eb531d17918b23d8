// Products with 8-bit, 4-bit and 2-bit weights.
#pragma once
#include <optional>

#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// The value of a weight before scaling:
//   int4   a number from −8 to 7 (two's complement), less its zero
//   uint4  a number from 0 to 15, less its zero, 8 without zeros
//   int8   a number from −128 to 127, less its zero
//   fp4    e2m1: ± 0, 0.5, 1, 1.5, 2, 3, 4, 6
//   mxfp4  e2m1 with a power of two (u8, e8m0) for every 32
//   nvfp4  e2m1 with an e4m3 for every 16, and one factor of the whole matrix
//   ternary  0, 1 or 2 in two bits, less 1: −1, 0 or 1
enum class WeightFormat { int4, uint4, int8, fp4, mxfp4, nvfp4, ternary };

struct QuantisedGemm {
  TensorRef a = {};                            // [..., k], bf16, f16, e4m3 or i8
  TensorRef b = {};                            // u8 [n, k / 2], i8 [n, k] for int8, u8 [n, k / 4] for ternary
  TensorRef scales = {};                       // [groups, n]: f16, bf16 or f32; u8 for mxfp4, e4m3 for nvfp4
  std::optional<TensorRef> zeros = {};         // [groups, n], f16, bf16 or f32, of int4, uint4 and int8
  std::optional<TensorRef> tensor_scale = {};  // f32 [1], of the whole matrix
  std::optional<TensorRef> row_scale = {};     // f32 [...], of the rows of a, such as those of 8 bits
  std::optional<TensorRef> bias = {};          // [n], f32, f16 or bf16
  WeightFormat format = WeightFormat::int4;
  bool packed = false;  // b has the order of `packed_weights`
  int group = 128;      // weights along k with one scale; 0: a whole row; mxfp4: 32, nvfp4: 16
  int splits = 0;       // splits of k, at most 32, whose sums are added in order; 0: by the plan
  std::optional<DType> out_dtype = {};  // that of a unless given, bf16 where that has 8 bits
  std::optional<TensorRef> out = {};    // written instead of a new tensor
  Target target = Target::automatic();
};

// row_scale · (a · Wᵀ) + bias with W[j, e] = (q − zeros[e / group, j]) · scales[e / group, j] · tensor_scale:
// [..., n].
// Weights of 4 bits are in b[j, e / 2], the even e in the low half of the byte; those of 2 bits in b[j, e /
// 4] from bit 2 (e mod 4) on. Weights are rounded to the dtype of a where they are multiplied, and to bf16
// where that has 8 bits, whose numbers bf16 represents; sums are f32. Many rows of e4m3 are multiplied by
// 8-bit tensor cores with mxfp4, of which scales below 2^−14 of the largest of their row are then rounded,
// and with weights of 4 and 2 bits that have one scale a row and no zeros. Scales and zeros may have any
// strides; they are fastest where those of a group are contiguous. Wrong shapes, dtypes or options are an
// ArgumentError.
Tensor quantised_gemm(const TensorRef& a, const TensorRef& b, const TensorRef& scales,
                      QuantisedGemm options = {});

// 4-bit weights in the order in which a thread needs them for a GPU's tensor cores: of every 32 bytes of a
// row, byte 8 t + 2 i + h of the result is byte 8 i + 4 h + t (t < 4, i < 4, h < 2). u8 [n, k / 2], where k
// is a multiple of 64, on the host; in PyTorch
//   b.view(n, -1, 4, 2, 4).permute(0, 1, 4, 2, 3).reshape(n, -1)
Tensor packed_weights(const TensorRef& b);
// Packs −1, 0 and 1 (i8 [n, k], on the host, k a multiple of 4) into ternary weights, u8 [n, k / 4].
Tensor ternary_weights(const TensorRef& numbers);

}  // namespace tegula::ops
TEGULA_API_END
