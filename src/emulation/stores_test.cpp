// What consumers store by the copy engine, wherever it stands in a program, and sums that they form in turn:
// as interpreted.
#include <gtest/gtest.h>

#include "emulation/testing/two_ways.hpp"
#include "passes/cuda/testing/plane_sums.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace stores_test {

constexpr std::chrono::seconds most_time{60};
constexpr int blocks = 4, depth = 64, steps = 2;

enum class Place : std::uint8_t { plain, in_branch, in_loop, in_repeated_loop };

struct Stored {
  const char* name;
  Place place = Place::plain;
  int columns = 64;
  int times = 1;          // statements that store
  bool in_turn = false;   // two blocks each add to the same rows
  const char* text = "";  // of what stores
};

void PrintTo(const Stored& c, std::ostream* out) { *out << c.name; }

void at_place(const Stored& c, lang::Index b, const std::function<void()>& store) {
  using namespace lang;
  if (c.place == Place::plain) return store();
  if (c.place == Place::in_branch) {
    when(b != 1, store);
  } else if (c.place == Place::in_loop) {
    serial(2, [&](Index) { store(); });
  } else {
    Var rounds(0);
    loop_while([&] { return rounds < 2; },
               [&] {
                 store();
                 rounds = rounds + 1;
               });
  }
}

lang::Kernel program(const Stored& c) {
  using namespace lang;
  return kernel("stored", [&] {
    lang::Tensor x = input("x", {blocks, 64, steps * depth}, bf16),
                 y = input("y", {c.columns, steps * depth}, bf16),
                 out = inout("out", {blocks * 64, c.columns}, f32);
    grid(blocks, {.threads = 128}, [&](Index b) {
      Fragment sum({64, c.columns}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index k) {
        Shared p({64, depth}, bf16), q({c.columns, depth}, bf16);
        copy(x.slice(b).at(0, k * depth), p);
        copy(y.at(0, k * depth), q);
        gemm(p, q.T(), sum);
      });
      for (int i = 0; i < c.times; ++i)
        at_place(c, b, [&] {
          if (c.in_turn)
            accumulate(out.at((b % 2 + 2 * i) * 64, 0), sum, {.order = b / 2, .consecutive = true});
          else if (c.place == Place::plain || c.place == Place::in_branch)
            copy(sum, out.at(b * 64, 0));
          else  // what a block stores several times threads store
            accumulate(out.at(b * 64, 0), sum);
        });
    });
  });
}

class StoresOf : public ::testing::TestWithParam<Stored> {};

TEST_P(StoresOf, AreAsInterpreted) {
  const Watchdog watchdog("stores", most_time);
  const Stored& c = GetParam();
  const lang::Kernel stored = program(c);
  EXPECT_NE(text_with_roles(stored).find(c.text), std::string::npos) << text_with_roles(stored);
  const Tensor x = Tensor::random_normal({blocks, 64, steps * depth}, bf16, 1),
               y = Tensor::random_normal({c.columns, steps * depth}, bf16, 2);
  const auto result = [&](Target target) {
    const Tensor out = Tensor::full({blocks * 64, c.columns}, f32, 3);
    compile(stored, target).call_in_order(std::vector<Argument>{x, y, out});
    return out;
  };
  const Tensor expected = result(Target::interpreter());
  EXPECT_TRUE(all_close(result(Target::emulated_sm90()), expected, 2e-2, 2e-2)) << c.name;
}

// Blocks that add to the same rows in turn, every other one by another statement: all count the same turns,
// whether the second adds the same sum, one that is transposed, or a tile that is no sum.
enum class Second { the_same, transposed, no_sum };

lang::Kernel sums_of_two_statements(Second second, int rows) {
  using namespace lang;
  return kernel("added", [=] {
    lang::Tensor x = input("x", {blocks, rows, steps * depth}, bf16),
                 y = input("y", {rows, steps * depth}, bf16), out = inout("out", {rows, rows}, f32);
    grid(blocks, {.threads = 2 * rows}, [&](Index b) {
      Fragment sum({rows, rows}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index k) {
        Shared p({rows, depth}, bf16), q({rows, depth}, bf16);
        copy(x.slice(b).at(0, k * depth), p);
        copy(y.at(0, k * depth), q);
        gemm(p, q.T(), sum);
      });
      when(b % 2 == 0, [&] { accumulate(out.at(0, 0), sum, {.order = b, .consecutive = true}); });
      when(b % 2 == 1, [&] {
        Fragment other({rows, rows}, f32, 1);
        if (second == Second::transposed)
          accumulate(out.at(0, 0), sum.T(), {.order = b, .consecutive = true});
        else
          accumulate(out.at(0, 0), second == Second::no_sum ? other : sum, {.order = b, .consecutive = true});
      });
    });
  });
}

TEST(StoresInTurn, OfTwoStatementsCountTogether) {
  for (const int rows : {64, 128})
    for (const Second second : {Second::the_same, Second::transposed, Second::no_sum}) {
      const Watchdog watchdog("stores", most_time);
      const lang::Kernel added = sums_of_two_statements(second, rows);
      const Tensor x = Tensor::random_normal({blocks, rows, steps * depth}, bf16, 1),
                   y = Tensor::random_normal({rows, steps * depth}, bf16, 2);
      const auto result = [&](Target target) {
        const Tensor out = Tensor::full({rows, rows}, f32, 3);
        compile(added, target).call_in_order(std::vector<Argument>{x, y, out});
        return out;
      };
      EXPECT_TRUE(all_close(result(Target::emulated_sm90()), result(Target::interpreter()), 2e-2, 2e-2))
          << rows << " " << static_cast<int>(second);
    }
}

// Windows of a part of the tensor, the last of which is cut off where the part ends.
lang::Kernel sums_of_a_part(int rows) {
  using namespace lang;
  return kernel("added", [=] {
    Dim N("N");
    lang::Tensor x = input("x", {blocks, rows, steps * depth}, bf16),
                 y = input("y", {64, steps * depth}, bf16), out = inout("out", {N, 64}, f32);
    grid(blocks, {.threads = 2 * rows}, [&](Index b) {
      Fragment sum({rows, 64}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index k) {
        Shared p({rows, depth}, bf16), q({64, depth}, bf16);
        copy(x.slice(b).at(0, k * depth), p);
        copy(y.at(0, k * depth), q);
        gemm(p, q.T(), sum);
      });
      lang::Tensor part = out.slice(range(0, N - 5));
      accumulate(part.at(b % 2 * rows, 0), sum, {.order = b / 2, .consecutive = true});
    });
  });
}

TEST(StoresInTurn, OfAPartAreCutOff) {
  for (const int rows : {64, 128}) {
    const Watchdog watchdog("stores", most_time);
    const Tensor x = Tensor::random_normal({blocks, rows, steps * depth}, bf16, 1),
                 y = Tensor::random_normal({64, steps * depth}, bf16, 2);
    const auto result = [&](Target target) {
      const Tensor out = Tensor::full({2 * rows - 3, 64}, f32, 3);
      compile(sums_of_a_part(rows), target).call_in_order(std::vector<Argument>{x, y, out});
      return out;
    };
    EXPECT_TRUE(all_close(result(Target::emulated_sm90()), result(Target::interpreter()), 2e-2, 2e-2))
        << rows;
  }
}

// Windows of the tensor in another shape, with fewer or more dimensions than its own: there is a word for
// each.
TEST(StoresInTurn, OfAReshapedTensorHaveWords) {
  const std::vector<std::vector<std::int64_t>> shapes = {{2 * 64 * 64}, {2, 32, 2, 64}};
  for (const auto& shape : shapes) {
    const Watchdog watchdog("stores", most_time);
    const lang::Kernel added = lang::kernel("added", [&] {
      using namespace lang;
      lang::Tensor out = inout("out", Extents(shape.begin(), shape.end()), f32);
      lang::Tensor rows = out.reshape({128, 64});
      grid(blocks, {.threads = 128}, [&](Index b) {
        Fragment sum({64, 64}, f32, f32(b));
        accumulate(rows.at(b % 2 * 64, 0), sum, {.order = b / 2, .consecutive = true});
      });
    });
    const auto result = [&](Target target) {
      const Tensor out = Tensor::full(shape, f32, 3);
      compile(added, target).call_in_order(std::vector<Argument>{out});
      return out;
    };
    EXPECT_TRUE(all_close(result(Target::emulated_sm90()), result(Target::interpreter()), 0, 0))
        << shape.size();
  }
}

// A step that stores its sum, whose warps store their parts themselves.
struct OfSteps {
  const char* name;
  DType type = bf16;
  int m = 64, n = 64, threads = 128;
  bool whole = true, turned = false;
  int left_out = 0;  // rows and columns that the tensor lacks
};

void PrintTo(const OfSteps& c, std::ostream* out) { *out << c.name; }

lang::Kernel program(const OfSteps& c) {
  using namespace lang;
  return kernel("of_steps", [&] {
    const int m = c.m - c.left_out, n = c.n - c.left_out;
    lang::Tensor x = input("x", {blocks, c.m, steps * depth}, bf16),
                 y = input("y", {c.n, steps * depth}, bf16);
    lang::Tensor out = inout("out", {blocks, steps, m, n}, c.type),
                 turned = inout("turned", {blocks, steps, n, m}, c.type);
    grid(blocks, {.threads = c.threads, .blocks_per_processor = 1}, [&](Index b) {
      Fragment sum({c.m, c.n}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index k) {
        Shared p({c.m, depth}, bf16), q({c.n, depth}, bf16);
        copy(x.slice(b).at(0, k * depth), p);
        copy(y.at(0, k * depth), q);
        gemm(p, q.T(), sum);
        if (c.whole) copy(sum, out.slice(b, k).at(0, 0));
        if (c.turned) copy(sum.T(), turned.slice(b, k).at(0, 0));
      });
    });
  });
}

class StoresOfSteps : public ::testing::TestWithParam<OfSteps> {};

TEST_P(StoresOfSteps, AreAsInterpreted) {
  const Watchdog watchdog("stores of steps", most_time);
  const OfSteps& c = GetParam();
  const lang::Kernel stored = program(c);
  const std::string text = text_with_roles(stored);
  EXPECT_NE(text.find("begin_staging_of_warp<"), std::string::npos) << text;
  EXPECT_EQ(text.find("begin_staging<"), std::string::npos) << text;
  const Tensor x = Tensor::random_integers({blocks, c.m, steps * depth}, i32, 1, -2, 2).to(bf16),
               y = Tensor::random_integers({c.n, steps * depth}, i32, 2, -2, 2).to(bf16);
  const auto result = [&](Target target) {
    const int m = c.m - c.left_out, n = c.n - c.left_out;
    std::pair all{Tensor::full({blocks, steps, m, n}, c.type, 3),
                  Tensor::full({blocks, steps, n, m}, c.type, 3)};
    compile(stored, target).call_in_order(std::vector<Argument>{x, y, all.first, all.second});
    return all;
  };
  const auto expected = result(Target::interpreter()), found = result(Target::emulated_sm90());
  EXPECT_TRUE(all_close(found.first, expected.first, 0, 0)) << c.name;
  EXPECT_TRUE(all_close(found.second, expected.second, 0, 0)) << c.name;
}

// Two sums of a step, of which one may go along other dimensions of the tensor.
TEST(StoresOfPlanes, AreAsInterpreted) {
  const Watchdog watchdog("planes", most_time);
  const Tensor x = Tensor::random_integers({steps * 64, 64}, bf16, 1, -2, 2),
               y = Tensor::random_integers({64, 64}, bf16, 2, -2, 2);
  for (const bool along_same : {true, false}) {
    const auto result = [&](Target target) {
      const Tensor out = Tensor::full({64, 64, 64}, f32, 0);
      compile(passes::testing::plane_sums(along_same), target)
          .call_in_order(std::vector<Argument>{x, y, out});
      return out;
    };
    const Tensor expected = result(Target::interpreter());
    EXPECT_TRUE(all_close(result(Target::emulated_sm90()), expected, 0, 0)) << along_same;
  }
}

// Of steps that a branch skips, beside another store. The engine can begin rows of 128 bytes, not of 120.
TEST(StoresOfChosenSteps, AreAsInterpreted) {
  const Watchdog watchdog("chosen steps", most_time);
  constexpr int all = 5;
  const Tensor x = Tensor::random_integers({64, 64 * all}, bf16, 1, -1, 2),
               y = Tensor::random_integers({64, 64 * all}, bf16, 2, -1, 2),
               flags = Tensor::random_integers({all}, i32, 3, 0, 2);
  const lang::Kernel program = lang::kernel("stores_of_chosen_steps", [&] {
    using namespace lang;
    Dim columns("columns");
    lang::Tensor own = input("x", {64, 64 * all}, bf16), shared = input("y", {64, 64 * all}, bf16),
                 taken = input("flags", {all}, i32), out = inout("out", {64 * all, columns}, bf16),
                 sums = output("sums", {64, columns}, f32);
    grid(1, {.threads = 128, .blocks_per_processor = 1}, [&](Index) {
      Fragment sum({64, 64}, f32, 0);
      pipelined(all, {.stages = 2}, [&](Index k) {
        when(taken(k) != 0, [&] {
          Shared p({64, 64}, bf16), q({64, 64}, bf16);
          copy(own.at(0, k * 64), p);
          copy(shared.at(0, k * 64), q);
          Fragment part({64, 64}, f32, 0);
          gemm(p, q.T(), part);
          copy(part, out.at(k * 64, 0));
          gemm(p, q.T(), sum);
        });
      });
      copy(sum, sums.at(0, 0));
    });
  });
  const std::string text = text_with_roles(program);
  EXPECT_NE(text.find("store_box"), std::string::npos) << text;
  for (const int columns : {64, 60}) {
    const auto result = [&](Target target) {
      const Tensor out = Tensor::full({64 * all, columns}, bf16, 3), sums = Tensor::zeros({64, columns}, f32);
      compile(program, target).call_in_order(std::vector<Argument>{x, y, flags, out, sums});
      return std::pair(out.values<double>(), sums.values<double>());
    };
    EXPECT_EQ(result(Target::emulated_sm90()), result(Target::interpreter())) << columns;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, StoresOf,
    ::testing::Values(Stored{"plain", Place::plain, 128, 1, false, "begin_staging<1>"},
                      Stored{"in_a_branch", Place::in_branch, 64, 1, false, "store_box"},
                      Stored{"in_a_loop", Place::in_loop, 64, 1, false, "add_box"},
                      Stored{"in_a_loop_with_a_condition", Place::in_repeated_loop, 64, 1, false, "for (;;)"},
                      Stored{"in_turn", Place::plain, 64, 1, true, "giver.give("},
                      Stored{"in_turn_by_itself", Place::plain, 128, 1, true, "tg::fence_async_global"},
                      Stored{"two_in_turn", Place::plain, 64, 2, true, "giver.give("}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Table, StoresOfSteps,
                         ::testing::Values(OfSteps{"whole"}, OfSteps{"two_boxes", bf16, 64, 128},
                                           OfSteps{"turned", bf16, 64, 64, 128, false, true},
                                           OfSteps{"turned_of_nine_eights", f16, 64, 144, 128, false, true},
                                           OfSteps{"both", bf16, 64, 64, 128, true, true},
                                           OfSteps{"both_of_two_groups", bf16, 128, 64, 256, true, true},
                                           OfSteps{"columns_divided", bf16, 64, 128, 256},
                                           OfSteps{"cut", bf16, 64, 64, 128, true, true, 8}),
                         [](const auto& info) { return std::string(info.param.name); });

// One product of warps and one of a warp group, whose operands are exchanged, add to one sum.
TEST(Stores, OfASumThatProductsHoldInTwoWays) {
  const Watchdog watchdog("a sum of two products", most_time);
  expect_products_in_two_ways(bf16, [](const AddProducts& add, lang::Tensor& out) {
    lang::Fragment sum({24, 64}, f32, 0);
    add(sum, sum);
    copy(sum, out.at(0, 0));
  });
}

}  // namespace stores_test
}  // namespace tegula::emulation
