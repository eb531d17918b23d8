// Sums of products that are stored transposed: to tensors by the copy engine, and to operands of other
// products.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace transposed_test {

constexpr std::chrono::seconds most_time{60};
constexpr int depth = 64, steps = 2, features = 64;

struct Transposed {
  const char* name;
  int rows, columns;  // of the sum
  int stored;         // rows of the tensor that takes its columns
  bool adds = false;
  DType operand = bf16;  // f32: none
  const char* text;      // of what moves it
};

void fill_sum(const lang::Tensor& a, const lang::Tensor& b, const Transposed& c, lang::Fragment& sum) {
  using namespace lang;
  Shared a_tile({c.rows, depth}, bf16);
  copy(a.at(0, 0), a_tile);
  pipelined(steps, {.stages = 2}, [&](Index n) {
    Shared b_tile({depth, c.columns}, bf16);
    copy(b.at(n * depth, 0), b_tile);
    gemm(a_tile, b_tile, sum);
  });
}

// out = (a b)ᵀ
lang::Kernel to_tensor(const Transposed& c) {
  using namespace lang;
  return kernel("transposed_sum", [&] {
    lang::Tensor a = input("a", {c.rows, depth}, bf16), b = input("b", {steps * depth, c.columns}, bf16),
                 out = inout("out", {c.stored, c.rows}, f32);
    grid(1, {.threads = 2 * c.rows}, [&](Index) {
      Fragment sum({c.rows, c.columns}, f32, 0);
      fill_sum(a, b, c, sum);
      if (c.adds)
        accumulate(out.at(0, 0), sum.T());
      else
        copy(sum.T(), out.at(0, 0));
    });
  });
}

// out = rounded(a b) w, by way of its transposed
lang::Kernel to_operand(const Transposed& c) {
  using namespace lang;
  return kernel("transposed_operand", [&] {
    lang::Tensor a = input("a", {c.rows, depth}, bf16), b = input("b", {steps * depth, c.columns}, bf16),
                 w = input("w", {c.columns, features}, bf16), out = output("out", {c.rows, features}, f32);
    grid(1, {.threads = 2 * c.rows}, [&](Index) {
      Shared w_tile({c.columns, features}, bf16), transposed({c.columns, c.rows}, bf16);
      copy(w.at(0, 0), w_tile);
      Fragment sum({c.rows, c.columns}, f32, 0), product({c.rows, features}, f32, 0);
      fill_sum(a, b, c, sum);
      copy(sum.to(bf16), transposed.T());
      gemm(transposed.T(), w_tile, product);
      copy(product, out.at(0, 0));
    });
  });
}

class TransposedSums : public ::testing::TestWithParam<Transposed> {};

TEST_P(TransposedSums, AreAsInterpreted) {
  const Watchdog watchdog("transposed sums", most_time);
  const Transposed& c = GetParam();
  const lang::Kernel program = c.operand == f32 ? to_tensor(c) : to_operand(c);
  EXPECT_NE(text_with_roles(program).find(c.text), std::string::npos) << text_with_roles(program);
  const Tensor a = Tensor::random_normal({c.rows, depth}, bf16, 1),
               b = Tensor::random_normal({steps * depth, c.columns}, bf16, 2),
               w = Tensor::random_normal({c.columns, features}, bf16, 3);
  const auto result = [&](Target target) {
    const Tensor out = c.operand == f32 ? Tensor::full({c.stored, c.rows}, f32, c.adds ? 5 : NAN)
                                        : Tensor::full({c.rows, features}, f32, NAN);
    std::vector<Argument> values{a, b};
    if (c.operand != f32) values.emplace_back(w);
    values.emplace_back(out);
    compile(program, target).call_in_order(values);
    return out;
  };
  const Tensor expected = result(Target::interpreter());
  for (const Target target : {Target::emulated_sm90(), Target::emulated(), Target::cpu()})
    EXPECT_TRUE(all_close(result(target), expected, 2e-2, c.operand == f32 ? 2e-2 : 2)) << c.name;
}

// Of few rows the transpose is multiplied, and the sum is stored transposed again: by the copy engine, if its
// boxes have whole swizzled rows.
struct Turned {
  const char* name;
  int rows, columns;  // of the sum
  int stored;         // rows of the tensor
  DType type = bf16;
  bool by_engine = true;
  int threads = 2 * columns;  // fewer: a warp group has several 64 columns
};

lang::Kernel turned_product(const Turned& c) {
  using namespace lang;
  return kernel("turned_sum", [&] {
    lang::Tensor a = input("a", {c.stored, steps * depth}, bf16),
                 b = input("b", {c.columns, steps * depth}, bf16),
                 out = inout("out", {c.stored, c.columns}, c.type);
    grid(ceildiv(c.stored, c.rows), {.threads = c.threads}, [&](Index y) {
      Fragment sum({c.rows, c.columns}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index n) {
        Shared a_tile({c.rows, depth}, bf16), b_tile({c.columns, depth}, bf16);
        copy(a.at(y * c.rows, n * depth), a_tile);
        copy(b.at(0, n * depth), b_tile);
        gemm(a_tile, b_tile.T(), sum);
      });
      parallel(sum, [&](Index i, Index j) { sum(i, j) += f32(j); });
      copy(sum, out.at(y * c.rows, 0));
    });
  });
}

class TurnedSums : public ::testing::TestWithParam<Turned> {};

TEST_P(TurnedSums, AreAsInterpreted) {
  const Watchdog watchdog("turned sums", most_time);
  const Turned& c = GetParam();
  const lang::Kernel program = turned_product(c);
  EXPECT_EQ(text_with_roles(program).find("tg::store_box(") != std::string::npos, c.by_engine)
      << text_with_roles(program);
  const Tensor a = Tensor::random_normal({c.stored, steps * depth}, bf16, 1),
               b = Tensor::random_normal({c.columns, steps * depth}, bf16, 2);
  const auto result = [&](Target target) {
    const Tensor out = Tensor::full({c.stored, c.columns}, c.type, NAN);
    const std::vector<Argument> values{a, b, out};
    compile(program, target).call_in_order(values);
    return out;
  };
  const Tensor expected = result(Target::interpreter());
  for (const Target target : {Target::emulated_sm90(), Target::emulated(), Target::cpu()})
    EXPECT_TRUE(all_close(result(target), expected, 2e-2, 1)) << c.name;
}

INSTANTIATE_TEST_SUITE_P(
    Table, TurnedSums,
    ::testing::Values(Turned{"whole", 80, 128, 80}, Turned{"several_tiles", 96, 128, 288},
                      Turned{"cut_by_the_tensor", 160, 128, 257}, Turned{"one_group", 48, 64, 48},
                      Turned{"few_rows", 16, 64, 16, bf16, false},
                      Turned{"second_box_outside", 160, 64, 70, f16}, Turned{"f32", 80, 128, 75, f32},
                      Turned{"odd_eights", 72, 128, 72}, Turned{"odd_eights_cut", 152, 128, 300},
                      Turned{"many_boxes_of_two_blocks", 152, 256, 200, bf16, true, 256},
                      Turned{"odd_eights_of_two_blocks", 136, 256, 257, f16, true, 256},
                      Turned{"two_blocks_of_a_group", 80, 256, 170, bf16, true, 256},
                      Turned{"three_blocks_of_one_group", 48, 192, 100, f16, false, 128},
                      Turned{"two_blocks_of_f32", 48, 256, 75, f32, true, 256}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Table, TransposedSums,
    ::testing::Values(Transposed{"whole", 128, 80, 80, false, f32, "stage_columns_of<80>("},
                      Transposed{"added", 128, 80, 80, true, f32, "stage_columns_of<80>("},
                      Transposed{"cut_by_the_tensor", 128, 80, 75, false, f32, "stage_columns_of<80>("},
                      Transposed{"longer_tensor", 64, 16, 20, false, f32, "stage_columns_of<16>("},
                      Transposed{"added_by_one_group", 64, 16, 16, true, f32, "stage_columns_of<16>("},
                      Transposed{"operand", 128, 80, 0, false, bf16, "stage_columns<80>("},
                      Transposed{"operand_of_one_group", 64, 16, 0, false, bf16, "stage_columns<16>("}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace transposed_test
}  // namespace tegula::emulation
