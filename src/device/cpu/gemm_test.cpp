// The micro-kernel against double sums, over odd shapes, strides and depths.
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "device/cpu/testing/sets.hpp"

namespace tegula_cpu_testing {
namespace {

class GemmTest : public CpuSet {};
TEGULA_ON_ALL_CPU_SETS(GemmTest);

template <class T>
T random_value(std::mt19937& random) {
  if constexpr (std::is_integral_v<T>)
    return T(random() % 201) - 100;
  else
    return T(random() % 20001) / T(10000) - 1;
}

template <class T>
struct Problem {
  long m, n, k, row_stride, k_stride, ldc;
  std::vector<T> a, b, c;

  Problem(const Functions& set, long m, long n, long k, bool transposed, std::mt19937& random)
      : m(m), n(n), k(k), row_stride(transposed ? 1 : k + 3), k_stride(transposed ? m + 5 : 1) {
    ldc = (n + set.width - 1) / set.width * set.width + set.width;
    a.resize(std::size_t(transposed ? k * k_stride : m * row_stride) + 1);
    b.resize(std::size_t(set.panel_size(k, n)) + 1);
    c.resize(std::size_t(m * ldc));
    for (T& x : a) x = random_value<T>(random);
    for (long p = 0; p < k; ++p) {
      for (long j = 0; j < n; ++j) b[set.panel_index(k, n, p, j)] = random_value<T>(random);
    }
    for (T& x : c) x = random_value<T>(random);
  }
  // Sum and sum of magnitudes, whose multiple by epsilon bounds the rounding.
  std::pair<double, double> exact(const Functions& set, long i, long j) const {
    double sum = 0, magnitude = 0;
    for (long p = 0; p < k; ++p) {
      const double term = double(a[i * row_stride + p * k_stride]) * double(b[set.panel_index(k, n, p, j)]);
      sum += term, magnitude += std::fabs(term);
    }
    return {sum, magnitude};
  }
};

template <class T>
void check(const Functions& set, const Product<T>& product, long k, bool transposed, bool accumulate) {
  std::mt19937 random(unsigned(product.m * 1000 + product.n + k));
  Problem<T> problem(set, product.m, product.n, k, transposed, random);
  const std::vector<T> before = problem.c;
  product.multiply(k, problem.a.data(), problem.row_stride, problem.k_stride, problem.b.data(),
                   problem.c.data(), problem.ldc, accumulate);
  const double epsilon = sizeof(T) == 8 ? 0x1p-50 : std::is_integral_v<T> ? 0 : 0x1p-24;
  const long padded = (product.n + set.width - 1) / set.width * set.width;
  for (long i = 0; i < product.m; ++i) {
    for (long j = 0; j < problem.ldc; ++j) {
      const T got = problem.c[i * problem.ldc + j], old = before[i * problem.ldc + j];
      ASSERT_TRUE(j < padded || got == old) << "wrote behind the padding, row " << i << " column " << j;
      if (j >= product.n) continue;
      const auto [sum, magnitude] = problem.exact(set, i, j);
      const double expected = sum + (accumulate ? double(old) : 0.0);
      ASSERT_NEAR(got, expected, epsilon * (2 + std::sqrt(double(k))) * (magnitude + std::fabs(double(old))))
          << set.name << " " << product.m << " x " << product.n << " x " << k << " at " << i << ", " << j
          << (transposed ? " transposed" : "") << (accumulate ? " accumulating" : "");
    }
  }
}

template <class T>
void check_all(const Functions& set, const List<Product<T>>& products) {
  for (const Product<T>& product : products) {
    for (long k : {0, 1, 2, 19, 64, 257, 515, 1100}) {
      if (product.m * product.n * k > 4000000) continue;
      for (bool transposed : {false, true}) {
        for (bool accumulate : {false, true}) {
          check(set, product, k, transposed, accumulate);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(GemmTest, Floats) { check_all(set, set.products); }
TEST_P(GemmTest, Integers) { check_all(set, set.integer_products); }
TEST_P(GemmTest, Doubles) { check_all(set, set.double_products); }

void check_bf16(const Functions& set, const ProductOfBf16& product, int tiles, long k, bool transposed,
                bool accumulate) {
  std::mt19937 random(unsigned(product.m * 1000 + product.n + k));
  Problem<float> problem(set, product.m, product.n, k, transposed, random);
  for (std::vector<float>* values : {&problem.a, &problem.b})
    for (float& x : *values) x = float_of(bits_of(x) & 0xffff0000u);
  const std::vector<float> before = problem.c;
  product.multiply(tiles, k, problem.a.data(), problem.row_stride, problem.k_stride, problem.b.data(),
                   problem.c.data(), problem.ldc, accumulate);
  for (long i = 0; i < product.m; ++i) {
    for (long j = 0; j < product.n; ++j) {
      const float old = before[i * problem.ldc + j];
      const auto [sum, magnitude] = problem.exact(set, i, j);
      ASSERT_NEAR(problem.c[i * problem.ldc + j], sum + (accumulate ? double(old) : 0.0),
                  0x1p-23 * (2 + std::sqrt(double(k))) * (magnitude + std::fabs(double(old))))
          << set.name << " " << product.m << " x " << product.n << " x " << k << " at " << i << ", " << j
          << (transposed ? " transposed" : "") << (accumulate ? " accumulating" : "");
    }
  }
}

TEST_P(GemmTest, Bf16) {
  for (const ProductOfBf16& product : set.bf16_products)
    for (const int tiles : ways_of_bf16())
      for (const long k : {0L, 1L, 19L, 32L, 65L, 257L, 600L})
        for (const bool transposed : {false, true})
          for (const bool accumulate : {false, true})
            check_bf16(set, product, tiles, k, transposed, accumulate);
}

TEST_P(GemmTest, IntegerSumsWrap) {
  const Product<int>& product = set.integer_products.first[0];
  const int a[2] = {1 << 30, 1 << 30};
  std::vector<int> b(std::size_t(set.panel_size(2, 1))), c(std::size_t(set.width));
  b[set.panel_index(2, 1, 0, 0)] = b[set.panel_index(2, 1, 1, 0)] = 3;
  product.multiply(2, a, 2, 1, b.data(), c.data(), set.width, false);
  EXPECT_EQ(c[0], int(6u << 30));
}

TEST_P(GemmTest, SpecialValuesReachTheirRowsOnly) {
  const Product<float>& product = set.products.first[6];
  std::mt19937 random(3);
  Problem<float> problem(set, product.m, product.n, 40, false, random);
  problem.a[7 * problem.row_stride + 11] = NAN;
  problem.a[9 * problem.row_stride + 3] = INFINITY;
  product.multiply(40, problem.a.data(), problem.row_stride, 1, problem.b.data(), problem.c.data(),
                   problem.ldc, false);
  for (long i = 0; i < product.m; ++i) {
    for (long j = 0; j < product.n; ++j) {
      const float got = problem.c[i * problem.ldc + j];
      ASSERT_EQ(std::isnan(got), i == 7) << i << " " << j;
      ASSERT_EQ(std::isinf(got), i == 9) << i << " " << j;
    }
  }
}

// The same bits in the panels and in the result, whoever fills the panels.
void expect_same_as_panels(const Functions& set, const ProductOfRows& product, long k, long step,
                           const Bounds& inside, bool accumulate, bool fetch) {
  std::mt19937 random(unsigned(product.m * 1000 + product.n + k));
  const long ldc = product.n + set.width, stride = (product.n + 3) * step;
  std::vector<std::uint8_t> source(std::size_t((k * stride + 1) * product.bytes));
  for (std::uint8_t& byte : source) byte = std::uint8_t(random() % 0x3c);
  std::vector<float> a(std::size_t(product.m * (k + 3) + 1)), c(std::size_t(product.m * ldc)), panels[2],
      result[2];
  for (float& x : a) x = random_value<float>(random);
  for (float& x : c) x = random_value<float>(random);
  for (const bool late : {false, true}) {
    panels[late].assign(std::size_t(set.panel_size(k, product.n)) + 1, 77), result[late] = c;
    (late ? product.rows : product.panels)(k, a.data(), k + 3, 1, source.data(), stride, step, inside,
                                           panels[late].data(), result[late].data(), ldc, accumulate, fetch);
  }
  const std::string what =
      fmt::format("{} {} {} x {} x {}, step {}, rows {} to {}, columns {} to {}", set.name, product.name,
                  product.m, product.n, k, step, inside.k_begin, inside.k_end, inside.n_begin, inside.n_end);
  EXPECT_EQ(panels[0], panels[1]) << what;
  EXPECT_EQ(result[0], result[1]) << what;
}

TEST_P(GemmTest, ProductsFillPanelsFromRows) {
  for (const ProductOfRows& product : set.products_of_rows) {
    for (const long k : {0L, 1L, 19L, 64L, 257L, 600L}) {
      const Bounds parts[] = {{0, k, 0, product.n},     {-3, k + 5, -1, product.n + 9},
                              {0, k / 2, 0, product.n}, {k / 3, k, 0, product.n},
                              {0, k, 5, product.n},     {0, k, 0, product.n / 2}};
      for (const Bounds& inside : parts)
        for (const long step : {1L, 2L})
          for (const bool fetch : {false, true})
            expect_same_as_panels(set, product, k, step, inside, step == 2, fetch);
    }
  }
}

TEST_P(GemmTest, PanelsHoldEveryElementOnce) {
  for (long n : {1L, long(set.width), long(set.panel), 3L * set.width, 100L}) {
    const long k = 7, size = set.panel_size(k, n);
    std::vector<int> uses(std::size_t(size), 0);
    const long padded = (n + set.width - 1) / set.width * set.width;
    for (long p = 0; p < k; ++p) {
      for (long j = 0; j < padded; ++j) {
        const long at = set.panel_index(k, n, p, j);
        ASSERT_TRUE(at >= 0 && at < size) << n << " " << p << " " << j;
        ++uses[at];
        ASSERT_TRUE(j % set.width == 0 || at == set.panel_index(k, n, p, j - 1) + 1);
      }
    }
    for (int count : uses) ASSERT_EQ(count, 1) << n;
  }
}

TEST_P(GemmTest, SoftmaxRowsAgreeWithDoubles) {
  std::mt19937 random(5);
  const long rows = 9, columns = 64;
  std::vector<float> scores(rows * columns), sums(rows);
  for (float& x : scores) x = float(random() % 2000) / 100 - 10;
  const std::vector<float> before = scores;
  set.softmax_rows(scores.data(), rows, columns, 1.25f, sums.data());
  for (long i = 0; i < rows; ++i) {
    double best = -INFINITY, sum = 0;
    for (long j = 0; j < columns; ++j) best = std::max(best, double(before[i * columns + j]));
    for (long j = 0; j < columns; ++j) {
      const double expected = std::exp2((before[i * columns + j] - best) * 1.25);
      ASSERT_NEAR(scores[i * columns + j], expected, 1e-5 * expected + 1e-30);
      sum += expected;
    }
    ASSERT_NEAR(sums[i], sum, 1e-5 * sum);
  }
}

}  // namespace
}  // namespace tegula_cpu_testing
