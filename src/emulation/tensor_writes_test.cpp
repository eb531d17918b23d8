// Threads of a block that write elements which others wrote are ordered, wherever the statements stand.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "passes/cuda/written_tensors.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace tensor_writes_test {

using namespace lang;

constexpr int rows = 300;

using Output = lang::Tensor;

void store(const Output& out, int row) {
  parallel(rows, [&](Index i) { out(i + row) = f32(i) * 2.f + float(row); });
}

// The second store writes, by other threads, all elements of the first but one.
void store_twice(const Output& out) {
  store(out, 1);
  store(out, 0);
}

// Fragments to windows of 64 elements that begin at these.
void copy_to(const Output& out, int first, int second) {
  for (const int begin : {first, second}) {
    Fragment own({64}, f32, float(begin + 1));
    copy(own, out.at(begin));
  }
}

struct Case {
  const char* name;
  void (*body)(const Output& out, const Expr& condition);
  bool again;  // a tensor is written more than once
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class TensorWrites : public ::testing::TestWithParam<Case> {};

TEST_P(TensorWrites, AreOrdered) {
  const Case& c = GetParam();
  const Watchdog watchdog(c.name, std::chrono::seconds(60));
  const lang::Kernel program = kernel("writes", [&] {
    lang::Tensor in = input("in", {1}, f32), out = output("out", {rows + 1}, f32, {.zero = true});
    grid(1, [&](Index) { c.body(out, in(0) > 0.f); });
  });
  EXPECT_EQ(passes::written_tensors(program.ir()->grids[0], *program.ir()).size(), c.again ? 1U : 0U);
  for (const double sign : {-1.0, 1.0})
    expect_as_interpreted(program, {tegula::Tensor::full({1}, f32, sign)}, {rows + 1}, 0,
                          {tegula::Target::emulated(), tegula::Target::emulated_sm90()});
}

// Sums of 16 bits that the steps of a loop store.
enum class Step : std::uint8_t { once, twice, in_a_loop, read_under_another_name };

lang::Kernel sums_of_steps(Step step) {
  return kernel("sums_of_steps", [&] {
    lang::Tensor x = input("x", {320, 64}, bf16), y = input("y", {64, 64}, bf16),
                 out = inout("out", {320, 64}, bf16);
    if (step == Step::read_under_another_name) may_alias(x, out);
    grid(1, {.threads = 128}, [&](Index) {
      pipelined(4, {.stages = 2}, [&](Index k) {
        Fragment sum({64, 64}, f32, 0);
        Shared p({64, 64}, bf16), q({64, 64}, bf16);
        copy(x.at(k * 64, 0), p);
        copy(y.at(0, 0), q);
        gemm(p, q.T(), sum);
        const auto store = [&] { copy(sum, out.at((k + 1) * 64, 0)); };
        step == Step::in_a_loop ? serial(2, [&](Index) { store(); }) : store();
        if (step == Step::twice) store();
      });
    });
  });
}

TEST(TensorWritesOfSteps, AreOrderedUnlessEachElementIsWrittenOnce) {
  const Watchdog watchdog("steps", std::chrono::seconds(60));
  for (const Step step : {Step::once, Step::twice, Step::in_a_loop, Step::read_under_another_name}) {
    const lang::Kernel program = sums_of_steps(step);
    EXPECT_EQ(passes::written_tensors(program.ir()->grids[0], *program.ir()).empty(), step == Step::once);
    const auto result = [&](tegula::Target target) {
      const auto x = tegula::Tensor::random_integers({320, 64}, bf16, 1, -1, 2),
                 y = tegula::Tensor::random_integers({64, 64}, bf16, 2, -1, 2),
                 out = step == Step::read_under_another_name ? x : tegula::Tensor::zeros({320, 64}, bf16);
      tegula::compile(program, target).call_in_order(std::vector<Argument>{x, y, out});
      return out;
    };
    EXPECT_EQ(tegula::first_difference(result(tegula::Target::emulated_sm90()),
                                       result(tegula::Target::interpreter()), 1e-2, 1e-2),
              std::nullopt)
        << int(step);
  }
}

// A sum that the block stores, and a tensor that may be the same, which it reads transposed, by other
// threads.
lang::Kernel store_and_read(bool alias, bool behind) {
  return kernel("store_and_read", [&] {
    lang::Tensor x = input("x", {128, 64}, bf16), y = input("y", {128, 64}, bf16),
                 other = input("other", {128, 128}, f32), out = output("out", {128, 128}, f32),
                 turned = output("turned", {128, 128}, f32);
    if (alias) may_alias(other, out);
    grid(1, {.threads = 256}, [&](Index) {
      Fragment sum({128, 128}, f32, 0), read({128, 128}, f32);
      const auto reads = [&] { parallel(read, [&](Index i, Index j) { read(i, j) = other(j, i); }); };
      if (!behind) reads();
      pipelined(1, {.stages = 1}, [&](Index) {
        Shared p({128, 64}, bf16), q({128, 64}, bf16);
        copy(x, p);
        copy(y, q);
        gemm(p, q.T(), sum);
      });
      copy(sum, out);
      if (behind) reads();
      parallel(read, [&](Index i, Index j) { turned(i, j) = read(i, j); });
    });
  });
}

TEST(TensorWritesOnce, AreReadUnderAnotherName) {
  const Watchdog watchdog("another name", std::chrono::seconds(60));
  const auto x = tegula::Tensor::random_integers({128, 64}, bf16, 1, -1, 2),
             y = tegula::Tensor::random_integers({128, 64}, bf16, 2, -1, 2);
  for (const bool alias : {false, true})
    for (const bool behind : {false, true}) {
      const lang::Kernel program = store_and_read(alias, behind);
      EXPECT_EQ(passes::written_tensors(program.ir()->grids[0], *program.ir()).size(), alias && behind);
      const auto result = [&](tegula::Target target) {
        const auto out = tegula::Tensor::random_integers({128, 128}, f32, 3, -90, 90),
                   other = alias ? out : tegula::Tensor::random_integers({128, 128}, f32, 4, -90, 90),
                   turned = tegula::Tensor::zeros({128, 128}, f32);
        tegula::compile(program, target).call_in_order(std::vector<Argument>{x, y, other, out, turned});
        return turned;
      };
      EXPECT_EQ(tegula::first_difference(result(tegula::Target::emulated_sm90()),
                                         result(tegula::Target::interpreter()), 0, 0),
                std::nullopt)
          << alias << behind;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Table, TensorWrites,
    ::testing::Values(
        Case{"once", [](const Output& out, const Expr&) { store(out, 1); }, false},
        Case{"twice", [](const Output& out, const Expr&) { store_twice(out); }, true},
        Case{"in_a_branch", [](const Output& out, const Expr& c) { when(c, [&] { store_twice(out); }); },
             true},
        Case{"in_the_other_part",
             [](const Output& out, const Expr& c) {
               when(c, [&] { store(out, 0); }).otherwise([&] { store_twice(out); });
             },
             true},
        Case{"once_in_each_part",
             [](const Output& out, const Expr& c) {
               when(c, [&] { store(out, 0); }).otherwise([&] { store(out, 1); });
             },
             false},
        Case{"before_a_branch",
             [](const Output& out, const Expr& c) {
               store(out, 1);
               when(c, [&] { store(out, 0); });
             },
             true},
        Case{"in_a_loop", [](const Output& out, const Expr&) { serial(2, [&](Index) { store(out, 0); }); },
             true},
        Case{"steps_apart",
             [](const Output& out, const Expr&) {
               serial(2, [&](Index i) { copy(Fragment({64}, f32, 3.f), out.at(i * 64)); });
             },
             true},
        Case{"windows_apart", [](const Output& out, const Expr&) { copy_to(out, 64, 0); }, false},
        Case{"windows_that_meet", [](const Output& out, const Expr&) { copy_to(out, 63, 0); }, true},
        Case{"windows_apart_in_a_branch",
             [](const Output& out, const Expr& c) { when(c, [&] { copy_to(out, 0, 64); }); }, false},
        Case{"windows_apart_and_all",
             [](const Output& out, const Expr&) {
               copy_to(out, 0, 64);
               store(out, 1);
             },
             true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace tensor_writes_test
}  // namespace tegula::emulation
