// Loops over a fragment that a program writes out, one for each tap: an order is kept among them if they load
// more of shared tiles than a thread has registers.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace written_out_loops_test {

using namespace lang;
using tegula::Tensor;

constexpr std::chrono::seconds most_time{60};

// A convolution of each channel; `in_turn`: the taps are a loop of the program.
lang::Kernel taps(int size, bool in_turn) {
  return kernel("taps", [=] {
    Dim H("H"), W("W");
    lang::Tensor x = input("x", {H, W, 32}, bf16), w = input("w", {size, size, 32}, f32),
                 out = output("out", {H, W, 32}, f32);
    grid(ceildiv(W, 8), ceildiv(H, 8), {.threads = 128}, [&](Index column, Index row) {
      Shared own({7 + size, 7 + size, 32}, bf16), weights({size, size, 32}, f32);
      copy(x.at(row * 8 - size / 2, column * 8 - size / 2), own);
      copy(w.at(0), weights);
      Fragment sum({8, 8, 32}, f32, 0);
      const auto tap = [&](const Expr& p, const Expr& q) {
        parallel(sum,
                 [&](Index i, Index j, Index c) { sum(i, j, c) += own(i + p, j + q, c) * weights(p, q, c); });
      };
      if (in_turn)
        serial(size, [&](Index p) { serial(size, [&](Index q) { tap(p, q); }); });
      else
        for (int p = 0; p < size; ++p)
          for (int q = 0; q < size; ++q) tap(p, q);
      copy(sum, out.at(row * 8, column * 8));
    });
  });
}

TEST(WrittenOutLoops, AreAsInterpreted) {
  const Watchdog watchdog("taps", most_time);
  for (const int size : {1, 3, 5}) {
    const std::vector<Tensor> inputs{Tensor::random_normal({9, 13, 32}, bf16, 1),
                                     Tensor::random_normal({size, size, 32}, f32, 2)};
    expect_as_interpreted(taps(size, false), inputs, {9, 13, 32}, 2e-5,
                          {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
  }
}

TEST(WrittenOutLoops, KeepAnOrderIfTheyLoadMuch) {
  const auto keeps = [](int size, bool in_turn) {
    const std::string text = codegen::print_cuda(Signature(taps(size, in_turn).ir()), {90}).text;
    return text.find("tg::keep_order") != std::string::npos;
  };
  EXPECT_TRUE(keeps(5, false));
  EXPECT_FALSE(keeps(1, false));
  EXPECT_FALSE(keeps(5, true)) << "the loop keeps it";
}

}  // namespace written_out_loops_test
}  // namespace tegula::emulation
