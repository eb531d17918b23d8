// Tiles of a sum whose rows go where a list says, from the block's columns on: the last tile may be cut where
// a piece of 16 bytes ends, and a condition may say so again.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace column_windows_test {

constexpr std::chrono::seconds most_time{60};
constexpr int rows = 90, depth = 64, places = 100;

struct Window {
  const char* name;
  int columns;        // of the tensor
  int promised;       // the multiple that is promised of them; 0: they are a constant
  int tile, threads;  // columns of a block
  DType type;
  bool adds, limited;  // limited: the program says that a column is in the tensor
  const char* by;      // in the text for Hopper
  int before = 0;      // columns of the first block that are in front of the tensor
};

void PrintTo(const Window& c, std::ostream* out) { *out << c.name; }

lang::Kernel program(const Window& c) {
  using namespace lang;
  return kernel("window", [&] {
    Dim N("N");
    if (c.promised > 0) N.multiple_of(c.promised);
    Expr n = c.promised > 0 ? Expr(N) : Expr(c.columns);
    lang::Tensor a = input("a", {rows, depth}, bf16), b = input("b", {N, depth}, bf16),
                 list = input("list", {rows}, i32), weights = input("weights", {rows}, f32),
                 out = inout("out", {places, n}, c.type);
    grid(ceildiv(N + c.before, c.tile), 2, {.threads = c.threads}, [&](Index bx, Index by) {
      Fragment sum({c.threads / 2, c.tile}, f32, 0);
      pipelined(2, {.stages = 2}, [&](Index k) {
        Shared left({c.threads / 2, depth / 2}, bf16), right({c.tile, depth / 2}, bf16);
        copy(a.at(by * (c.threads / 2), k * (depth / 2)), left);
        copy(b.at(bx * c.tile - c.before, k * (depth / 2)), right);
        gemm(left, right.T(), sum);
      });
      parallel(sum, [&](Index i, Index j) {
        Expr row = by * (c.threads / 2) + i, column = bx * c.tile - c.before + j;
        const auto write = [&] {
          Expr value = sum(i, j) * weights(row);
          if (c.adds)
            atomic_add(out(list(row), column), c.type == f32 ? value : c.type(value));
          else
            out(list(row), column) = value;
        };
        if (c.limited)
          when(row < rows && column < n, write);
        else
          when(row < rows, write);
      });
    });
  });
}

class ColumnWindows : public ::testing::TestWithParam<Window> {};

TEST_P(ColumnWindows, AreWrittenByPieces) {
  const Window& c = GetParam();
  const Watchdog watchdog(c.name, most_time);
  const lang::Kernel kernel = program(c);
  const std::string text = codegen::print_cuda(Signature(kernel.ir()), {90}).text;
  EXPECT_NE(text.find(c.by), std::string::npos) << text;
  const Tensor a = Tensor::random_integers({rows, depth}, bf16, 1, -3, 3),
               b = Tensor::random_integers({c.columns, depth}, bf16, 2, -1, 1),
               weights = Tensor::random_integers({rows}, f32, 3, 1, 3);
  std::vector<std::int32_t> places_of_rows;
  for (int i = 0; i < rows; ++i) places_of_rows.push_back(i * 7 % 101 - 2);  // different ones, some outside
  const Tensor list = Tensor::from(places_of_rows, {rows});
  const auto result = [&](Target target) {
    const Tensor out = Tensor::full({places, c.columns}, c.type, 5);
    compile(kernel, target)(a, b, list, weights, out);
    return out;
  };
  const Tensor expected = result(Target::interpreter());
  for (const Target target : {Target::emulated_sm90(), Target::emulated()})
    EXPECT_TRUE(all_close(result(target), expected, 0, 0)) << c.name;
}

const char *added = "tg::add_quad(", *stored = "tg::store_quad(", *elements = "tg::atomic_update";

const Window windows[] = {
    {"added", 132, 0, 64, 128, f32, true, false, added},
    {"added_limited", 132, 0, 64, 128, f32, true, true, added},
    {"added_by_two_groups", 100, 0, 128, 256, f32, true, true, added},
    {"promised", 132, 4, 64, 128, f32, true, false, added},
    {"promised_limited", 68, 4, 64, 128, f32, true, true, added},
    {"promised_few", 4, 4, 64, 128, f32, true, false, added},
    {"promised_16_bits", 72, 8, 64, 128, bf16, true, true, added},
    {"not_promised", 130, 1, 64, 128, f32, true, true, elements},
    {"promised_too_little", 132, 2, 64, 128, f32, true, false, elements},
    {"stored", 72, 0, 64, 128, bf16, false, false, stored},
    {"begin_before", 132, 0, 64, 128, f32, true, false, added, 16},
    {"begin_before_by_two_groups", 100, 4, 128, 256, f32, true, false, added, 68},
    {"stored_from_before", 72, 0, 64, 128, bf16, false, false, stored, 24},
    {"stored_promised", 136, 8, 64, 128, f16, false, true, stored},
};

INSTANTIATE_TEST_SUITE_P(Table, ColumnWindows, ::testing::ValuesIn(windows),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace column_windows_test
}  // namespace tegula::emulation
