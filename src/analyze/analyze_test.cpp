// Counts beside closed forms, and predictions that follow from them.
#include "tegula/analyze.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/testing/expect_error.hpp"
#include "tegula/error.hpp"
#include "tegula/lang.hpp"

namespace tegula {
namespace {

using namespace lang;
using Tensor = lang::Tensor;

lang::Kernel product(DType type, bool causal = false) {
  return kernel("product", [&] {
    Dim M("M"), N("N"), K("K");
    Tensor A = input("A", {M, K}, type), B = input("B", {K, N}, type), C = output("C", {M, N}, f32);
    grid(ceildiv(N, 64), ceildiv(M, 64), [&](Index bx, Index by) {
      Fragment acc({64, 64}, f32, 0);
      pipelined(causal ? by + 1 : Expr(ceildiv(K, 64)), [&](Index step) {
        Shared As({64, 64}, type), Bs({64, 64}, type);
        copy(A.at(by * 64, step * 64), As);
        copy(B.at(step * 64, bx * 64), Bs);
        gemm(As, Bs, acc);
      });
      copy(acc, C.at(by * 64, bx * 64));
    });
  });
}

TEST(Analyze, CountsProducts) {
  struct {
    const char* what;
    DType type;
    double m, n, k;
    bool causal;
    double blocks_of_steps;  // 64 × 64 × 64
  } table[] = {
      {"full tiles", bf16, 512, 256, 1024, false, 8 * 4 * 16},
      {"overhanging tiles", bf16, 500, 200, 1000, false, 8 * 4 * 16},
      {"steps by the block", bf16, 1024, 64, 1024, true, 16 * 17 / 2},
      {"more blocks than are counted", f32, 64 * 300, 64, 64 * 300, true, 300 * 301 / 2},
  };
  for (auto& row : table) {
    const Analysis a =
        analyze(product(row.type, row.causal), {{"M", row.m}, {"N", row.n}, {"K", row.k}}, machine("h100"));
    const double flops = 2 * 64.0 * 64 * 64 * row.blocks_of_steps, bytes = row.type.bytes();
    const double outputs = std::ceil(row.m / 64) * std::ceil(row.n / 64) * 64 * 64 * 4;
    const std::string type(row.type.name());
    EXPECT_NEAR(a.flops.at(type), flops, flops / 100) << row.what;
    EXPECT_NEAR(a.copied_bytes, 2 * 64 * 64 * bytes * row.blocks_of_steps + outputs, a.copied_bytes / 100)
        << row.what;
    EXPECT_EQ(a.memory_bytes, (row.m * row.k + row.k * row.n) * bytes + row.m * row.n * 4) << row.what;
    EXPECT_NEAR(a.intensity, flops / a.memory_bytes, a.intensity / 100) << row.what;
    EXPECT_TRUE(a.notes.empty()) << row.what;
  }
}

TEST(Analyze, CountsSpecialFunctionsAndPrecisions) {
  const auto counted = [](const char* name, const std::function<Expr(const Expr&)>& of) {
    const lang::Kernel k = kernel(name, [&] {
      Dim N("N");
      Tensor X = input("X", {N}, f32), Y = output("Y", {N}, f32);
      grid(ceildiv(N, 1024), [&](Index i) {
        Fragment x({1024}, f32);
        copy(X.at(i * 1024), x);
        parallel(x, [&](Index j) { x(j) = of(x(j)); });
        copy(x, Y.at(i * 1024));
      });
    });
    return analyze(k, {{"N", 1 << 20}}, machine("h100")).flops;
  };
  const double n = 1 << 20;
  auto softplus = counted("softplus", [](const Expr& x) { return log(1 + exp(x)); });
  EXPECT_EQ(softplus["special"], 2 * n);
  EXPECT_EQ(softplus["other"], n);
  EXPECT_EQ(counted("scaled", [](const Expr& x) { return x * 2; })["special"], 0);
  EXPECT_EQ(counted("power", [](const Expr& x) { return pow(x, 3.f); })["special"], 2 * n);
  EXPECT_EQ(counted("quotient", [](const Expr& x) { return 1 / x; })["special"], n);

  const auto precise = [](Precision precision) {
    const lang::Kernel k = kernel("precise", [&] {
      Tensor A = input("A", {64, 64}, f32), B = input("B", {64, 64}, f32), C = output("C", {64, 64}, f32);
      grid(1, [&](Index) {
        Fragment acc({64, 64}, f32, 0);
        Shared As({64, 64}, f32), Bs({64, 64}, f32);
        copy(A.at(0, 0), As);
        copy(B.at(0, 0), Bs);
        gemm(As, Bs, acc, {.precision = precision});
        copy(acc, C.at(0, 0));
      });
    });
    return analyze(k, {}, machine("h100")).flops;
  };
  EXPECT_EQ(precise(Precision::ieee)["f32"], 2.0 * 64 * 64 * 64);
  EXPECT_EQ(precise(Precision::tf32)["tf32"], 2.0 * 64 * 64 * 64);
  EXPECT_EQ(precise(Precision::tf32x3)["tf32x3"], 2.0 * 64 * 64 * 64);
  EXPECT_EQ(machine("h100").rate_of("tf32"), 3 * machine("h100").rate_of("tf32x3"));
}

TEST(Analyze, PredictsByWhatLimits) {
  const std::map<std::string, double> large{{"M", 8192}, {"N", 8192}, {"K", 8192}},
      small{{"M", 64}, {"N", 64}, {"K", 64}};
  const Machine &h100 = machine("h100"), &h200 = machine("h200");
  const Analysis full = analyze(product(bf16), large, h100);
  EXPECT_EQ(full.grids.size(), 1u);
  EXPECT_EQ(full.grids[0].blocks, 128 * 128);
  EXPECT_GE(full.seconds, 2 * 8192.0 * 8192 * 8192 / h100.flops_16);
  EXPECT_EQ(analyze(product(bf16), small, h100).bound, "launch");
  EXPECT_GT(analyze(product(f32), large, h100).seconds, full.seconds);

  const lang::Kernel copied = kernel("copied", [] {
    Dim N("N");
    Tensor X = input("X", {N}, f32), Y = output("Y", {N}, f32);
    grid(ceildiv(N, 1024), [&](Index i) {
      Fragment x({1024}, f32);
      copy(X.at(i * 1024), x);
      copy(x, Y.at(i * 1024));
    });
  });
  const double n = 1 << 28;
  for (const Machine* own : {&h100, &h200}) {
    const Analysis a = analyze(copied, {{"N", n}}, *own);
    EXPECT_EQ(a.bound, "memory");
    EXPECT_NEAR(a.seconds, 8 * n / own->memory_bytes, 1e-5);
  }
  EXPECT_TRUE(analyze(copied, {{"N", n}}, machine("cpu")).grids[0].threads == 0);
}

// What a processor holds is limited by shared memory, registers or threads, whichever is used up first.
TEST(Analyze, CountsResidentBlocks) {
  const auto tiles = [](int rows, int columns, int stages) {
    return kernel("tiles", [&] {
      Dim N("N");
      Tensor X = input("X", {N, columns}, f32), Y = output("Y", {N, columns}, f32);
      grid(ceildiv(N, rows), {.threads = 128}, [&](Index i) {
        Fragment y({rows, columns}, f32, 0);
        const auto add = [&](Index) {
          Shared x({rows, columns}, f32);
          copy(X.at(i * rows, 0), x);
          parallel(y, [&](Index r, Index c) { y(r, c) += x(r, c); });
        };
        if (stages == 0)
          copy(X.at(i * rows, 0), y);
        else
          pipelined(8, {.stages = stages}, add);
        copy(y, Y.at(i * rows, 0));
      });
    });
  };
  struct {
    const char* what;
    int rows, columns, stages, least_registers, blocks;
  } table[] = {
      {"threads, of which 2048 fit", 4, 32, 1, 16, 16},
      {"registers", 64, 128, 0, 72, 6},
      {"shared memory", 16, 256, 4, 40, 3},
  };
  for (auto& row : table) {
    const Analysis a = analyze(tiles(row.rows, row.columns, row.stages), {{"N", 1 << 20}}, machine("h100"));
    const Analysis::Grid& grid = a.grids.at(0);
    EXPECT_EQ(a.kernel, "tiles");
    EXPECT_GE(grid.registers, row.least_registers) << row.what << "\n" << a.text();
    EXPECT_EQ(grid.blocks_per_processor, row.blocks) << row.what << "\n" << a.text();
    EXPECT_NEAR(grid.occupancy, row.blocks * 128 / 2048.0, 1e-9) << row.what;
  }
}

TEST(Analyze, SaysWhatIsNotKnown) {
  const lang::Kernel chosen = kernel("chosen", [] {
    Dim N("N");
    Tensor counts = input("counts", {N}, i32), Y = output("Y", {N}, f32);
    grid(N, [&](Index i) {
      Var sum(f32(0));
      serial(counts(i), [&](Index j) { sum = sum + f32(j); });
      Y(i) = sum;
    });
  });
  const Analysis a = analyze(chosen, {{"N", 100}}, machine("h100"));
  ASSERT_EQ(a.notes.size(), 1u);
  EXPECT_NE(a.notes[0].find("depend on elements of tensors"), std::string::npos);
  EXPECT_NE(a.text().find(a.notes[0]), std::string::npos);
  EXPECT_ERROR(ArgumentError, "needs the values of N", analyze(chosen, {}, machine("h100")));
  for (const double wrong : {-4.0, 4.5, std::nan("")})
    EXPECT_ERROR(ArgumentError, "give a whole number from 0 on",
                 analyze(chosen, {{"N", wrong}}, machine("h100")));
  EXPECT_ERROR(ArgumentError, "there are h100, h200, a100, cpu", machine("b200"));
}

}  // namespace
}  // namespace tegula
