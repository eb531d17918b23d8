// Numbers of groups of neighbours, found by a division: loaded once for those that a thread has in registers,
// with equal results wherever groups and tensors end.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace shared_numbers_test {

using namespace lang;
using Data = tegula::Tensor;

struct SharedCase {
  const char* name;
  int group;
  Expr (*group_of)(const Expr& step, const Expr& j, int group);
  bool once = true;  // a load stands in front of the elements
};

void PrintTo(const SharedCase& c, std::ostream* out) { *out << c.name; }

constexpr int rows = 4, columns = 512;

// Sums of rows of x, times the numbers of their groups.
lang::Kernel weighed(const SharedCase& c) {
  return kernel("weighed", [&] {
    Dim N("N"), K("K"), G("G");
    lang::Tensor x = input("x", {N, K}, f32), scale = input("scale", {N, G}, f16),
                 zero = input("zero", {N, G}, f16), out = output("out", {N}, f32);
    grid(ceildiv(N, rows), {.threads = 128}, [&](Index by) {
      Fragment sums({rows, columns}, f32, 0);
      serial(ceildiv(K, columns), [&](Index step) {
        Fragment own = load(x.at(by * rows, step * columns), {rows, columns});
        parallel(sums, [&](Index i, Index j) {
          Expr g = c.group_of(step, j, c.group);
          sums(i, j) += (own(i, j) - zero(by * rows + i, g)) * scale(by * rows + i, g);
        });
      });
      lang::copy(reduce_sum(sums), out.at(by * rows));
    });
  });
}

const SharedCase shared_cases[] = {
    {"divided", 16, [](const Expr& s, const Expr& j, int group) { return (s * columns + j) / group; }},
    {"by_steps", 16,
     [](const Expr& s, const Expr& j, int group) { return s * (columns / group) + floordiv(j, group); }},
    {"shifted", 16, [](const Expr& s, const Expr& j, int) { return (s * columns + j) >> 4; }},
    {"small_groups", 2, [](const Expr& s, const Expr& j, int group) { return (s * columns + j) / group; }},
    {"odd_groups", 3, [](const Expr& s, const Expr& j, int group) { return (s * columns + j) / group; },
     false},
};

class SharedNumbers : public ::testing::TestWithParam<SharedCase> {};

TEST_P(SharedNumbers, AreLoadedOnceForNeighbours) {
  const SharedCase& c = GetParam();
  const Watchdog watchdog(c.name, std::chrono::seconds(60));
  const lang::Kernel program = weighed(c);
  const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
  const auto load = text.find("tg::load(scale_"), sum = text.rfind("for (int e = 0;", load);
  const auto group = text.rfind("for (int g = 0;", load);
  const bool is_in_front = group != std::string::npos && (sum == std::string::npos || sum < group);
  EXPECT_EQ(is_in_front, c.once) << text;
  for (const int n : {1, 4, 7})
    for (const int k : {0, 1, 512, 1000}) {
      const int groups = (k + c.group - 1) / c.group;
      expect_as_interpreted(program,
                            {Data::random_normal({n, k}, f32, 1), Data::random_normal({n, groups}, f16, 2),
                             Data::random_normal({n, groups}, f16, 3)},
                            {n}, 1e-3, {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
    }
}

INSTANTIATE_TEST_SUITE_P(Table, SharedNumbers, ::testing::ValuesIn(shared_cases),
                         [](auto& info) { return std::string(info.param.name); });

// The elements of a word of a row, from `first` on: whole pieces where the row's length allows it.
lang::Kernel weighed_words(DType type, int count, int first, int multiple) {
  return kernel("words", [&] {
    Dim N("N"), K("K"), W("W");
    K.multiple_of(multiple);
    lang::Tensor x = input("x", {N, K}, type), w = input("w", {N, W}, f32), out = output("out", {N, W}, f32);
    grid(ceildiv(N, rows), ceildiv(W, 64), {.threads = 64}, [&](Index by, Index step) {
      Fragment sums = load(w.at(by * rows, step * 64), {rows, 64});
      parallel(sums, [&](Index i, Index j) {
        Var sum = 0.0f;
        for (int e = 0; e < count; ++e)
          sum += f32(x(by * rows + i, (step * 64 + j) * count + first + e)) * float(e + 1);
        sums(i, j) *= sum;
      });
      lang::copy(sums, out.at(by * rows, step * 64));
    });
  });
}

struct WordsCase {
  const char* name;
  DType type;
  int count, first, multiple;
  bool by_pieces;
};

void PrintTo(const WordsCase& c, std::ostream* out) { *out << c.name; }

const WordsCase words_cases[] = {
    {"of_f16", f16, 8, 0, 8, true},
    {"of_f32", f32, 8, 0, 4, true},
    {"of_i8", i8, 16, 0, 16, true},
    {"of_f16_from_four_on", f16, 8, 4, 4, true},
    {"of_f16_from_one_on", f16, 8, 1, 8, true},
    {"of_rows_that_end_anywhere", f16, 8, 0, 1, false},
};

class Words : public ::testing::TestWithParam<WordsCase> {};

TEST_P(Words, AreLoadedByPieces) {
  const WordsCase& c = GetParam();
  const Watchdog watchdog(c.name, std::chrono::seconds(60));
  const lang::Kernel program = weighed_words(c.type, c.count, c.first, c.multiple);
  const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
  EXPECT_EQ(text.find("piece_ = tg::load_pack_if") != std::string::npos, c.by_pieces) << text;
  for (const int n : {1, 6})
    for (const int words : {0, 1, 100}) {
      // The last word may be cut off, or all of it and more.
      for (const int k : {words * c.count, std::max(words - 2, 0) * c.count + c.multiple})
        expect_as_interpreted(program,
                              {Data::random_integers({n, k}, i32, 1, -9, 9).to(c.type),
                               Data::random_normal({n, words}, f32, 2)},
                              {n, words}, 1e-3,
                              {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
    }
}

INSTANTIATE_TEST_SUITE_P(Table, Words, ::testing::ValuesIn(words_cases),
                         [](auto& info) { return std::string(info.param.name); });

// A word of a row times eight numbers of its column, times the number of its group: the numbers of columns
// are the same for all rows that a thread has.
lang::Kernel weighed_columns() {
  return kernel("columns", [&] {
    Dim N("N"), W("W"), G("G");
    lang::Tensor x = input("x", {N, W}, f32), a = input("a", {W * 8}, f16),
                 scale = input("scale", {N, G}, f16), out = output("out", {N}, f32);
    grid(ceildiv(N, rows), {.threads = 64}, [&](Index by) {
      Fragment sums({rows, 128}, f32, 0);
      serial(ceildiv(W, 128), [&](Index step) {
        Fragment own = load(x.at(by * rows, step * 128), {rows, 128});
        parallel(sums, [&](Index i, Index j) {
          Expr at = step * 128 + j;
          Var sum = 0.0f;
          for (int e = 0; e < 8; ++e) sum += own(i, j) * a(at * 8 + e) * float(e + 1);
          sums(i, j) += sum * scale(by * rows + i, at / 16);
        });
      });
      lang::copy(reduce_sum(sums), out.at(by * rows));
    });
  });
}

TEST(SharedPieces, StandInFrontOfAllRows) {
  const Watchdog watchdog("pieces", std::chrono::seconds(60));
  const lang::Kernel program = weighed_columns();
  const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
  EXPECT_LT(text.find("pieces_[e] = piece_"), text.find("for (int g = 0;", text.find("pieces_[e] = piece_")))
      << text;
  for (const int n : {1, 6})
    for (const int words : {0, 1, 100, 300})
      expect_as_interpreted(
          program,
          {Data::random_normal({n, words}, f32, 1), Data::random_normal({words * 8}, f16, 2),
           Data::random_normal({n, (words + 15) / 16}, f16, 3)},
          {n}, 2e-3, {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
}

}  // namespace shared_numbers_test
}  // namespace tegula::emulation
