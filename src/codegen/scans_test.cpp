// Scans, places of extremes and random numbers on all executors, beside the interpreter; and these beside
// plain loops.
#include <cmath>

#include "codegen/cuda/testing/texts.hpp"
#include "codegen/testing/compare.hpp"
#include "emulation/testing/compared.hpp"

namespace tegula::codegen {
namespace scans_test {

using namespace lang;
using lang::Tensor;

// Small whole numbers, of which sums are exact in any order.
Data wholes(const Shape& shape, DType type, std::uint64_t seed = 1) {
  return Data::random_integers(shape, type, seed, type.is_unsigned() ? 0 : -4, 5);
}

using Scan = Fragment (*)(const Tile&, ScanOptions, Loc);
constexpr Scan scans[] = {scan_sum, scan_max, scan_min};

// Along each dimension of a tile in either memory: all ways, or each `step`-th of them.
void record(Program& p, const Shape& shape, DType type, int threads, int step = 1) {
  const int rank = static_cast<int>(shape.size());
  const auto extents = [&](std::int64_t first) {
    Shape all = shape;
    all.insert(all.begin(), first);
    return all;
  };
  std::vector<int> tile;
  for (const std::int64_t n : shape) tile.push_back(static_cast<int>(n));
  Tensor X = p.in(wholes(shape, type)), Y = p.out(extents((rank * 12 + step - 1) / step), compute_type(type));
  grid(1, {.threads = threads}, [&](Index) {
    Fragment x(tile, type, Loc::current());
    copy(X, x);
    Shared s(tile, type, Loc::current());
    copy(X, s);
    int row = 0, way = 0;
    for (int dim = 0; dim < rank; ++dim)
      for (const bool exclusive : {false, true})
        for (const bool reverse : {false, true})
          for (const Scan scan : scans) {
            if (way++ % step != 0) continue;
            const ScanOptions options{.dim = dim, .exclusive = exclusive, .reverse = reverse};
            const Tile& from = row % 2 == 0 ? static_cast<const Tile&>(x) : s;
            copy(scan(from, options, Loc::current()), Y.slice(row++));
          }
  });
}

// Segments that begin at some elements, the first or not.
void record_segments(Program& p, int rows, int columns, DType type, int threads) {
  Tensor X = p.in(wholes({rows, columns}, type)), Y = p.out({8, rows, columns}, compute_type(type));
  Tensor S = p.in(Data::random_integers({rows, columns}, boolean, 3, 0, 2));
  grid(1, {.threads = threads}, [&](Index) {
    Fragment x({rows, columns}, type), starts({rows, columns}, boolean);
    copy(X, x), copy(S, starts);
    int row = 0;
    for (const int dim : {0, 1})
      for (const bool exclusive : {false, true})
        for (const bool reverse : {false, true})
          copy(scan_sum(x, starts, {.dim = dim, .exclusive = exclusive, .reverse = reverse}), Y.slice(row++));
  });
}

const Case scan_cases[] = {
    {"several types",
     [](Program& p) {
       for (const DType type : {f32, bf16, e4m3, i32, u8, i64, f64}) record(p, {5, 67}, type, 32, 7);
     }},
    {"rows over registers, lanes and warps",
     [](Program& p) {
       record(p, {2, 300}, f32, 64);
       for (const int threads : {32, 256})
         record(p, {2, 300}, f32, threads, 5), record(p, {1024}, f32, threads, 5);
       record(p, {3, 4, 33}, i32, 128, 5);
       record(p, {1, 1}, f32, 32);
       record(p, {130, 8}, f32, 256, 5);
     }},
    {"segments",
     [](Program& p) {
       record_segments(p, 3, 520, f32, 128);
       record_segments(p, 70, 9, i32, 256);
       record_segments(p, 4, 64, bf16, 32);
     }},
    {"sums of products",
     [](Program& p) {
       Tensor A = p.in(wholes({64, 64}, bf16)), Y = p.out({2, 64, 64}, f32);
       grid(1, {.threads = 128}, [&](Index) {
         Shared a({64, 64}, bf16);
         copy(A, a);
         Fragment c({64, 64}, f32, 0);
         gemm(a, a.T(), c);
         copy(scan_sum(c), Y.slice(0));
         copy(scan_sum(c, {.dim = 0, .reverse = true}), Y.slice(1));
       });
     }},
    {"places of extremes",
     [](Program& p) {
       for (const DType type : {f32, bf16, i32, u8}) {
         Data x = wholes({6, 40}, type);
         if (type.is_floating())
           for (int j = 0; j < 40; ++j) x.set({2, j}, std::nan("")), x.set({3, j % 7}, -HUGE_VAL);
         Tensor X = p.in(x), rows = p.out({2, 6}, i32), columns = p.out({2, 40}, i32);
         grid(1, [&](Index) {
           Fragment f({6, 40}, type);
           copy(X, f);
           copy(reduce_argmax(f), rows.slice(0)), copy(reduce_argmin(f), rows.slice(1));
           copy(reduce_argmax(f, 0), columns.slice(0)), copy(reduce_argmin(f, 0), columns.slice(1));
         });
       }
     }},
    {"places in vectors",
     [](Program& p) {
       Tensor X = p.in(Data::random_normal({3, 70}, f32, 9)), places = p.out({3, 2}, i32);
       grid(3, [&](Index row) {
         Fragment f = load(X.slice(row), {70});
         parallel(f,
                  [&](Index i) { f(i) = select(row == 0 || (row == 1 && i < 5), inf - inf, f(i)); });  // NaN
         Shared s({70}, f32);
         copy(f, s);
         places(row, 0) = reduce_argmax(f).scalar();
         places(row, 1) = reduce_argmin(s).scalar();
       });
     }},
    {"random words",
     [](Program& p) {
       Tensor words = p.out({4, 100}, i64), numbers = p.out({100}, f32);
       Expr seed = p.scalar(static_cast<std::uint32_t>(77), u32);
       grid(1, [&](Index) {
         parallel(100, [&](Index i) {
           const RandomWords r = philox({u32(i), 0, 0, 0xffffffffu}, {seed, 3});
           words(0, i) = i64(r.x), words(1, i) = i64(r.y), words(2, i) = i64(r.z), words(3, i) = i64(r.w);
           numbers(i) = uniform(r.x);
         });
       });
     }},
    {"powers and the error function",
     [](Program& p) {
       for (const DType type : {f32, f64}) {
         Tensor X = p.in(Data::random_uniform({60}, type, 5, -6, 6)), Y = p.out({3, 60}, type);
         grid(1, [&](Index) {
           parallel(60, [&](Index i) {
             Expr x = X(i);
             Y(0, i) = erf(x);
             Y(1, i) = pow(abs(x), x);
             Y(2, i) = pow(x, 3);
           });
         });
       }
     },
     2e-6},
};

class CpuScans : public OnEverySet {};
TEST_P(CpuScans, AgreeWithTheInterpreter) { expect_agreement(scan_cases); }
TEGULA_ON_EVERY_SET(CpuScans);

TEST(CudaScans, AgreeInCudaText) {
  expect_agreement_on_cuda(scan_cases);
  expect_agreement(scan_cases, tegula::Target::emulated_sm90());
}

// The definition beside loops of C++: running sums from either side, with and without the element.
TEST(Scans, AreRunningSums) {
  const Data x = Data::random_normal({3, 50}, f64, 1);
  const std::vector<double> given = x.values<double>();
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      const Kernel program = kernel("sums", [&] {
        Tensor X = input("X", {3, 50}, f64), Y = output("Y", {3, 50}, f64);
        grid(1, [&](Index) {
          const Fragment f = load(X.at(0, 0), {3, 50});
          copy(scan_sum(f, {.exclusive = exclusive, .reverse = reverse}), Y);
        });
      });
      const Data y = Data::empty({3, 50}, f64);
      compile(program, tegula::Target::interpreter())(x, y);
      const std::vector<double> found = y.values<double>();
      for (std::size_t row = 0; row < 3; ++row) {
        double sum = 0;
        for (std::size_t step = 0; step < 50; ++step) {
          const std::size_t at = row * 50 + (reverse ? 49 - step : step);
          EXPECT_EQ(found[at], exclusive ? sum : sum + given[at]);
          sum += given[at];
        }
      }
    }
}

// Answers of the authors' implementation (kat_vectors of Random123).
TEST(Random, IsPhilox) {
  const Kernel program = kernel("words", [] {
    Tensor out = output("out", {2, 4}, i64);
    grid(1, [&](Index) {
      const RandomWords zeros = philox({0, 0, 0, 0}, {0, 0});
      out(0, 0) = i64(zeros.x), out(0, 1) = i64(zeros.y), out(0, 2) = i64(zeros.z), out(0, 3) = i64(zeros.w);
      const Expr ones = u32(0xffffffffu);
      const RandomWords full = philox({ones, ones, ones, ones}, {ones, ones});
      out(1, 0) = i64(full.x), out(1, 1) = i64(full.y), out(1, 2) = i64(full.z), out(1, 3) = i64(full.w);
    });
  });
  const Data out = Data::empty({2, 4}, i64);
  compile(program, tegula::Target::interpreter())(out);
  EXPECT_EQ(out.values<std::int64_t>(),
            (std::vector<std::int64_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8, 0x408f276d, 0x41c83b0e,
                                       0xa20bc7c6, 0x6d5451fd}));
}

// Shuffles along a row that one warp has, and one exchange through shared memory where several have it.
TEST(CudaScans, StayInRegisters) {
  const auto text = [](int rows, int columns) {
    const Kernel program = kernel("sums", [&] {
      Tensor X = input("X", {rows, columns}, f32), Y = output("Y", {rows, columns}, f32);
      grid(1, {.threads = 128}, [&](Index) { copy(scan_sum(load(X.at(0, 0), {rows, columns})), Y); });
    });
    return print_cuda(Signature(program.ir()), {90}).text;
  };
  EXPECT_NE(text(4, 128).find("tg::scan_lanes<"), std::string::npos);
  EXPECT_EQ(text(4, 128).find("tg::scan_parts<"), std::string::npos);
  EXPECT_EQ(text(4, 128).find("_staged"), std::string::npos);
  EXPECT_NE(text(1, 512).find("tg::scan_parts<"), std::string::npos);
}

// Sums of products that a producer loads for: along rows and, among warps and warp groups, along columns.
TEST(CudaScans, StandBehindProductsOfRoles) {
  const Kernel program = kernel("scanned_product", [] {
    Dim k("k");
    k.multiple_of(8);
    Tensor A = input("A", {128, k}, bf16), B = input("B", {128, k}, bf16),
           C = output("C", {2, 128, 128}, f32);
    grid(2, [&](Index block) {
      Fragment sum({128, 128}, f32, 0);
      pipelined(ceildiv(k, 64), [&](Index step) {
        Shared a({128, 64}, bf16), b({128, 64}, bf16);
        copy(A.at(0, step * 64), a), copy(B.at(0, step * 64), b);
        gemm(a, b.T(), sum);
      });
      when(block == 0, [&] { copy(scan_sum(sum), C.slice(0)); });
      when(block == 1, [&] { copy(scan_sum(sum, {.dim = 0, .reverse = true}), C.slice(1)); });
    });
  });
  EXPECT_NE(emulation::text_with_roles(program).find("tg::scan_lanes<"), std::string::npos);
  emulation::expect_as_interpreted(program, {wholes({128, 128}, bf16, 1), wholes({128, 128}, bf16, 2)},
                                   {2, 128, 128}, 0);
}

}  // namespace scans_test
}  // namespace tegula::codegen
