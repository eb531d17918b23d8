// Loops without roles whose tiles come some steps ahead, on both emulated GPUs beside the interpreter: copies
// are late there, and what is read before it is awaited is NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace copy_rings_test {

using namespace lang;
using tegula::Tensor;

constexpr std::chrono::seconds most_time{60};

struct RingCase {
  std::string name;
  std::function<lang::Kernel()> program;
  std::vector<Tensor> inputs;
  Shape shape;
  std::string pending = "";  // of a wait in the text: two less than slots
};

void PrintTo(const RingCase& c, std::ostream* out) { *out << c.name; }

Tensor normal(const Shape& shape, DType type, int seed) {
  return Tensor::random_normal(shape, type, static_cast<std::uint64_t>(seed));
}

// Each row by its root of squares, in two passes over the columns.
lang::Kernel norms(int stages) {
  return kernel("norms", [=] {
    Dim M("M"), N("N");
    lang::Tensor x = input("x", {M, N}, f32), out = output("out", {M, N}, f32);
    grid(ceildiv(M, 4), {.threads = 64}, [&](Index block) {
      Fragment sum({4}, f32, 0);
      pipelined(ceildiv(N, 64), {.stages = stages}, [&](Index i) {
        Shared tile({4, 64}, f32);
        copy(x.at(block * 4, i * 64), tile);
        Fragment squares({4, 64}, f32);
        parallel(squares, [&](Index r, Index c) { squares(r, c) = tile(r, c) * tile(r, c); });
        reduce_sum(squares, sum, 1);
      });
      pipelined(ceildiv(N, 32), {.stages = stages}, [&](Index i) {
        Shared tile({4, 32}, f32);
        copy(x.at(block * 4, i * 32), tile);
        Fragment y({4, 32}, f32);
        parallel(y, [&](Index r, Index c) { y(r, c) = tile(r, c) * rsqrt(sum(r) + 1); });
        copy(y, out.at(block * 4, i * 32));
      });
    });
  });
}

lang::Kernel gemv(DType type) {
  return kernel("gemv", [=] {
    Dim M("M"), K("K");
    lang::Tensor w = input("w", {M, K}, type), x = input("x", {K}, type), out = output("out", {M}, f32);
    grid(ceildiv(M, 8), {.threads = 128}, [&](Index block) {
      Fragment sum({8}, f32, 0);
      pipelined(ceildiv(K, 128), {.stages = 4}, [&](Index k) {
        Shared rows({8, 128}, type), factors({128}, type);
        copy(w.at(block * 8, k * 128), rows);
        copy(x.at(k * 128), factors);
        Fragment products({8, 128}, f32);
        parallel(products, [&](Index i, Index j) { products(i, j) = f32(rows(i, j)) * f32(factors(j)); });
        reduce_sum(products, sum, 1);
      });
      copy(sum, out.at(block * 8));
    });
  });
}

// By multiply-add or mma.sync; `b` by rows, or by columns, which no vector of memory holds.
lang::Kernel product(DType type, int rows, bool by_columns = false) {
  return kernel("product", [=] {
    Dim M("M"), N("N"), K("K");
    lang::Tensor a = input("a", {M, K}, type),
                 b = input("b", by_columns ? Extents{N, K} : Extents{K, N}, type),
                 c = output("c", {M, N}, f32);
    grid(ceildiv(N, 32), ceildiv(M, rows), {.threads = 64}, [&](Index x, Index y) {
      Fragment sum({rows, 32}, f32, 0);
      pipelined(ceildiv(K, 16), {.stages = 3}, [&](Index k) {
        Shared u({rows, 16}, type), v({16, 32}, type);
        copy(a.at(y * rows, k * 16), u);
        if (by_columns)
          copy(b.at(x * 32, k * 16), v.T());
        else
          copy(b.at(k * 16, x * 32), v);
        gemm(u, v, sum);
      });
      copy(sum, c.at(y * rows, x * 32));
    });
  });
}

// Few queries at keys that a list names; pages that are not there are left out.
lang::Kernel decode() {
  return kernel("decode", [] {
    Dim N("N"), P("P");
    lang::Tensor q = input("q", {16, 64}, bf16), keys = input("keys", {N, 64}, bf16),
                 pages = input("pages", {P}, i32), out = output("out", {16, 64}, f32);
    grid(1, {.threads = 64}, [&](Index) {
      Shared query({16, 64}, bf16);
      copy(q.at(0, 0), query);
      Fragment sum({16, 64}, f32, 0);
      pipelined(P, {.stages = 3}, [&](Index p) {
        when(pages(p) >= 0, [&] {
          Shared k({32, 64}, bf16);
          Expr first = pages(p) * 32;
          gather(
              keys, [&](Index i) { return first + 31 - i; }, k);
          Fragment s({16, 32}, f32, 0);
          gemm(query, k.T(), s);
          gemm(s.to(bf16), k, sum);
        });
      });
      copy(sum, out.at(0, 0));
    });
  });
}

// Running sums along the rows: what a step adds to comes from the step before.
lang::Kernel scan() {
  return kernel("scan", [] {
    Dim N("N");
    lang::Tensor x = input("x", {N, 64}, f32), out = output("out", {N, 64}, f32);
    grid(1, {.threads = 64}, [&](Index) {
      Fragment carry({64}, f32, 0);
      pipelined(ceildiv(N, 8), [&](Index i) {
        Shared tile({8, 64}, f32);
        copy(x.at(i * 8, 0), tile);
        serial(8, [&](Index r) {
          parallel(carry, [&](Index c) {
            carry(c) = carry(c) + tile(r, c);
            out(i * 8 + r, c) = carry(c);
          });
        });
      });
    });
  });
}

// Operands that threads make of bytes.
lang::Kernel dequantisation() {
  return kernel("dequantisation", [] {
    Dim M("M"), N("N"), K("K");
    lang::Tensor a = input("a", {M, K}, bf16), w = input("w", {K, N}, i8), scale = input("scale", {N}, f32),
                 c = output("c", {M, N}, f32);
    grid(ceildiv(N, 64), ceildiv(M, 16), {.threads = 64}, [&](Index x, Index y) {
      Fragment sum({16, 64}, f32, 0);
      pipelined(ceildiv(K, 32), {.stages = 3}, [&](Index k) {
        Shared u({16, 32}, bf16), bytes({32, 64}, i8), v({32, 64}, bf16);
        copy(a.at(y * 16, k * 32), u);
        copy(w.at(k * 32, x * 64), bytes);
        parallel(32, 64, [&](Index i, Index j) { v(i, j) = f32(bytes(i, j)) * scale(x * 64 + j); });
        gemm(u, v, sum);
      });
      copy(sum, c.at(y * 16, x * 64));
    });
  });
}

// A ring in the steps of another one, and a loop after it that takes the same memory.
lang::Kernel nested() {
  return kernel("nested", [] {
    Dim M("M"), N("N");
    lang::Tensor x = input("x", {M, 64}, f32), y = input("y", {N, 64}, f32),
                 out = output("out", {M, 64}, f32);
    grid(1, {.threads = 64}, [&](Index) {
      Fragment last({64}, f32, 0);
      pipelined(M, {.stages = 2}, [&](Index m) {
        Shared row({1, 64}, f32);
        copy(x.at(m, 0), row);
        Fragment sum({64}, f32, 0);
        pipelined(m, {.stages = 3}, [&](Index n) {
          Shared other({1, 64}, f32);
          copy(y.at(n, 0), other);
          parallel(sum, [&](Index i) { sum(i) = sum(i) + row(0, i) * other(0, i); });
        });
        parallel(sum, [&](Index i) { out(m, i) = sum(i); });
      });
      pipelined(N, {.stages = 4}, [&](Index n) {
        Shared other({1, 64}, f32);
        copy(y.at(n, 0), other);
        parallel(last, [&](Index i) { last(i) = last(i) + other(0, 63 - i); });
      });
      parallel(last, [&](Index i) { out(0, i) = last(i); });
    });
  });
}

// Left when a number is met: tiles of the steps after it are on their way.
lang::Kernel left_early() {
  return kernel("left_early", [] {
    Dim N("N");
    lang::Tensor x = input("x", {N, 64}, f32), stop = input("stop", {N}, i32), out = output("out", {64}, f32);
    grid(1, {.threads = 64}, [&](Index) {
      Fragment sum({64}, f32, 0);
      serial(3, [&](Index) {
        pipelined(N, {.stages = 4}, [&](Index n) {
          break_if(stop(n) > 0);
          Shared row({1, 64}, f32);
          copy(x.at(n, 0), row);
          parallel(sum, [&](Index i) { sum(i) = sum(i) + row(0, 63 - i); });
        });
      });
      copy(sum, out);
    });
  });
}

// Loops over tensors and tiles at once are the consumers' alone, so that there are no roles; the barriers of
// the loop come before its last product, and what follows it takes the memory of the slots.
lang::Kernel memory_after_the_loop() {
  return kernel("memory_after_the_loop", [] {
    lang::Tensor rows = input("rows", {64, 64}, bf16), out = output("out", {64, 40}, f32, {.zero = true});
    grid(1, {.threads = 128}, [&](Index) {
      Shared left({64, 64}, bf16), places({8, 4}, i32);
      copy(rows.at(0, 0), left);
      Fragment sum({64, 32}, f32, 0);
      parallel(8, 4, [&](Index i, Index j) {
        out(i + 8, j + 32) = 1.f;
        places(i, j) = i + j;
      });
      pipelined(2, {.stages = 3}, [&](Index) {
        Shared right({32, 64}, bf16), own({32, 64}, bf16);
        gather(
            rows, [&](Index) { return places(3, 2); }, right);
        parallel(own, [&](Index i, Index j) { own(i, j) = f32(i - j) * 0.25f; });
        gemm(left.slice(all, range(8, 40)), own.slice(all, range(8, 40)).T(), sum);
        gemm(left, right.T(), sum);
      });
      copy(sum, out.at(0, 0));
      Shared one({5, 8}, f32);
      parallel(5, 8, [&](Index i, Index j) { one(i, j) = max(sum(34, 29), 0.f); });
      copy(one, out.at(0, 32));
      parallel(3, [&](Index i) { out(i + 5, 32) = f32(left(0, i)); });
    });
  });
}

std::vector<RingCase> ring_cases() {
  std::vector<RingCase> all;
  for (const int columns : {0, 1, 64, 130, 512})
    all.push_back({fmt::format("norms_of_{}", columns),
                   [] { return norms(3); },
                   {normal({6, columns}, f32, 1)},
                   {6, columns},
                   "1"});
  all.push_back({"norms_of_two_slots", [] { return norms(2); }, {normal({6, 300}, f32, 1)}, {6, 300}, "0"});
  all.push_back({"norms_of_chosen_slots", [] { return norms(0); }, {normal({6, 300}, f32, 1)}, {6, 300}});
  for (const auto& [name, type] : {std::pair{"f32", f32}, {"bf16", bf16}, {"f64", f64}})
    for (const int k : {300, 1024})
      all.push_back({fmt::format("gemv_{}_{}", name, k),
                     [type = type] { return gemv(type); },
                     {normal({11, k}, type, 1), normal({k}, type, 2)},
                     {11},
                     "2"});
  for (const auto& [name, type] : {std::pair{"f32", f32}, {"bf16", bf16}})
    for (const int k : {3, 45, 64})
      all.push_back({fmt::format("product_{}_{}", name, k),
                     [type = type] { return product(type, 32); },
                     {normal({40, k}, type, 1), normal({k, 50}, type, 2)},
                     {40, 50},
                     "1"});
  all.push_back({"product_f32_by_columns",
                 [] { return product(f32, 32, true); },
                 {normal({40, 50}, f32, 1), normal({50, 50}, f32, 2)},
                 {40, 50},
                 "1"});
  all.push_back({"decode",
                 decode,
                 {normal({16, 64}, bf16, 1), normal({200, 64}, bf16, 2),
                  Tensor::from<std::int32_t>({2, -1, 0, 6, 5, -1, 1}, {7})},
                 {16, 64},
                 "1"});
  all.push_back({"scan", scan, {normal({45, 64}, f32, 1)}, {45, 64}});
  all.push_back(
      {"dequantisation",
       dequantisation,
       {normal({20, 150}, bf16, 1), Tensor::random_integers({150, 80}, i8, 3, -8, 8), normal({80}, f32, 2)},
       {20, 80},
       "1"});
  all.push_back({"nested", nested, {normal({7, 64}, f32, 1), normal({9, 64}, f32, 2)}, {7, 64}, "1"});
  all.push_back({"memory_after_the_loop", memory_after_the_loop, {normal({64, 64}, bf16, 1)}, {64, 40}});
  all.push_back({"left_early",
                 left_early,
                 {normal({9, 64}, f32, 1), Tensor::from<std::int32_t>({0, 0, 0, 0, 0, 1, 0, 0, 0}, {9})},
                 {64},
                 "2"});
  return all;
}

class CopyRingsEach : public ::testing::TestWithParam<RingCase> {};

TEST_P(CopyRingsEach, BringWhatTheirStepsRead) {
  const RingCase& c = GetParam();
  const Watchdog watchdog(c.name, most_time);
  const lang::Kernel program = c.program();
  for (const int architecture : {90, 80}) {
    const std::string text = codegen::print_cuda(Signature(program.ir()), {architecture}).text;
    EXPECT_NE(text.find(fmt::format("tg::wait_copies<{}", c.pending)), std::string::npos) << text;
  }
  expect_as_interpreted(program, c.inputs, c.shape, 2e-2,
                        {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
}

INSTANTIATE_TEST_SUITE_P(Table, CopyRingsEach, ::testing::ValuesIn(ring_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace copy_rings_test
}  // namespace tegula::emulation
