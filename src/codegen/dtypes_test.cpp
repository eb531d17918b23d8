// Every element type on the CPU executor: storage, conversion, arithmetic, products and reductions.
#include <cmath>

#include "codegen/cuda/testing/texts.hpp"
#include "codegen/testing/compare.hpp"

namespace tegula::codegen {
namespace dtypes_test {

using namespace lang;
using lang::Tensor;

// Numbers that the type holds: of both signs where it has them, floats with fractions.
Data values(const Shape& shape, DType type, std::uint64_t seed = 1) {
  const int low = type.is_boolean() || type.is_unsigned() ? 0 : -20;
  const int high = type.is_boolean() ? 2 : 21;
  if (!type.is_floating()) return Data::random_integers(shape, type, seed, low, high);
  return Data::random_normal(shape, type, seed, 0, 4);
}

// Where conversions are hard: limits, halves, infinities and NaN.
Data edges(DType type) {
  if (!type.is_floating()) {
    if (type.is_boolean()) return Data::from<double>({0, 1, 1, 0}, {4}, type);
    std::vector<std::int64_t> x{0, 1, 127, 128, 200, 255, 256, 32767, 32768, 65535, 65536, 2147483647};
    if (type == i64) x.insert(x.end(), {std::int64_t{1} << 32, (std::int64_t{1} << 40) + 77, INT64_MAX});
    if (!type.is_unsigned())
      for (std::size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i] - static_cast<int>(i % 2));
    return Data::from(x, {static_cast<std::int64_t>(x.size())}, i64).to(type);
  }
  std::vector<double> x{0,   0.5,   1.5,   2.5,   1e-9,  1e-5, 0.3, 7.25, 300.7, 448,     464,
                        480, 57344, 61440, 65504, 65520, 1e5,  3e9, 1e19, 3e38,  HUGE_VAL};
  for (std::size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
  x.push_back(std::nan(""));
  return Data::from(x, {static_cast<std::int64_t>(x.size())}, type);
}

bool converts(DType from, DType to) { return compute_type(from).kind() == compute_type(to).kind(); }

template <class F>
void for_each_type(F f) {
  for (const DType type : all_dtypes) f(type);
}

const Case storage_cases[] = {
    {"copies through tiles, with fill",
     [](Program& p) {
       for_each_type([&](DType type) {
         Tensor X = p.in(values({5, 21}, type)), Y = p.out({6, 24}, type), Z = p.out({24, 6}, type);
         grid(1, [&](Index) {
           Shared s({6, 24}, type);
           if (type.is_boolean())
             copy(X.at(-1, 2), s);
           else
             copy(X.at(-1, 2), s, {.fill = 3});
           copy(s, Y);
           copy(s.T(), Z);
         });
       });
     }},
    {"conversion between tensors, tiles and elements",
     [](Program& p) {
       for_each_type([&](DType from) {
         const Data x = edges(from);
         const int n = static_cast<int>(x.nelements());
         Tensor X = p.in(x);
         for_each_type([&](DType to) {
           if (!converts(from, to)) return;
           Tensor Y = p.out({4, n}, to), Z = p.out({n}, from);
           grid(1, [&](Index) {
             Fragment wide({n}, from), narrow({n}, to);
             copy(X, narrow);
             copy(narrow, Y.slice(0));
             copy(X, wide);
             copy(wide, Y.slice(1));
             copy(wide.to(to), Y.slice(2));
             copy(narrow, Z);
             if (to == compute_type(from)) parallel(n, [&](Index i) { Y(3, i) = X(i); });
           });
         });
       });
     }},
};

const Case cast_cases[] = {
    {"casts from all types that values have to all types, of lanes and of single values",
     [](Program& p) {
       for_each_type([&](DType from) {
         if (!(from == compute_type(from))) return;
         const Data x = edges(from);
         const int n = static_cast<int>(x.nelements());
         Tensor X = p.in(x);
         for_each_type([&](DType to) {
           Tensor Y = p.out({2, n}, to);
           grid(1, [&](Index) {
             parallel(n, [&](Index i) { Y(0, i) = to(X(i)); });
             serial(n, [&](Index i) { Y(1, i) = to(X(i)); });
           });
         });
       });
     }},
    {"bits",
     [](Program& p) {
       Tensor X = p.in(values({40}, f32)), D = p.in(values({40}, f64)), Y = p.out({2, 40}, i32),
              U = p.out({2, 40}, u32), Z = p.out({2, 40}, i64);
       grid(1, [&](Index) {
         const auto body = [&](const Expr& row, const Index& i) {
           Y(row, i) = bitcast(X(i), i32) ^ 5;
           U(row, i) = bitcast(X(i), u32) + bitcast(bitcast(Y(row, i), f32), u32);
           Z(row, i) = bitcast(D(i), i64) + 1;
         };
         parallel(40, [&](Index i) { body(Expr(0), i); });
         serial(40, [&](Index i) { body(Expr(1), i); });
       });
     }},
};

// All operations of the kind of type, on lanes (row 0) and on single values (row 1).
void record_operations(Program& p, DType type) {
  std::vector<std::function<Expr(const Expr&, const Expr&)>> results{
      [](auto& a, auto& b) { return a + b; },
      [](auto& a, auto& b) { return a - b; },
      [](auto& a, auto& b) { return a * b; },
      [](auto& a, auto& b) { return max(a, b); },
      [](auto& a, auto& b) { return min(a, b); },
      [](auto& a, auto& b) { return select(a < b, a, b * b); },
      [](auto& a, auto& b) { return clamp(a, b, b + 3); },
      [](auto& a, auto&) { return abs(a); }};
  if (!type.is_floating()) {
    for (auto f : {floordiv, floormod, ceildiv})
      results.emplace_back([f](auto& a, auto& b) {
        return f(a, select(b == 0, Expr(3).type() == b.type() ? Expr(3) : b.type()(3), b));
      });
    results.emplace_back([type](auto& a, auto& b) { return a / select(b == 0, type(3), b); });
    results.emplace_back([type](auto& a, auto& b) { return a % select(b == 0, type(3), b); });
    results.emplace_back([](auto& a, auto& b) { return (a & b) + (a | b) * (a ^ b); });
    results.emplace_back([](auto& a, auto& b) { return a >> b; });
    results.emplace_back([](auto& a, auto& b) { return (a & 3) << b; });
    results.emplace_back([](auto& a, auto& b) { return ~a & b; });
    results.emplace_back([](auto& a, auto& b) { return popcount(a) + popcount(b ^ a); });
  } else {
    results.emplace_back([](auto& a, auto& b) { return a / b; });
    results.emplace_back([](auto& a, auto& b) { return round(a) + floor(b) * 100 + ceil(a) * 10000; });
    results.emplace_back([type](auto& a, auto& b) { return select(isnan(a / (b - b)), type(1), type(2)); });
    results.emplace_back([](auto& a, auto&) { return -a; });
  }
  const int n = 37, count = static_cast<int>(results.size());
  Tensor A = p.in(values({n}, type, 3)), B = p.in(values({n}, type, 4)), Y = p.out({2, count + 1, n}, type);
  grid(1, [&](Index) {
    const auto body = [&](int row, const Index& i) {
      Expr a = A(i), b = B(i);
      for (int k = 0; k < count; ++k) Y(row, k, i) = results[static_cast<std::size_t>(k)](a, b);
      Expr truths = i32((a == b) || !(a != b)) + i32(a < b) * 2 + i32((a <= b) && (a > 0)) * 4 +
                    i32((a >= b) || (b > a)) * 8 + i32(boolean(a)) * 16;
      Y(row, count, i) = type(truths);
    };
    parallel(n, [&](Index i) { body(0, i); });
    serial(n, [&](Index i) { body(1, i); });
  });
}

const Case arithmetic_cases[] = {
    {"operations of integers",
     [](Program& p) {
       for (const DType type : {i32, i64, u32}) record_operations(p, type);
     }},
    {"operations of floats",
     [](Program& p) {
       for (const DType type : {f32, f64}) record_operations(p, type);
     },
     1e-6},
    {"bytes less a zero point, and bytes shifted into words",
     [](Program& p) {
       const int n = 259;
       Tensor Q = p.in(Data::arange(n, i32).to(u8)), Y = p.out({4, n}, f32), W = p.out({2, n}, u32),
              B = p.out({2, n}, u8);
       grid(1, [&](Index) {
         Fragment q = load(Q, {n}), y({n}, f32);
         parallel(q, [&](Index i) { y(i) = f32(q(i) - 128); });
         copy(y, Y.slice(0));
         parallel(n, [&](Index i) {
           Y(1, i) = f32(Q(i) - 8u) * 0.5f;
           W(0, i) = u32(Q(i)) << 24 | (u32(Q(i)) - 8) >> 3;
           B(0, i) = Q(i) - 8;
           assert_that(Q(i) - 8u == i % 256 - 8 && f32(Q(i) - 8) == f32(i % 256) - 8, "below zero");
         });
         serial(n, [&](Index i) {
           Y(2, i) = f32(Q(i) - Q(n - 1 - i));
           Y(3, i) = f32(-Q(i));
           W(1, i) = u32(Q(i)) * 0x9e3779b9u ^ (u32(Q(i)) - 8u);
           B(1, i) = Q(i) * 3;
         });
       });
     }},
    {"operations of booleans",
     [](Program& p) {
       Tensor A = p.in(values({37}, boolean, 3)), B = p.in(values({37}, boolean, 4)),
              Y = p.out({2, 4, 37}, boolean);
       grid(1, [&](Index) {
         Shared s({37}, boolean);
         const auto body = [&](int row, const Index& i) {
           Expr a = A(i), b = B(i);
           Y(row, 0, i) = (a && b) || !a;
           Y(row, 1, i) = select(a, b, !b);
           Y(row, 2, i) = i % 3 == 0;
           s(i) = a != b;
           Y(row, 3, i) = s(i);
         };
         parallel(37, [&](Index i) { body(0, i); });
         serial(37, [&](Index i) { body(1, i); });
       });
     }},
    {"elementary functions",
     [](Program& p) {
       for (const DType type : {f32, f64, bf16}) {
         Tensor X = p.in(Data::random_uniform({50}, type, 5, 0.01, 20)),
                Y = p.out({2, 11, 50}, compute_type(type));
         grid(1, [&](Index) {
           const auto body = [&](int row, const Index& i) {
             Expr x = X(i);
             int k = 0;
             for (auto f : {exp, exp2, log, log2, sqrt, rsqrt, rcp, tanh, sin, cos}) Y(row, k++, i) = f(x);
             Y(row, k, i) = fma(x, x, x);
           };
           parallel(50, [&](Index i) { body(0, i); });
           serial(50, [&](Index i) { body(1, i); });
         });
       }
     },
     2e-6},
};

const Case gemm_cases[] = {
    {"products of every type, plain and transposed",
     [](Program& p) {
       for (const DType type : {u8, i8, i16, i32, e4m3, e5m2, f16, bf16, f32, f64}) {
         const DType sum = type.is_integer() ? i32 : type == f64 ? f64 : f32;
         const auto small = [&](const Shape& shape, std::uint64_t seed) {
           return Data::random_integers(shape, type, seed, type == u8 ? 0 : -3, type == u8 ? 200 : 4);
         };
         Tensor A = p.in(small({19, 23}, 1)), B = p.in(small({23, 35}, 2)), Y = p.out({5, 19, 35}, sum);
         grid(1, [&](Index) {
           Shared a({19, 23}, type), b({23, 35}, type), bt({35, 23}, type), at({23, 19}, type),
               raw({23, 35}, type);
           copy(A, a), copy(B, b), copy(B, raw);
           parallel(23, 35, [&](Index i, Index j) { bt(j, i) = raw(i, j); });
           parallel(19, 23, [&](Index i, Index j) { at(j, i) = a(i, j); });
           Fragment c({19, 35}, sum, 0), d({19, 35}, sum, 0);
           gemm(a, b, c);
           copy(c, Y.slice(0));
           gemm(a, bt.T(), c);
           copy(c, Y.slice(1));
           gemm(at.T(), raw, c);
           copy(c, Y.slice(2));
           gemm(at.T(), bt.T(), d);
           copy(d, Y.slice(3));
           Fragment f({19, 23}, type);
           copy(a, f);
           Fragment part = d.slice(range(2, 12), range(0, 20));
           gemm(f.slice(range(1, 11), range(3, 13)), raw.slice(range(0, 10), range(9, 29)), part);
           copy(d, Y.slice(4));
         });
       }
     }},
};

// Each reduction along each dim, into running results.
void record_reductions(Program& p, DType type, DType into) {
  Data x = values({7, 3, 19}, type);
  const bool is_float = type.is_floating();
  if (is_float && type != e5m2 && type != e4m3) {
    x.set({2, 1, 4}, std::nan(""));
    x.set({3, 0, 0}, -HUGE_VAL);
    for (int k = 0; k < 19; ++k) x.set({5, 2, k}, std::nan(""));
  }
  Tensor X = p.in(x), Y0 = p.out({4, 3, 19}, into), Y1 = p.out({4, 7, 19}, into), Y2 = p.out({4, 7, 3}, into);
  using Reduction = void (*)(const Tile&, Fragment&, int, Loc);
  const Reduction kinds[] = {reduce_max, reduce_min, reduce_absmax, reduce_sum};
  grid(1, [&](Index) {
    Shared s({7, 3, 19}, type);
    copy(X, s);
    for (int row = 0; row < (is_float ? 3 : 4); ++row) {  // sums of floats depend on their order
      Fragment a({3, 19}, into, 5), b({7, 19}, into, 5), c({7, 3}, into, 5);
      kinds[row](s, a, 0, Loc::current()), copy(a, Y0.slice(row));
      kinds[row](s, b, 1, Loc::current()), copy(b, Y1.slice(row));
      kinds[row](s, c, 2, Loc::current()), copy(c, Y2.slice(row));
    }
  });
}

const Case reduction_cases[] = {
    {"extremes and integer sums",
     [](Program& p) {
       for_each_type([&](DType type) {
         if (!type.is_boolean()) record_reductions(p, type, compute_type(type));
       });
       record_reductions(p, f32, bf16);
       record_reductions(p, bf16, f64);
       record_reductions(p, i32, i8);
       record_reductions(p, i8, i64);
     }},
    {"new results, which start from the identity",
     [](Program& p) {
       for_each_type([&](DType type) {
         if (type.is_boolean()) return;
         const DType held = compute_type(type);
         Tensor X = p.in(values({5, 18}, type)), Y = p.out({3, 5}, held), Z = p.out({3, 18}, held);
         grid(1, [&](Index) {
           Fragment x = load(X, {5, 18});
           copy(reduce_max(x), Y.slice(0)), copy(reduce_max(x, 0), Z.slice(0));
           copy(reduce_min(x), Y.slice(1)), copy(reduce_min(x, 0), Z.slice(1));
           copy(reduce_absmax(x), Y.slice(2)), copy(reduce_absmax(x, 0), Z.slice(2));
         });
       });
     }},
    {"extremes where all is NaN or the result was",
     [](Program& p) {
       for (const DType type : {f32, f64}) {
         Tensor X = p.in(Data::full({3, 18}, type, std::nan(""))), N = p.in(values({3, 18}, type)),
                Y = p.out({8, 3}, type), Z = p.out({3, 18}, type);
         grid(1, [&](Index) {
           Fragment x = load(X, {3, 18}), n = load(N, {3, 18});
           copy(reduce_max(x), Y.slice(0)), copy(reduce_min(x), Y.slice(1)),
               copy(reduce_absmax(x), Y.slice(2));
           Fragment nan = load(X.slice(all, 0), {3}), low = load(X.slice(all, 1), {3}), some({3}, type, -3);
           reduce_max(n, nan), reduce_min(n, low), reduce_absmax(n, some);
           copy(nan, Y.slice(3)), copy(low, Y.slice(4)), copy(some, Y.slice(5));
           reduce_max(x, some), copy(some, Y.slice(6)), copy(reduce_max(x, 0), Y.slice(7, range(0, 1)).at(0));
           copy(x, Z);
         });
       }
     }},
    {"sums of floats",
     [](Program& p) {
       for (const DType type : {f16, bf16, f32, f64, e4m3}) {
         const DType held = compute_type(type);
         Tensor X = p.in(Data::random_integers({6, 37}, type, 8, -4, 5)), Y = p.out({3, 6}, held),
                Z = p.out({37}, held);
         grid(1, [&](Index) {
           Fragment x = load(X, {6, 37});
           copy(reduce_sum(x), Y.slice(0));
           Fragment total({6}, held, 2);
           reduce_sum(x, total);
           copy(total, Y.slice(1));
           Fragment transposed = x.T();
           reduce_sum(transposed, total, 0);
           copy(total, Y.slice(2));
           copy(reduce_sum(transposed, 1), Z);
         });
       }
     }},
    {"any and all",
     [](Program& p) {
       Data x = values({9, 21}, boolean);
       for (int j = 0; j < 21; ++j) x.set({2, j}, 0), x.set({4, j}, 1);
       Tensor X = p.in(x), Y = p.out({4, 9}, boolean), Z = p.out({2, 21}, boolean);
       grid(1, [&](Index) {
         Fragment b = load(X, {9, 21});
         copy(reduce_any(b), Y.slice(0)), copy(reduce_all(b), Y.slice(1));
         copy(reduce_any(b, 0), Z.slice(0)), copy(reduce_all(b, 0), Z.slice(1));
         Fragment some({9}, boolean, true), none({9}, boolean, false);
         reduce_all(b, some), reduce_any(b, none);
         copy(some, Y.slice(2)), copy(none, Y.slice(3));
       });
     }},
};

class CpuTypes : public OnEverySet {};
TEGULA_ON_EVERY_SET(CpuTypes);
TEST_P(CpuTypes, StorageAgreesWithTheInterpreter) { expect_agreement(storage_cases); }
TEST_P(CpuTypes, CastsAgreeWithTheInterpreter) { expect_agreement(cast_cases); }
TEST_P(CpuTypes, ArithmeticAgreesWithTheInterpreter) { expect_agreement(arithmetic_cases); }
TEST_P(CpuTypes, ProductsAgreeWithTheInterpreter) { expect_agreement(gemm_cases); }
TEST_P(CpuTypes, ReductionsAgreeWithTheInterpreter) { expect_agreement(reduction_cases); }

TEST(CudaDtypes, StorageCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(storage_cases); }
TEST(CudaDtypes, CastCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(cast_cases); }
TEST(CudaDtypes, ArithmeticCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(arithmetic_cases); }
TEST(CudaDtypes, GemmCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(gemm_cases); }
TEST(CudaDtypes, ReductionCasesAgreeWithTheInterpreter) { expect_agreement_on_cuda(reduction_cases); }

}  // namespace dtypes_test
}  // namespace tegula::codegen
