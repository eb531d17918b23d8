// 8-bit, 4-bit and 2-bit weights: their storage and decoding in programs and formulas, and products with
// them.
#pragma once
#include <functional>

#include "ops/schema/exact.hpp"
#include "ops/schema/instance.hpp"
#include "ops/schema/launch.hpp"
#include "tegula/lang.hpp"
#include "tegula/ops/quantised_gemm.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 7> choice_names<WeightFormat>{
    "int4", "uint4", "int8", "fp4", "mxfp4", "nvfp4", "ternary"};

inline bool is_e2m1(WeightFormat format) {
  return format == WeightFormat::fp4 || format == WeightFormat::mxfp4 || format == WeightFormat::nvfp4;
}
inline int bits_of(WeightFormat format) {
  return format == WeightFormat::int8 ? 8 : format == WeightFormat::ternary ? 2 : 4;
}

// The dtype to which weights are rounded where they are multiplied with rows of such a dtype: bf16 represents
// the numbers of 8 bits.
inline DType rounded_weights(DType rows) { return rows.bits() == 8 ? bf16 : rows; }

// What is subtracted from the integers that are stored, unless there are zeros.
inline int zero_of(WeightFormat format) {
  if (format == WeightFormat::uint4) return 8;
  return format == WeightFormat::ternary ? 1 : 0;
}

// What a kernel knows of its weights.
struct QuantisedWeights {
  WeightFormat format = WeightFormat::int4;
  DType scale = f16;
  std::optional<DType> zeros = {};
  bool packed = false, words = false;             // the order of packed_weights; 32 bits are read at a time
  bool by_group = false, zeros_by_group = false;  // those of a group are contiguous
  int group = 128;                                // 0: a row has one scale
  // Those of a group begin anywhere: programs copy them first, so that the copy engine brings them.
  bool pad_scales = false, pad_zeros = false;

  auto fields() const {
    return std::tuple(format, labelled("s", scale), labelled("zeros", zeros), labelled("packed", packed),
                      labelled("words", words), labelled("sg", by_group), labelled("zg", zeros_by_group),
                      labelled("group", group), labelled("pad_s", pad_scales), labelled("pad_z", pad_zeros));
  }
  int bits() const { return bits_of(format); }
  lang::PackedType stored() const;
};

// The tile of a product: rows of a, rows of weights, and the step of k.
struct QuantisedTile {
  int m = 64, n = 64, k = 64;
  std::optional<int> groups = {};  // warp groups of a block, each with its own part of every step
  // Products of few rows have tiles of few weights: one warp group a block decodes, waits and multiplies, and
  // other blocks fill its waits.
  bool has_few_rows() const { return n <= 64; }
  // That share a processor; 0: by the compiler.
  int blocks() const {
    if (groups) return 1;
    if (!has_few_rows()) return 0;
    return m <= 32 ? 3 : 2;
  }
  int parts() const { return groups.value_or(1); }
  auto fields() const { return std::tuple(joined("t", m, n), k, labelled("groups", groups)); }
};

// The tile of a plan: m and n are those of a row of the table.
QuantisedTile quantised_tile(int m, int n);

// A matrix of weights [n, k] as a program has it; scales and zeros are [n, groups], or [groups, n].
struct QuantisedMatrix {
  lang::PackedTensor b;
  lang::Tensor scales;
  std::optional<lang::Tensor> zeros;
};

// Declares the inputs of a matrix, or of as many as `leading` says. They are `b`, `scales` and `zeros`.
struct QuantisedInputs {
  QuantisedInputs(const QuantisedWeights& w, const lang::Extents& leading, const lang::Dim& n,
                  const lang::Dim& k, const lang::Dim& groups);
  QuantisedMatrix all;
  // That of a number.
  QuantisedMatrix slice(const lang::Expr& index) const;
};

// The matrix with copies of what `w` says, by grids that come first.
QuantisedMatrix with_whole_pieces(const QuantisedWeights& w, const QuantisedMatrix& matrix);
// Has `w` say so, of a GPU with copy engine.
void pad_numbers(QuantisedWeights& w, const TensorRef& scales, const TensorRef& zeros, Launch& launch);

// One of equal parts of a step of k: its number, none where there is one part.
struct WeightPart {
  std::optional<lang::Expr> number = {};
  int count = 1;
};
class WeightTile;

// The sums of a tile [n, m] of W · aᵀ.
class QuantisedProduct {
 public:
  QuantisedProduct(const QuantisedWeights& weights, const QuantisedTile& tile, DType compute)
      : w_(weights), t_(tile), compute_(compute) {}

  // sum += the product of rows of a from `row` on with weights from `column` on, over `steps` of k.
  void multiply(lang::Fragment& sum, const lang::Tensor& a, const QuantisedMatrix& matrix,
                const lang::Expr& row, const lang::Expr& column, const lang::Range& steps) const;
  // What is left to do with the sums over all of k. They may be those of any rows and columns of a tile.
  void finish(lang::Fragment& sum, const QuantisedMatrix& matrix, const lang::Expr& column) const;

 private:
  // What scales are multiplied with: each weight; the sums of a step, if these are fewer; all sums of a row.
  enum class Scaled { weights, steps, rows };
  Scaled scaled() const;
  int stages() const;
  void multiply_part(lang::Fragment& sum, const lang::Shared& a, const WeightTile& own,
                     const WeightPart& part) const;

  const QuantisedWeights& w_;
  const QuantisedTile& t_;
  DType compute_;
};

// The step of k becomes one that groups divide, or that divides them.
void fit_step(QuantisedTile& tile, const QuantisedWeights& weights);
// b as programs read it, words where its bytes are such and tiles of words pay, or `words` asks for them;
// weights.words says which.
TensorRef stored_elements(const TensorRef& b, QuantisedWeights& weights, bool words = false);

// For formulas: row j of the weights of a matrix without their scales, and whether scales, zeros and groups
// are such as the format has.
double stored_weight(const Tensor& b, WeightFormat format, bool packed, std::int64_t row, std::int64_t e);
bool scales_fit(WeightFormat format, DType scales);
bool group_fits(WeightFormat format, int group);
// Positive scales of usual sizes, for examples.
Tensor example_scales(const Shape& shape, DType type, std::uint64_t seed,
                      const std::function<std::int64_t(const std::string&)>&);

}  // namespace tegula::ops
