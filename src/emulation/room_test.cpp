// Programs that are planned a second time, when the printer has found what else shared memory holds.
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/cuda_program.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/tegula.hpp"

namespace tegula::emulation {
namespace room_test {

constexpr std::chrono::seconds most_time{60};
constexpr int queries = 256, keys = 160, depth = 200;

// q would come a block early, and the loop has three slots, were it not for the sums on their way.
lang::Kernel sums_of_parts() {
  using namespace lang;
  return kernel("sums_of_parts", [] {
    lang::Tensor q = input("q", {2, queries, 128}, bf16), k = input("k", {keys, 128}, bf16),
                 out = output("out", {2, queries / 16, keys}, f32);
    grid(2, {.threads = 256}, [&](Index t) {
      Shared own({queries, 128}, bf16);
      copy(q.slice(t).at(0, 0), own);
      pipelined(ceildiv(keys, 64), {.stages = 3}, [&](Index j) {
        Shared tile({64, 128}, bf16);
        copy(k.at(j * 64, 0), tile);
        Fragment s({queries, 64}, f32, 0);
        gemm(own, tile.T(), s);
        copy(reduce_sum(s.reshape({queries / 16, 16, 64}), 1), out.slice(t).at(0, j * 64));
      });
    });
  });
}

// A slot of each of two loops is more than there is.
lang::Kernel two_loops(bool alike) {
  using namespace lang;
  return kernel("two_loops", [=] {
    lang::Tensor a = input("a", {128, depth}, bf16), b = input("b", {256, depth}, bf16),
                 out = output("out", {128, 256}, f32);
    grid(1, {.threads = 256}, [&](Index) {
      Fragment sum({128, 256}, f32, 0);
      for (int loop = 0; loop < 2; ++loop) {
        pipelined(ceildiv(depth, 192), {.stages = 2}, [&](Index s) {
          Shared left({128, 192}, bf16), right({256, 192}, bf16);
          copy(a.at(0, s * 192), left);
          const int boxes = loop == 0 || alike ? 1 : 2, rows = 256 / boxes;
          for (int box = 0; box < boxes; ++box)
            copy(b.at(box * rows, s * 192), right.slice(range(box * rows, (box + 1) * rows)));
          gemm(left, right.T(), sum);
        });
      }
      copy(sum, out.at(0, 0));
    });
  });
}

// Five tiles of a step, each of the product with the one before, leave room for one slot of its loads.
lang::Kernel chain() {
  using namespace lang;
  return kernel("chain", [] {
    lang::Tensor a = input("a", {3 * 64, 64}, bf16), b = input("b", {3 * 64, 256}, bf16),
                 out = output("out", {64, 256}, f32);
    grid(1, {.threads = 256}, [&](Index) {
      Fragment sum({64, 256}, f32, 0), value({64, 256}, f32);
      pipelined(3, {.stages = 2}, [&](Index s) {
        Shared left({64, 64}, bf16), right({64, 256}, bf16);
        copy(a.at(s * 64, 0), left);
        copy(b.at(s * 64, 0), right);
        clear(value);
        gemm(left, right, value);
        for (int i = 0; i < 5; ++i) {
          Shared made({64, 256}, bf16);
          copy(value, made);
          clear(value);
          gemm(left, made, value);
        }
        parallel(sum, [&](Index i, Index j) { sum(i, j) += value(i, j); });
      });
      copy(sum, out.at(0, 0));
    });
  });
}

void expect_as_on_cpu(const lang::Kernel& program, const std::vector<Tensor>& inputs, const Shape& shape) {
  const auto results = [&](Target target) {
    const Tensor out = Tensor::full(shape, f32, NAN);
    std::vector<Argument> values(inputs.begin(), inputs.end());
    values.emplace_back(out);
    compile(program, target).call_in_order(values);
    return out.values<double>();
  };
  const auto got = results(Target::emulated_sm90()), wanted = results(Target::cpu());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 0.01) << "element " << i;
}

TEST(RoomOnHopper, SlotsGiveWayToConversions) {
  const Watchdog watchdog("room", most_time);
  const lang::Kernel program = sums_of_parts();
  EXPECT_NE(codegen::print_cuda(Signature(program.ir()), {90}).text.find("---- producer"), std::string::npos);
  expect_as_on_cpu(
      program,
      {Tensor::random_normal({2, queries, 128}, bf16, 1), Tensor::random_normal({keys, 128}, bf16, 2)},
      {2, queries / 16, keys});
}

// Tiles that a step does not need any more give their memory to those behind them.
TEST(RoomOnHopper, TilesGiveWayToSlots) {
  const Watchdog watchdog("room", most_time);
  const lang::Kernel program = chain();
  EXPECT_NE(codegen::print_cuda(Signature(program.ir()), {90}).text.find("init_ring<2>"), std::string::npos);
  expect_as_on_cpu(
      program,
      {Tensor::random_normal({3 * 64, 64}, bf16, 1, 0, 0.1), Tensor::random_normal({3 * 64, 256}, bf16, 2)},
      {64, 256});
}

// Loops whose tiles come alike have the same slots; others have no room for slots of their own.
TEST(RoomOnHopper, RolesGiveWayToTiles) {
  const Watchdog watchdog("room", most_time);
  for (const bool alike : {true, false}) {
    const lang::Kernel program = two_loops(alike);
    const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
    EXPECT_EQ(text.find("---- producer") != std::string::npos, alike);
    expect_as_on_cpu(
        program, {Tensor::random_normal({128, depth}, bf16, 1), Tensor::random_normal({256, depth}, bf16, 2)},
        {128, 256});
  }
}

}  // namespace room_test
}  // namespace tegula::emulation
