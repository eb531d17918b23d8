#include "ops/decode/records.hpp"

#include <cmath>
#include <cstring>

namespace tegula::ops {

namespace {

constexpr std::int64_t with_powers = 584;  // bytes of such a record
constexpr std::int64_t in_8_bits_of[] = {0, 512, 448}, of_16_bits = 64;
constexpr std::int64_t aligned = 16;

// A field of each token: `at` bytes after the start of its page, with so many bytes between tokens.
TensorRef part_of(const TensorRef& cache, DType type, std::int64_t at, std::int64_t between,
                  std::int64_t extent) {
  TensorRef field = cache;
  const std::int64_t bytes = type.bits() / 8;
  if (cache.data != nullptr) field.data = static_cast<std::byte*>(cache.data) + at;
  field.dtype = type;
  field.shape[2] = extent;
  field.strides = {cache.strides[0] / bytes, between / bytes, 1};
  return field;
}

}  // namespace

CacheRecord record_of(const BoundCall& call, const char* cache) {
  if (call.type(cache) != u8) return CacheRecord::none;
  return call[cache].size(2) == with_powers ? CacheRecord::tiles_of_64 : CacheRecord::tiles_of_128;
}

bool are_records(const TensorRef& cache) {
  const bool whole = cache.size(1) <= 1 || cache.stride(1) == cache.size(2);
  const bool begins = cache.size(0) <= 1 || cache.stride(0) % aligned == 0;
  return whole && begins && reinterpret_cast<std::uintptr_t>(cache.data) % aligned == 0;
}

RecordViews record_views(const TensorRef& cache, CacheRecord record) {
  if (record == CacheRecord::none) return {cache, {}, {}};
  const std::int64_t first = in_8_bits_of[static_cast<std::size_t>(record)];
  if (record == CacheRecord::tiles_of_128) {
    const std::int64_t bytes = cache.size(2), factors = first / 128;
    return {part_of(cache, e4m3, 0, bytes, first), part_of(cache, f32, first, bytes, factors),
            part_of(cache, bf16, first + 4 * factors, bytes, of_16_bits)};
  }
  const std::int64_t of_token = first + 2 * of_16_bits, powers = first / 64;
  return {part_of(cache, e4m3, 0, of_token, first),
          part_of(cache, u8, of_token * cache.size(1), powers + 1, powers),
          part_of(cache, bf16, first, of_token, of_16_bits)};
}

RecordReader::RecordReader(const BoundCall& call, const char* cache)
    : record_(record_of(call, cache)), views_(record_views(call[cache], record_)) {}

double RecordReader::operator()(std::int64_t page, std::int64_t row, std::int64_t j) const {
  if (record_ == CacheRecord::none) return views_.first.get({page, row, j});
  const std::int64_t first = views_.first.size(2);
  if (j >= first) return views_.last.get({page, row, j - first});
  const bool powers = record_ == CacheRecord::tiles_of_64;
  const double factor = views_.factors.get({page, row, j / (powers ? 64 : 128)});
  return views_.first.get({page, row, j}) * (powers ? std::ldexp(1, static_cast<int>(factor) - 127) : factor);
}

Tensor random_records(const Shape& shape, DType type, std::uint64_t seed,
                      const std::function<std::int64_t(const std::string&)>&) {
  if (type != u8) return Tensor::random_normal(shape, type, seed);
  Tensor cache = Tensor::zeros(shape, u8);
  const CacheRecord record = shape[2] == with_powers ? CacheRecord::tiles_of_64 : CacheRecord::tiles_of_128;
  if (record == CacheRecord::tiles_of_128 && shape[2] != 656) return cache;  // no record
  const RecordViews views = record_views(cache.ref(), record);
  const auto fill = [&](const TensorRef& field, const Tensor& values) {
    copy_elements(values.to(field.dtype), field);
  };
  fill(views.first, Tensor::random_normal(views.first.shape, f32, seed));
  fill(views.last, Tensor::random_normal(views.last.shape, f32, seed + 1));
  const bool powers = record == CacheRecord::tiles_of_64;
  fill(views.factors,
       Tensor::random_integers(views.factors.shape, i32, seed + 2, powers ? 126 : 1, powers ? 129 : 3));
  return cache;
}

}  // namespace tegula::ops
