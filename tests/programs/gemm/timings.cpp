#include <random>

#include "tests/programs/timing.hpp"

namespace programs {
namespace {

using Unit = Timing::Unit;
using Index64 = std::int64_t;

double products(double m, double n, double k) { return 2 * m * n * k; }

// C[i, j] = Σ_k A[i, k] · B[j, k], rows of C and A, of C's columns and B.
double dot(const Numbers& a, const Numbers& b) {
  return sum_of(static_cast<Index64>(a.values.size()), [&](int k) { return a(k) * b(k); });
}

Timing gemv_timing(DType out) {
  const Index64 n = 16384;
  return {"gemv",
          {},
          "16384 x 16384 f16",
          Unit::bytes,
          static_cast<double>(2 * n * n),
          [=] {
            return std::vector<TimedArgument>{
                {"a", Random{{n}, f16}}, {"B", Random{{n, n}, f16, .1}}, {"C", Result{{n}, out}}};
          },
          Check{"C", [](const SliceOf& slice, const std::vector<Index64>& at) {
                  return dot(slice("B", {at[0]}), slice("a", {}));
                }}};
}

Timing int4_gemv_timing(bool interleaved) {
  const Index64 n = 16384, groups = n / 128;
  const double bytes = n * n / 2.0 + 2.0 * 2 * n * groups;
  return {"gemv_int4",
          {},
          "16384 x 16384",
          Unit::bytes,
          bytes,
          [=] {
            std::vector<TimedArgument> all{{"B", Random{{n, n / 8}, u32}},
                                           {"scale", between({n, groups}, f16, .005, .02)},
                                           {"zero", between({n, groups}, f16, 0, 15)}};
            if (interleaved) {
              all.push_back({"A", Random{{1, 8, n / 8}, f16}});
              all.push_back({"C", Result{{1, n}, f16}});
            } else {
              all.push_back({"a", Random{{n}, f16}});
              all.push_back({"C", Result{{n}, f16}});
            }
            return all;
          },
          Check{"C",
                [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Index64 row = at.back();
                  const Numbers words = slice("B", {row}), scale = slice("scale", {row}),
                                zero = slice("zero", {row});
                  const Numbers a = interleaved ? slice("A", {at[0]}) : slice("a", {});
                  return sum_of(n, [&](int k) {
                    const auto word = static_cast<unsigned>(words(k / 8));
                    const double activation = interleaved ? a(k % 8, k / 8) : a(k);
                    return ((word >> k % 8 * 4 & 15U) - zero(k / 128)) * scale(k / 128) * activation;
                  });
                }},
          false};  // activations stand in different orders
}

Timing ternary_gemv_timing() {
  const Index64 n = 16384;
  return {"gemv_ternary",
          {},
          "16384 x 16384",
          Unit::bytes,
          n * n / 4.0,
          [=] {
            return std::vector<TimedArgument>{
                {"a", Random{{n}, i8}}, {"B", Random{{n, n / 16}, u32}}, {"C", Result{{n}, i32}}};
          },
          Check{"C", [](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers a = slice("a", {}), words = slice("B", {at[0]});
                  return sum_of(n, [&](int k) {
                    const auto word = static_cast<unsigned>(words(k / 16));
                    return a(k) * ((word >> k % 16 * 2 & 3U) - 1.0);
                  });
                }}};
}

// Few rows of A move the bytes of the weights; many are bound by the products.
struct FewOrMany {
  Index64 rows;
  std::vector<std::string> forms;

  Index64 n = 8192;
  Unit unit() const { return rows < 64 ? Unit::bytes : Unit::operations; }
  double work(double bytes_of_scales) const {
    return rows < 64 ? n * n / 2.0 + bytes_of_scales : products(rows, n, n);
  }
  std::string words() const { return std::to_string(rows) + " x 8192 x 8192"; }
};

Timing int4_timing(const FewOrMany& own, bool packed) {
  const Index64 n = own.n, groups = n / 128, rows = own.rows;
  const Random weights = packed ? Random{{n, n / 8}, u32} : Random{{n, n / 2}, u8};
  return {"gemm_int4",
          own.forms,
          own.words(),
          own.unit(),
          own.work(4.0 * n * groups),
          [=] {
            return std::vector<TimedArgument>{{"A", Random{{rows, n}, f16}},
                                              {"B", weights},
                                              {"scale", between({groups, n}, f16, .005, .02)},
                                              {"zero", between({groups, n}, f16, 0, 15)},
                                              {"C", Result{{rows, n}, f16}}};
          },
          {},
          false};  // forms differ in the order of packed values
}

Timing mxfp4_timing(const FewOrMany& own, bool packed) {
  const Index64 n = own.n, rows = own.rows;
  const Random weights = packed ? Random{{n, n / 8}, u32} : Random{{n, n / 2}, u8};
  return {"gemm_mxfp4",
          own.forms,
          own.words(),
          own.unit(),
          own.work(1.0 * n * n / 32),
          [=] {
            return std::vector<TimedArgument>{{"A", Random{{rows, n}, bf16}},
                                              {"B", weights},
                                              {"scales", between({n / 32, n}, u8, 118, 124)},
                                              {"bias", Random{{n}, bf16}},
                                              {"C", Result{{rows, n}, bf16}}};
          },
          {},
          false};
}

constexpr Index64 N = 4096, K = 7168, steps = K / 128;

Timing scaled_timing(bool by_row) {
  const Index64 M = 4096;
  return {"gemm_fp8_scaled",
          {},
          by_row ? "4096 x 4096 x 7168 e4m3, scales by row" : "4096 x 4096 x 7168 e4m3",
          Unit::operations,
          products(M, N, K),
          [=] {
            return std::vector<TimedArgument>{
                {"A", Random{{M, K}, e4m3}},
                {"sa", between(by_row ? Shape{M, steps} : Shape{steps, M}, f32, .5, 2)},
                {"B", Random{{N, K}, e4m3}},
                {"sb", between({N / 128, steps}, f32, .5, 2)},
                {"C", Result{{M, N}, bf16}}};
          },
          Check{"C", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers a = slice("A", {at[0]}), b = slice("B", {at[1]}), sa = slice("sa", {}),
                                sb = slice("sb", {at[1] / 128});
                  return sum_of(K, [&](int k) {
                    const int g = k / 128;
                    return a(k) * b(k) * (by_row ? sa(at[0], g) : sa(g, at[0])) * sb(g);
                  });
                }}};
}

// Fences of groups of very different sizes, the same ones every time.
std::vector<int> ragged(int rows, int groups) {
  std::mt19937 random(7);
  std::vector<double> shares;
  double total = 0;
  for (int g = 0; g < groups; ++g) total += shares.emplace_back(0.1 + (random() % 1000) / 500.0);
  std::vector<int> first{0};
  double sum = 0;
  for (const double share : shares)
    first.push_back(static_cast<int>(std::lround((sum += share) / total * rows)));
  return first;
}
std::vector<int> equal_fences(int rows, int groups) {
  std::vector<int> first;
  for (int g = 0; g <= groups; ++g) first.push_back(rows / groups * g);
  return first;
}
Index64 group_of(const std::vector<int>& first, Index64 row) {
  Index64 g = 0;
  while (first[g + 1] <= row) ++g;
  return g;
}

struct Groups {
  std::string words;
  std::vector<int> first;

  Index64 rows() const { return first.back(); }
  Index64 count() const { return static_cast<Index64>(first.size()) - 1; }
};
const Groups equal_groups{"4 groups, 32768 x 4096 x 7168", equal_fences(32768, 4)};
const Groups ragged_groups{"32 ragged groups, 16384 x 4096 x 7168", ragged(16384, 32)};

Check grouped_check(const std::vector<int>& first) {
  return {"C", [=](const SliceOf& slice, const std::vector<Index64>& at) {
            return dot(slice("A", {at[0]}), slice("B", {group_of(first, at[0]), at[1]}));
          }};
}

Timing fences_timing(const Groups& g) {
  return {"grouped_gemm",
          {},
          g.words,
          Unit::operations,
          products(static_cast<double>(g.rows()), N, K),
          [=] {
            return std::vector<TimedArgument>{{"A", Random{{g.rows(), K}, bf16}},
                                              {"B", Random{{g.count(), N, K}, bf16}},
                                              {"first", Data::from(g.first)},
                                              {"C", Result{{g.rows(), N}, bf16}}};
          },
          grouped_check(g.first)};
}
Timing aligned_timing(const Groups& g) {
  return {"grouped_gemm",
          {},
          g.words,
          Unit::operations,
          products(static_cast<double>(g.rows()), N, K),
          [=] {
            std::vector<int> groups;
            for (Index64 i = 0; i < g.rows(); ++i) groups.push_back(static_cast<int>(group_of(g.first, i)));
            return std::vector<TimedArgument>{{"A", Random{{g.rows(), K}, bf16}},
                                              {"B", Random{{g.count(), N, K}, bf16}},
                                              {"group_of", Data::from(groups)},
                                              {"C", Result{{g.rows(), N}, bf16}}};
          },
          grouped_check(g.first)};
}
// Groups of equal room that are full.
std::vector<TimedArgument> full_groups(const Groups& g, DType type) {
  const Index64 G = g.count(), M = g.rows() / G;
  std::vector<TimedArgument> all{{"A", Random{{G, M, K}, type}},
                                 {"B", Random{{G, N, K}, type}},
                                 {"counts", Data::from(std::vector<int>(G, static_cast<int>(M)))},
                                 {"C", Result{{G, M, N}, bf16}}};
  if (type != bf16) {
    all.push_back({"sa", between({G, steps, M}, f32, .5, 2)});
    all.push_back({"sb", between({G, N / 128, steps}, f32, .5, 2)});
  }
  return all;
}
Timing masked_timing(const char* program, const Groups& g, DType type) {
  Timing timing{program, {}, g.words, Unit::operations, products(static_cast<double>(g.rows()), N, K), [=] {
                  return full_groups(g, type);
                }};
  if (type != bf16) timing.shape += ", equal room";  // scales stand in another order
  if (type == bf16)
    timing.check = Check{"C", [](const SliceOf& slice, const std::vector<Index64>& at) {
                           return dot(slice("A", {at[0], at[1]}), slice("B", {at[0], at[2]}));
                         }};
  return timing;
}
Timing scaled_fences_timing(const Groups& g) {
  return {
      "grouped_gemm_fp8",
      {},
      g.words,
      Unit::operations,
      products(static_cast<double>(g.rows()), N, K),
      [=] {
        return std::vector<TimedArgument>{
            {"A", Random{{g.rows(), K}, e4m3}},     {"sa", between({steps, g.rows()}, f32, .5, 2)},
            {"B", Random{{g.count(), N, K}, e4m3}}, {"sb", between({g.count(), N / 128, steps}, f32, .5, 2)},
            {"first", Data::from(g.first)},         {"C", Result{{g.rows(), N}, bf16}}};
      },
      Check{"C", [=](const SliceOf& slice, const std::vector<Index64>& at) {
              const Index64 own = group_of(g.first, at[0]);
              const Numbers a = slice("A", {at[0]}), b = slice("B", {own, at[1]}), sa = slice("sa", {}),
                            sb = slice("sb", {own, at[1] / 128});
              return sum_of(K, [&](int k) { return a(k) * b(k) * sa(k / 128, at[0]) * sb(k / 128); });
            }}};
}
Timing weight_gradient_timing() {
  const Index64 M = 16384, side = 4096, G = 8;
  return {"grouped_gemm_weight_gradient",
          {},
          "8 ragged groups, 16384 rows, 4096 x 4096 bf16",
          Unit::operations,
          products(M, side, side),
          [=] {
            return std::vector<TimedArgument>{{"A", Random{{M, side}, bf16}},
                                              {"dC", Random{{M, side}, bf16}},
                                              {"first", Data::from(ragged(M, G))},
                                              {"dB", Result{{G, side, side}, f32}}};
          }};
}

}  // namespace

std::vector<Timing> product_timings() {
  const FewOrMany few{16, {"packed, 16"}},
      few_int4{16, {"packed, 16", "slabs, 16", "four parts", "two parts"}};
  const FewOrMany many{4096, {"packed, 256"}}, many_int4{4096, {"packed, 128", "packed, 256", "slabs, 256"}};
  const FewOrMany in_shared{4096, {"into shared"}};
  return {gemv_timing(f16),
          gemv_timing(f32),
          int4_gemv_timing(false),
          int4_gemv_timing(true),
          ternary_gemv_timing(),
          int4_timing(few_int4, true),
          int4_timing(many_int4, true),
          int4_timing(in_shared, false),
          mxfp4_timing(few, true),
          mxfp4_timing(many, true),
          mxfp4_timing(in_shared, false),
          scaled_timing(false),
          scaled_timing(true),
          fences_timing(equal_groups),
          aligned_timing(equal_groups),
          masked_timing("grouped_gemm", equal_groups, bf16),
          fences_timing(ragged_groups),
          scaled_fences_timing(equal_groups),
          masked_timing("grouped_gemm_fp8", equal_groups, e4m3),
          scaled_fences_timing(ragged_groups),
          weight_gradient_timing()};
}

}  // namespace programs
