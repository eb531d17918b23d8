// Records of latents in bytes: views of them for programs, their values for formulas.
#pragma once
#include "ops/decode/kernel.hpp"
#include "ops/schema/bound.hpp"

namespace tegula::ops {

// The record format of a u8 tensor [pages, page size, bytes]; none for other types.
CacheRecord record_of(const BoundCall& call, const char* cache);
// Whether pages are contiguous, and their fields at addresses that programs take.
bool are_records(const TensorRef& cache);

// [pages, page size, …]: e4m3, factors in f32 or as exponents of 2, bf16. What is no record is `first`.
struct RecordViews {
  TensorRef first, factors, last;
};
RecordViews record_views(const TensorRef& cache, CacheRecord record);

// Feature j of a row, of records or of others.
class RecordReader {
 public:
  RecordReader(const BoundCall& call, const char* cache);
  bool is_record() const { return record_ != CacheRecord::none; }
  double operator()(std::int64_t page, std::int64_t row, std::int64_t feature) const;

 private:
  CacheRecord record_;
  RecordViews views_;
};

// For examples: finite records, or normal numbers.
Tensor random_records(const Shape& shape, DType type, std::uint64_t seed,
                      const std::function<std::int64_t(const std::string&)>& dim);

}  // namespace tegula::ops
