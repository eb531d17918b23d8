// Which tiles a producer's warps transpose, and that the schedules in which they do are clean.
#include "passes/cuda/transpose_loads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "passes/cuda/testing/plans.hpp"
#include "schedule/testing/mutations.hpp"
#include "schedule/verify.hpp"

namespace tegula::passes {
namespace transpose_loads_test {

using namespace lang;

// By a vector that the consumers compute: where the tiles are that come, or how many steps there are.
enum class Told { nothing, places, steps };

struct TransposedCase {
  const char* name;
  std::size_t tiles;  // that are transposed; none: there are no such warps
  DType type = e4m3;
  bool a_too = false, by_program = false;
  bool cut = false;     // by a limit within the tensor, so that threads copy a
  bool uneven = false;  // the number of steps depends on the block
  bool engine = true;
  int threads = 256;
  Told told = Told::nothing;
  bool looked_up = false;  // the tile to be transposed says where the other one is
};

void PrintTo(const TransposedCase& c, std::ostream* out) { *out << c.name; }

Kernel product(const TransposedCase& c) {
  const int rows = c.threads / 2;
  return kernel("product", [&] {
    Dim m("m"), n("n"), k("k");
    Tensor a = c.a_too ? input("a", {k, m}, c.type) : input("a", {m, k}, c.type),
           b = input("b", {k, n}, c.type), lengths = input("lengths", {m}, i32),
           out = output("out", {m, n}, c.type.is_integer() ? i32 : f32);
    grid(ceildiv(m, rows), ceildiv(n, 128), {.threads = c.threads}, [&](Index x, Index y) {
      Fragment sum({rows, 128}, c.type.is_integer() ? i32 : f32, 0);
      std::optional<Shared> told;
      if (c.told != Told::nothing) {
        Fragment own({16}, i32);
        parallel(own, [&](Index i) { own(i) = lengths(x + i); });
        told.emplace(Shared({16}, i32));
        parallel(own, [&](Index i) { (*told)(i) = own(i); });
      }
      const Expr steps = c.uneven                ? Expr(lengths(x))
                         : c.told == Told::steps ? Expr((*told)(0))
                                                 : ceildiv(k, 64);
      pipelined(steps, {.stages = 2}, [&](Index number) {
        const Expr step = c.told == Told::places ? Expr((*told)(number % 16)) : Expr(number);
        Shared left = c.a_too ? Shared({64, rows}, c.type) : Shared({rows, 64}, c.type);
        Shared right = c.by_program ? Shared({128, 64}, c.type) : Shared({64, 128}, c.type);
        if (c.by_program)
          copy(b.at(step * 64, y * 128), right.T());
        else
          copy(b.at(step * 64, y * 128), right);
        const Expr other = c.looked_up ? Expr(i32(right(number % 64, 0))) : step * 64;
        if (c.a_too)
          copy(a.at(other, x * rows), left);
        else
          copy((c.cut ? a.slice(range(0, m - 1)) : a).at(x * rows, other), left);
        const auto multiply = [&](const auto& x) {
          c.by_program ? gemm(x, right.T(), sum) : gemm(x, right, sum);
        };
        c.a_too ? multiply(left.T()) : multiply(left);
      });
      copy(sum, out.at(x * rows, y * 128));
    });
  });
}

const TransposedCase cases[] = {
    {"right", 1},
    {"right_of_integers", 1, i8},
    {"both", 2, e5m2, true},
    {"by_the_program", 1, e4m3, false, true},
    {"uneven_blocks", 1, e4m3, false, false, false, true},
    {"one_warp_group", 1, e4m3, false, false, false, false, true, 128},
    {.name = "places_that_consumers_tell", .tiles = 1, .told = Told::places},
    {.name = "steps_that_consumers_tell", .tiles = 0, .told = Told::steps},
    {.name = "places_in_the_tile", .tiles = 0, .type = i8, .by_program = true, .looked_up = true},
    {"beside_a_tile_that_threads_copy", 0, e4m3, false, false, true},
    {"without_the_engine", 0, e4m3, false, false, false, false, false},
    {"sixteen_bits", 0, bf16},
};

class TransposedLoads : public ::testing::TestWithParam<TransposedCase> {};

TEST_P(TransposedLoads, HaveWarpsOfTheirOwn) {
  const TransposedCase& c = GetParam();
  CudaTarget target;
  target.copy_engine = c.engine;
  const testing::Lowered lowered(product(c), target);
  const auto roles = lowered.roles();
  ASSERT_TRUE(roles);
  EXPECT_EQ(roles->transpositions.size(), c.tiles);
  EXPECT_EQ(roles->transposer.empty(), c.tiles == 0);
  EXPECT_EQ(roles->one_loader, c.engine && !c.cut && c.told != Told::steps && !c.looked_up);
  EXPECT_EQ(std::count_if(roles->rings.begin(), roles->rings.end(),
                          [](const RingPlan& r) { return r.to_transpose; }),
            static_cast<std::ptrdiff_t>(c.tiles));
  const schedule::Schedule& s = *lowered.plan.grids[0].schedule;
  EXPECT_EQ(s.roles.size(), c.tiles > 0 ? 3u : 2u);
  const auto found = schedule::verify(s, schedule::thorough);
  EXPECT_FALSE(found) << found->message;
}

TEST_P(TransposedLoads, AreNotToBeChanged) {
  const TransposedCase& c = GetParam();
  if (c.tiles == 0) return;
  const testing::Lowered lowered(product(c));
  const schedule::Schedule& s = *lowered.plan.grids[0].schedule;
  std::vector<std::string> accepted;
  for (const schedule::Mutation& m : schedule::mutations(s))
    if (m.name.rfind("transposer", 0) == 0 && !schedule::verify(m.schedule)) accepted.push_back(m.name);
  EXPECT_EQ(accepted, std::vector<std::string>{}) << schedule::print(s);
}

INSTANTIATE_TEST_SUITE_P(Table, TransposedLoads, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace transpose_loads_test
}  // namespace tegula::passes
