// The tile program of matrix products.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"
#include "tegula/ops/gemm.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 4> choice_names<Activation>{
    "none", "relu", "gelu", "silu"};

template <>
struct FieldOf<GemmTiles> {
  static constexpr std::size_t words = 4, members = 1;
  static void key(const GemmTiles& t, std::int64_t* words) {
    words[0] = t.m, words[1] = t.n, words[2] = t.k, words[3] = t.splits;
  }
  static std::string name(const GemmTiles& t) {
    const std::string parts = t.splits > 1 ? fmt::format("_split{}", t.splits) : "";
    return fmt::format("_{}x{}x{}{}", t.m, t.n, t.k, parts);
  }
};

struct GemmKernel {
  DType type = f32, out = f32;
  DType compute = f32;  // of the tiles that are multiplied
  bool transpose_a = false, transpose_b = false, scaled = false;
  bool pad_a = false, pad_b = false;  // copied first, to rows that the copy engine takes
  std::optional<DType> bias = {};
  Activation activation = Activation::none;
  GemmTiles tiles = {};

  auto fields() const {
    return std::tuple(type, compute, out, tiles, labelled("ta", transpose_a), labelled("tb", transpose_b),
                      labelled("pa", pad_a), labelled("pb", pad_b), labelled("scaled", scaled),
                      labelled("bias", bias), activation);
  }
};

// Arguments: a [batch, m, k] (transposed: [batch, k, m]), b [batch, k, n] (or [batch, n, k]), out [batch, m,
// n], bias [n] and the scalar scale, f32, where the instance has them.
lang::Kernel gemm_kernel(const GemmKernel& instance);

}  // namespace tegula::ops
