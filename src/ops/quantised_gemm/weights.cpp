#include "ops/quantised_gemm/weights.hpp"

#include <algorithm>

#include "ops/pieces/matrices.hpp"
#include "ops/pieces/padding.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/products/low_bits.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/quantised_gemm/weight_tile.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// Rows as they are multiplied: copies convert floats, integers are converted one by one.
void load_rows(const Tensor& a, const Expr& row, const Expr& column, Shared& tile) {
  if (a.type().is_floating()) return copy(a.at(row, column), tile);
  Shared stored({static_cast<int>(tile.extent(0)), static_cast<int>(tile.extent(1))}, a.type());
  copy(a.at(row, column), stored);
  parallel(tile, [&](Index i, Index j) { tile(i, j) = f32(stored(i, j)); });
}

Tensor numbers(const char* name, const Extents& leading, DType type, bool by_group, const Dim& n,
               const Dim& groups) {
  Extents extents = leading;
  extents.push_back(by_group ? Expr(groups) : Expr(n));
  extents.push_back(by_group ? Expr(n) : Expr(groups));
  return input(name, extents, type);
}

PackedTensor weights_of(const QuantisedWeights& w, const Extents& leading, const Dim& n, const Dim& k) {
  Extents extents = leading;
  extents.push_back(n);
  extents.push_back(k);
  return input("b", extents, w.stored());
}

}  // namespace

// Many bits of work for each weight of e2m1 are worth slots, so that warp groups share them; sums that they
// add at the end lie beside the slots. Otherwise few rows leave it to the bytes in flight how fast weights
// come.
int QuantisedProduct::stages() const {
  constexpr int usual = 4, most = 8, sum_bytes = 4, alignment = 1024;
  if (!t_.has_few_rows()) return usual;
  if (!t_.groups || !is_e2m1(w_.format)) return most;
  const int groups = w_.group == 0 ? 1 : std::max(1, t_.k / w_.group);
  const int scales = groups * t_.n * (w_.scale.bytes() + (w_.zeros ? w_.zeros->bytes() : 0));
  const int slot = t_.m * t_.k * compute_.bytes() + t_.n * t_.k * w_.bits() / 8 +
                   static_cast<int>(round_up(scales, alignment));
  const int fitting = (static_cast<int>(bytes_of_block) - t_.parts() * t_.n * t_.m * sum_bytes) / slot;
  return std::clamp(fitting, 2, most);
}

// With few rows, twice the depth halves the waits and doubles the registers of a thread; this was a tenth
// faster.
QuantisedTile quantised_tile(int m, int n) {
  QuantisedTile tile{m, n, 64};
  if (tile.has_few_rows())
    tile.k = best_of(Candidates<int, 2>{128, 64}, [](int depth) { return 64.0 / depth; });
  return tile;
}

QuantisedInputs::QuantisedInputs(const QuantisedWeights& w, const Extents& leading, const Dim& n,
                                 const Dim& k, const Dim& groups)
    : all{weights_of(w, leading, n, k), numbers("scales", leading, w.scale, w.by_group, n, groups), {}} {
  if (w.zeros) all.zeros.emplace(numbers("zeros", leading, *w.zeros, w.zeros_by_group, n, groups));
}

QuantisedMatrix QuantisedInputs::slice(const Expr& index) const {
  QuantisedMatrix own{all.b.slice(index), all.scales.slice(index), {}};
  if (all.zeros) own.zeros.emplace(all.zeros->slice(index));
  return own;
}

QuantisedMatrix with_whole_pieces(const QuantisedWeights& w, const QuantisedMatrix& matrix) {
  QuantisedMatrix result = matrix;
  if (w.pad_scales) result.scales = padded("whole_scales", matrix.scales);
  if (w.pad_zeros) result.zeros = padded("whole_zeros", *matrix.zeros);
  return result;
}

void pad_numbers(QuantisedWeights& w, const TensorRef& scales, const TensorRef& zeros, Launch& launch) {
  if (!has_copy_engine(launch.call()) || w.group == 0) return;
  w.pad_scales = w.by_group && starts_off_pieces(scales);
  w.pad_zeros = w.zeros && w.zeros_by_group && starts_off_pieces(zeros);
  if (w.pad_scales || w.pad_zeros)
    launch.note([] {
      return std::string(
          "plan: scales of groups that do not begin at multiples of 16 bytes are copied first");
    });
}

PackedType QuantisedWeights::stored() const {
  using Code = PackedType::Code;
  const bool is_signed = format == WeightFormat::int4 || format == WeightFormat::int8;
  const Code code = is_e2m1(format) ? Code::e2m1 : is_signed ? Code::signed_integer : Code::unsigned_integer;
  const PackedType type = PackedType{code, bits()}.minus(zeros ? 0 : zero_of(format));
  return words ? type.in_words() : type;
}

QuantisedProduct::Scaled QuantisedProduct::scaled() const {
  if (w_.group == 0) return Scaled::rows;
  const int columns = t_.k / t_.parts();
  return w_.group % columns == 0 && 2 * t_.m <= columns ? Scaled::steps : Scaled::weights;
}

void QuantisedProduct::multiply_part(Fragment& sum, const Shared& a, const WeightTile& tile,
                                     const WeightPart& part) const {
  const Scaled way = scaled();
  const int columns = t_.k / part.count;
  Fragment weights({t_.n, columns}, f32);
  parallel(weights, [&](Index i, Index j) {
    Expr number = tile.number(i, j, compute_ == f32, part);
    weights(i, j) = way == Scaled::weights ? number * tile.scale(i, j, part) : number;
  });
  const auto add = [&](const Shared& rows) {
    if (way != Scaled::steps) return gemm(weights.to(compute_), rows.T(), sum);
    Fragment partial({t_.n, t_.m}, f32, 0);
    gemm(weights.to(compute_), rows.T(), partial);
    parallel(sum, [&](Index i, Index j) { sum(i, j) += partial(i, j) * tile.scale(i, part); });
  };
  if (!part.number) return add(a);
  add(a.reshape({t_.m, part.count, columns}).slice(all, *part.number, all));
}

void QuantisedProduct::multiply(Fragment& sum, const Tensor& a, const QuantisedMatrix& matrix,
                                const Expr& row, const Expr& column, const Range& steps) const {
  pipelined(steps, {.stages = stages()}, [&](Index step) {
    Shared a_tile({t_.m, t_.k}, compute_);
    load_rows(a, row, step * t_.k, a_tile);
    const WeightTile own(w_, matrix, column, step * t_.k, {t_.n, t_.k, t_.parts()}, scaled() != Scaled::rows);
    if (t_.parts() == 1) return multiply_part(sum, a_tile, own, {});
    unrolled(t_.parts(), [&](Index part) { multiply_part(sum, a_tile, own, {part, t_.parts()}); });
  });
}

void QuantisedProduct::finish(Fragment& sum, const QuantisedMatrix& matrix, const Expr& column) const {
  if (scaled() != Scaled::rows) return;
  Fragment scales({static_cast<int>(sum.extent(0))}, matrix.scales.type());
  copy((w_.by_group ? matrix.scales.slice(0) : matrix.scales.slice(all, 0)).at(column), scales);
  parallel(sum, [&](Index i, Index j) { sum(i, j) *= scale_of(scales(i), w_.scale); });
}

void fit_step(QuantisedTile& tile, const QuantisedWeights& weights) {
  const int columns = tile.k / tile.parts();
  const bool is_whole = weights.group == 0 || weights.group % tile.k == 0 || columns % weights.group == 0 ||
                        (tile.k % weights.group == 0 && weights.group % columns == 0);
  if (!is_whole) tile.k = 64, tile.groups.reset();
}

TensorRef stored_elements(const TensorRef& b, QuantisedWeights& weights, bool words) {
  TensorRef elements = b;
  elements.dtype = u8;
  // Plain bytes bring a thread two weights of 4 bits at a time, words of the packed order eight, and words of
  // 2 bits the four that it needs of sixteen, those of 8 bits both of two instead of one.
  const auto is_whole = [&](int dim) { return b.stride(dim) % 4 == 0 || b.size(dim) <= 1; };
  weights.words = (words || weights.packed || weights.bits() != 4) && b.stride(-1) == 1 &&
                  b.size(-1) % 4 == 0 && is_whole(0) && is_whole(-2) &&
                  reinterpret_cast<std::uintptr_t>(b.data) % 4 == 0;
  if (!weights.words) return elements;
  elements.dtype = u32;
  elements.shape.back() /= 4;
  for (std::size_t dim = 0; dim + 1 < elements.shape.size(); ++dim) elements.strides[dim] /= 4;
  return elements;
}

double stored_weight(const tegula::Tensor& b, WeightFormat format, bool packed, std::int64_t row,
                     std::int64_t e) {
  if (format == WeightFormat::int8) return b.at<std::int8_t>(row, e);
  const int in_byte = 8 / bits_of(format);
  const std::int64_t at = e / in_byte, of_32 = at % 32;
  const std::int64_t place = packed ? at - of_32 + of_32 % 4 * 8 + of_32 / 8 * 2 + of_32 / 4 % 2 : at;
  const int bits =
      b.at<std::uint8_t>(row, place) >> (e % in_byte * bits_of(format)) & ((1 << bits_of(format)) - 1);
  constexpr double numbers[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  if (is_e2m1(format)) return bits < 8 ? numbers[bits] : -numbers[bits - 8];
  return format == WeightFormat::int4 ? (bits ^ 8) - 8 : bits;
}

bool scales_fit(WeightFormat format, DType scales) {
  if (format == WeightFormat::mxfp4) return scales == u8;
  if (format == WeightFormat::nvfp4) return scales == e4m3;
  return scales == f32 || scales == f16 || scales == bf16;
}

bool group_fits(WeightFormat format, int group) {
  if (format == WeightFormat::mxfp4 || format == WeightFormat::nvfp4) return true;
  return group == 0 || group == 16 || group == 32 || group % 64 == 0;
}

tegula::Tensor example_scales(const Shape& shape, DType type, std::uint64_t seed,
                              const std::function<std::int64_t(const std::string&)>&) {
  if (type == u8) return tegula::Tensor::random_integers(shape, i32, seed, 122, 130).to(u8);
  return tegula::Tensor::random_integers(shape, i32, seed, 1, 16).to(type);
}

tegula::Tensor packed_weights(const TensorRef& b) {
  if (b.dtype != u8 || b.rank() != 2 || b.size(1) % 32 != 0)
    throw ArgumentError(
        "packed_weights, argument 'b': expected u8 [n, k / 2] with k a multiple of 64, given " + describe(b) +
        "; add columns of zeros");
  tegula::Tensor packed = tegula::Tensor::empty(b.shape, u8);
  copy_elements(b.reshape({b.size(0), b.size(1) / 32, 4, 2, 4}).permute({0, 1, 4, 2, 3}),
                packed.ref().reshape({b.size(0), b.size(1) / 32, 4, 4, 2}));
  return packed;
}

tegula::Tensor ternary_weights(const TensorRef& numbers) {
  if (numbers.dtype != i8 || numbers.rank() != 2 || numbers.size(1) % 4 != 0)
    throw ArgumentError(
        "ternary_weights, argument 'numbers': expected i8 [n, k] with k a multiple of 4, given " +
        describe(numbers) + "; add columns of zeros");
  const std::int64_t n = numbers.size(0), bytes = numbers.size(1) / 4;
  tegula::Tensor own = tegula::Tensor::empty(numbers.shape, i8), b = tegula::Tensor::zeros({n, bytes}, u8);
  copy_elements(numbers, own.ref());
  for (std::int64_t i = 0; i < n * bytes * 4; ++i) {
    const int number = own.data_as<std::int8_t>()[i];
    if (number < -1 || number > 1)
      throw ArgumentError(
          fmt::format("ternary_weights, argument 'numbers': expected -1, 0 and 1, given {}; "
                      "round the weights first",
                      number));
    b.data_as<std::uint8_t>()[i / 4] |= static_cast<std::uint8_t>((number + 1) << (i % 4 * 2));
  }
  return b;
}

}  // namespace tegula::ops
