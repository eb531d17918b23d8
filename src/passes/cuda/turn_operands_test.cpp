// Which 8-bit operands become tiles of the other order, and which copies turn bytes in registers.
#include "passes/cuda/turn_operands.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/plan_byte_turns.hpp"
#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace turn_operands_test {

using namespace lang;

struct TurnCase {
  const char* name;
  bool turns;
  DType type = e4m3;
  int m = 64, n = 64;
  bool a_too = false, b_along_k = false;  // the order of a, too; b as a product can read it
  bool reads = false;                     // threads read b, too
  bool in_parts = false;                  // b comes by two copies
  CudaTarget target = {};
};

void PrintTo(const TurnCase& c, std::ostream* out) { *out << c.name; }

class Turns : public ::testing::TestWithParam<TurnCase> {};

TEST_P(Turns, AreOfTilesThatOnlyProductsRead) {
  const TurnCase& c = GetParam();
  const testing::Lowered lowered(
      kernel("turns", [&] {
        Dim k("k");
        Tensor a = input("a", {c.m, k}, c.type), at = input("at", {k, c.m}, c.type), b = input("b", {k, c.n}, c.type),
               bt = input("bt", {c.n, k}, c.type), out = output("out", {c.m, c.n}, f32);
        grid(1, {.threads = 128}, [&](Index) {
          Fragment sum({c.m, c.n}, c.type == i8 ? i32 : f32, 0);
          pipelined(ceildiv(k, 64), {.stages = 2}, [&](Index step) {
            Shared left = c.a_too ? Shared({64, c.m}, c.type) : Shared({c.m, 64}, c.type);
            Shared right = c.b_along_k ? Shared({c.n, 64}, c.type) : Shared({64, c.n}, c.type);
            copy(c.a_too ? at.at(step * 64, 0) : a.at(0, step * 64), left);
            if (c.in_parts) {
              copy(b.at(step * 64, 0), right.slice(range(0, 32)));
              copy(b.at(step * 64 + 32, 0), right.slice(range(32, 64)));
            } else {
              copy(c.b_along_k ? bt.at(0, step * 64) : b.at(step * 64, 0), right);
            }
            if (c.reads) parallel(sum, [&](Index i, Index j) { sum(i, j) += f32(right(i, j)); });
            const auto multiply = [&](const auto& x) {
              c.b_along_k ? gemm(x, right.T(), sum) : gemm(x, right, sum);
            };
            c.a_too ? multiply(left.T()) : multiply(left);
          });
          parallel(sum, [&](Index i, Index j) { out(i, j) = f32(sum(i, j)); });
        });
      }),
      c.target);
  int products = 0, turns = 0;
  for (const auto* gemm : testing::all_of<ir::Gemm>(lowered.body()))
    products += plan_gemm(*gemm, 128, c.target).instruction == GemmInstruction::wgmma;
  for (const auto* copy : testing::all_of<ir::Copy>(lowered.body())) turns += !ir::is_whole(copy->to);
  ir::for_each_stmt(lowered.body(), [&](const ir::Stmt& s) { turns += plan_byte_turn(s).has_value(); });
  EXPECT_EQ(products, c.turns || c.b_along_k || c.type == bf16 ? 1 : 0);
  EXPECT_EQ(turns, c.turns ? (c.a_too ? 2 : 1) : c.in_parts ? 2 : 0);
}

const TurnCase turn_cases[] = {
    {"b", true},
    {"b_of_integers", true, i8},
    {"both", true, e5m2, 64, 64, true},
    {"as_it_is_read", false, e4m3, 64, 64, false, true},
    {"sixteen_bits", false, bf16},
    {"no_warp_group", false, e4m3, 48, 40},
    {"read_by_threads", false, e4m3, 64, 64, false, false, true},
    {"in_parts", false, e4m3, 64, 64, false, false, false, true},
    {"older_gpus", false, e4m3, 64, 64, false, false, false, false, {80}},
};

INSTANTIATE_TEST_SUITE_P(Table, Turns, ::testing::ValuesIn(turn_cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace turn_operands_test
}  // namespace tegula::passes
