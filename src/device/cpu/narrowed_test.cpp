// Copies of bf16 for products by tile registers, and the same copies without these, against double sums.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "device/cpu/testing/sets.hpp"

namespace tegula_cpu_testing {
namespace {

class NarrowedTest : public CpuSet {};
TEGULA_ON_ALL_CPU_SETS(NarrowedTest);

// A matrix of bf16 of which only a part may be read; the rest is NaN.
struct Part {
  Bounds inside;
  long row_stride, column_stride;
  std::size_t first = 0;
  std::vector<unsigned short> bits;

  // `by_lines`: rows begin lines of the cache.
  Part(long rows, long columns, Bounds inside, bool by_columns, std::mt19937& random, bool by_lines = false)
      : inside(inside),
        row_stride(by_columns ? 1
                   : by_lines ? (columns + 31) / 32 * 32
                              : columns + 3),
        column_stride(by_columns ? rows + 5 : 1),
        bits(std::size_t((rows + 5) * (columns + 36)), 0x7fc0) {
    if (by_lines) first = (64 - reinterpret_cast<std::uintptr_t>(bits.data()) % 64) % 64 / 2;
    for (long i = inside.k_begin; i < inside.k_end; ++i)
      for (long j = inside.n_begin; j < inside.n_end; ++j)
        bits[place(i, j)] = static_cast<unsigned short>(bits_of(float(random() % 201) / 64 - 1.5F) >> 16);
  }
  std::size_t place(long i, long j) const { return first + std::size_t(i * row_stride + j * column_stride); }
  const unsigned short* data() const { return bits.data() + first; }
  double at(long i, long j) const {
    if (i < inside.k_begin || i >= inside.k_end || j < inside.n_begin || j >= inside.n_end) return 0;
    return double(float_of(unsigned(bits[place(i, j)]) << 16));
  }
};

void check(const Functions& set, const NarrowProduct& product, int tiles, long k, bool by_columns,
           bool clipped) {
  std::mt19937 random(unsigned(product.m * 1000 + product.n + k));
  const long m = product.m, n = product.n, cut = clipped && k > 2 ? 1 : 0;
  const Part a(m, k, {cut, m - 2 * cut, cut, k - cut}, by_columns, random);
  const Part b(k, n, {cut, k - cut, 2 * cut, n - cut}, by_columns, random);
  const long ldc = (n + set.width - 1) / set.width * set.width;
  std::vector<float> c(std::size_t(m * ldc), 7.0F);
  product.multiply(tiles, k, a.data(), a.row_stride, a.column_stride, b.data(), b.row_stride, b.column_stride,
                   a.inside, b.inside, c.data(), ldc);
  for (long i = 0; i < m; ++i) {
    for (long j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (long p = 0; p < k; ++p)
        sum += a.at(i, p) * b.at(p, j), magnitude += std::fabs(a.at(i, p) * b.at(p, j));
      ASSERT_NEAR(c[std::size_t(i * ldc + j)], sum, 0x1p-23 * (2 + std::sqrt(double(k))) * magnitude)
          << set.name << " " << m << " x " << n << " x " << k << " at " << i << ", " << j
          << (tiles == 0   ? ""
              : tiles == 1 ? " by tiles"
                           : " by pairs")
          << (by_columns ? " by columns" : "") << (clipped ? " clipped" : "");
    }
  }
}

TEST_P(NarrowedTest, CopiesAndProducts) {
  for (const NarrowProduct& product : set.narrow_products)
    for (const int tiles : ways_of_bf16())
      for (const long k : {1L, 19L, 32L, 65L, 257L})
        for (const bool by_columns : {false, true})
          for (const bool clipped : {false, true}) check(set, product, tiles, k, by_columns, clipped);
}

// Rows that stay where they are, and sums of bf16 that leave from tile registers; elsewhere both are copied.
void check_leaving(const Functions& set, const NarrowProduct& product, int tiles, long k, bool by_lines) {
  std::mt19937 random(unsigned(product.m * 1000 + product.n + k));
  const long m = product.m, n = product.n;
  const Part a(m, k, {0, m, 0, k}, false, random, by_lines), b(k, n, {0, k, 0, n}, false, random);
  const long ldc = (n + 31) / 32 * 32;
  std::vector<float> c(std::size_t(m * ldc), 7.0F);
  std::vector<unsigned short> out(c.size(), 0x7fc0);
  const bool left = product.leave(tiles, k, a.data(), a.row_stride, a.column_stride, b.data(), b.row_stride,
                                  b.column_stride, a.inside, b.inside, c.data(), ldc, out.data());
  EXPECT_EQ(left, tiles == 1 && set.width == 16 && m >= 12);
  for (long i = 0; i < m; ++i) {
    for (long j = 0; j < n; ++j) {
      double sum = 7, magnitude = 7;
      for (long p = 0; p < k; ++p)
        sum += a.at(i, p) * b.at(p, j), magnitude += std::fabs(a.at(i, p) * b.at(p, j));
      const auto place = std::size_t(i * ldc + j);
      const double found = left ? float_of(unsigned(out[place]) << 16) : c[place];
      ASSERT_NEAR(found, sum, (left ? 0x1p-8 : 0x1p-22) * (2 + std::sqrt(double(k))) * magnitude)
          << set.name << " " << m << " x " << n << " x " << k << " at " << i << ", " << j << ", way "
          << tiles;
    }
  }
}

TEST_P(NarrowedTest, RowsInPlaceAndSumsThatLeave) {
  for (const NarrowProduct& product : set.narrow_products)
    for (const int tiles : ways_of_bf16())
      for (const long k : {19L, 32L, 128L, 257L})
        for (const bool by_lines : {false, true}) check_leaving(set, product, tiles, k, by_lines);
}

}  // namespace
}  // namespace tegula_cpu_testing
