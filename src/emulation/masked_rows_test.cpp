// Rows whose length the threads of a block do not divide: pieces of 16 bytes exist or do not, in registers
// and in tensors. Numbers that steps read one after the other. Both on the emulated GPUs beside the
// interpreter.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace masked_rows_test {

using namespace lang;
using tegula::Tensor;

constexpr std::chrono::seconds most_time{60};

struct MaskedCase {
  std::string name;
  std::function<lang::Kernel()> program;
  std::vector<Tensor> inputs;
  Shape shape;
  std::vector<std::string> wanted = {}, unwanted = {};  // in the text for Hopper
};
void PrintTo(const MaskedCase& c, std::ostream* out) { *out << c.name; }

Tensor normal(const Shape& shape, DType type, int seed) {
  return Tensor::random_normal(shape, type, static_cast<std::uint64_t>(seed));
}

struct WholeRows {
  int n, threads, rows = 1;
  DType type = bf16;
};

// Each row less its largest element, divided by the sum of its squares.
lang::Kernel whole_rows(const WholeRows& c) {
  return kernel("whole_rows", [=] {
    Dim M("M");
    lang::Tensor x = input("x", {M, c.n}, c.type), w = input("w", {c.n}, c.type),
                 out = output("out", {M, c.n}, f32);
    grid(ceildiv(M, c.rows), {.threads = c.threads}, [&](Index block) {
      Fragment own = load(x.at(block * c.rows), {c.rows, c.n}, f32), weight = load(w.at(0), {c.n}, f32);
      Fragment most = reduce_max(own);
      Fragment sum = reduce_sum(map(own, [&](Index i, Index j) { return own(i, j) * own(i, j); }));
      parallel(own, [&](Index i, Index j) { own(i, j) = (own(i, j) - most(i)) / (sum(i) + 1) * weight(j); });
      copy(own, out.at(block * c.rows));
    });
  });
}

// Quotients of integers, of which registers that hold no element have none.
lang::Kernel quotients() {
  return kernel("quotients", [] {
    Dim M("M");
    lang::Tensor a = input("a", {M, 40}, i32), b = input("b", {M, 40}, i32),
                 out = output("out", {M, 40}, f32);
    grid(M, {.threads = 32}, [&](Index row) {
      Fragment x({40}, i32), y({40}, i32), quotient({40}, f32);
      copy(a.slice(row), x);
      copy(b.slice(row), y);
      parallel(x, [&](Index j) { x(j) = x(j) / y(j); });
      parallel(x, [&](Index j) { quotient(j) = f32(x(j)); });
      copy(quotient, out.slice(row));
    });
  });
}

// Rows of any length in tiles of 64 columns, the last of which is cut.
lang::Kernel cut_tiles(DType type) {
  return kernel("cut_tiles", [=] {
    Dim M("M"), N("N");
    lang::Tensor x = input("x", {M, N}, type), out = output("out", {M, N}, f32);
    grid(ceildiv(N, 64), ceildiv(M, 2), {.threads = 32}, [&](Index j, Index i) {
      Fragment own = load(x.at(i * 2, j * 64), {2, 64}, f32);
      parallel(own, [&](Index r, Index c) { own(r, c) = own(r, c) * 2 + 1; });
      copy(own, out.at(i * 2, j * 64));
    });
  });
}

// The halves of rows, which end where a view does, multiplied in tiles of 64 columns. A half is promised to
// be a multiple of some number.
lang::Kernel halves(int multiple) {
  return kernel("halves", [=] {
    Dim M("M"), N("N");
    N.multiple_of(multiple);
    lang::Tensor x = input("x", {M, N * 2}, bf16), out = output("out", {M, N}, f32);
    const lang::Tensor left = x.slice(all, range(0, N)), right = x.slice(all, range(N, N * 2));
    grid(ceildiv(N, 64), ceildiv(M, 2), {.threads = 32}, [&](Index j, Index i) {
      Fragment own = load(left.at(i * 2, j * 64), {2, 64}, f32);
      Fragment other = load(right.at(i * 2, j * 64), {2, 64}, f32);
      parallel(own, [&](Index r, Index c) { own(r, c) = own(r, c) * other(r, c) + 1; });
      copy(own, out.at(i * 2, j * 64));
    });
  });
}

// Columns of a row up to a number that the row has.
lang::Kernel limited() {
  return kernel("limited", [] {
    Dim M("M"), N("N");
    lang::Tensor x = input("x", {M, N}, bf16), ends = input("ends", {M}, i32),
                 out = output("out", {M, N}, f32);
    grid(ceildiv(N, 64), M, {.threads = 32}, [&](Index j, Index row) {
      Fragment own = load(x.slice(row, range(0, ends(row))).at(j * 64), {64}, f32);
      parallel(own, [&](Index c) { own(c) = own(c) * 2 + 1; });
      copy(own, out.slice(row).at(j * 64));
    });
  });
}

enum class Numbers { of_rows, beside, written };

// Rows times numbers that blocks find step by step.
lang::Kernel scaled_rows(Numbers numbers) {
  return kernel("scaled_rows", [=] {
    Dim M("M");
    lang::Tensor x = input("x", {M, 64}, f32), factors = input("factors", {M}, f32);
    lang::Tensor of_step = workspace("of_step", {M}, f32), out = output("out", {M, 64}, f32);
    grid(3, {.threads = 32}, [&](Index block) {
      Fragment sum({64}, f32, 0);
      pipelined(ceildiv(M - block, 3), {.stages = 2}, [&](Index step) {
        Expr row = block + step * 3;
        if (numbers == Numbers::written) of_step(row) = factors(row) * 2;
        Expr factor = numbers == Numbers::beside    ? factors(row) + factors(step)
                      : numbers == Numbers::written ? of_step(row)
                                                    : factors(row);
        Fragment own({64}, f32);
        copy(x.slice(row), own);
        parallel(own, [&](Index j) {
          sum(j) += own(j) * factor;
          own(j) = sum(j);
        });
        copy(own, out.slice(row));
      });
    });
  });
}

class MaskedRows : public ::testing::TestWithParam<MaskedCase> {};

TEST_P(MaskedRows, AreAsInterpreted) {
  const MaskedCase& c = GetParam();
  const Watchdog watchdog(c.name, most_time);
  expect_as_interpreted(c.program(), c.inputs, c.shape, 2e-4,
                        {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
  const std::string text = codegen::print_cuda(Signature(c.program().ir()), {90}).text;
  for (const std::string& own : c.wanted) EXPECT_NE(text.find(own), std::string::npos) << own << "\n" << text;
  for (const std::string& own : c.unwanted)
    EXPECT_EQ(text.find(own), std::string::npos) << own << "\n" << text;
}

MaskedCase rows_case(const std::string& name, const WholeRows& c, const std::string& wanted) {
  return {name,
          [c] { return whole_rows(c); },
          {normal({5, c.n}, c.type, 1), normal({c.n}, c.type, 2)},
          {5, c.n},
          {wanted},
          c.rows == 1 && wanted != "tg::load(x_" ? std::vector<std::string>{"tg::load(x_"}
                                                 : std::vector<std::string>{}};
}

std::vector<MaskedCase> cases() {
  const Tensor a = Tensor::random_integers({3, 40}, i32, 3, -50, 50),
               b = Tensor::random_integers({3, 40}, i32, 4, 1, 9);
  const std::vector<Tensor> rows{normal({8, 64}, f32, 7), normal({8}, f32, 8)};
  const std::vector<std::string> ahead{" = 0 < end"};
  return {
      rows_case("five_eighths", {.n = 640, .threads = 64}, "load_pack_if<8>"),
      rows_case("in_one_round", {.n = 80, .threads = 32}, "load_pack_if<2>"),
      rows_case("several_rows", {.n = 320, .threads = 64, .rows = 3}, "load_pack_if<8>"),
      rows_case("three_warps", {.n = 1280, .threads = 96}, "load_pack_if<8>"),
      rows_case("five_warps", {.n = 2560, .threads = 160}, "load_pack<8>"),
      rows_case("of_32_bits", {.n = 480, .threads = 64, .type = f32}, "load_pack_if<4>"),
      rows_case("not_whole_pieces", {.n = 321, .threads = 64}, "tg::load(x_"),
      {"quotients", [] { return quotients(); }, {a, b}, {3, 40}},
      {"cut_tiles", [] { return cut_tiles(bf16); }, {normal({5, 200}, bf16, 5)}, {5, 200}, {"N_ % 4 == 0"}},
      {"cut_pieces", [] { return cut_tiles(bf16); }, {normal({5, 203}, bf16, 6)}, {5, 203}},
      {"halves", [] { return halves(8); }, {normal({5, 400}, bf16, 9)}, {5, 200}, {"load_pack_if<"}},
      {"halves_in_parts", [] { return halves(1); }, {normal({5, 406}, bf16, 10)}, {5, 203}},
      {"halves_of_tiles",
       [] { return halves(64); },
       {normal({5, 384}, bf16, 11)},
       {5, 192},
       {"load_pack<"},
       {"load_pack_if<"}},
      {"limited",
       [] { return limited(); },
       {normal({6, 200}, bf16, 12), Tensor::from<std::int32_t>({200, 64, 8, 7, 0, 100}, {6})},
       {6, 200}},
      {"numbers_of_rows", [] { return scaled_rows(Numbers::of_rows); }, rows, {8, 64}, ahead},
      {"two_numbers", [] { return scaled_rows(Numbers::beside); }, rows, {8, 64}, ahead},
      {"written_numbers", [] { return scaled_rows(Numbers::written); }, rows, {8, 64}},
  };
}

INSTANTIATE_TEST_SUITE_P(Table, MaskedRows, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace masked_rows_test
}  // namespace tegula::emulation
