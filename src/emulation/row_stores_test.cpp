// Sums of products that threads store by whole rows: rows that are shorter than the sum's, and values that
// are rounded to another type before.
#include <gtest/gtest.h>

#include <cmath>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace row_stores_test {

constexpr std::chrono::seconds most_time{60};
constexpr int rows = 64, depth = 64, steps = 2;

struct RowStore {
  const char* name;
  int columns, stored;  // of the sum, of the tensor
  DType rounded, type;  // e4m3 first, or as the tensor
  bool by_quads;
  int padding = 0;  // elements between two rows of the tensor
  bool by_threads = false;  // of every 32 columns, those of a thread follow one another
};

lang::Kernel product(const RowStore& c) {
  using namespace lang;
  return kernel("row_stores", [&] {
    lang::Tensor a = input("a", {rows, depth}, bf16), b = input("b", {steps * depth, c.columns}, bf16),
                 out = output("out", {rows, c.stored}, c.type);
    grid(1, {.threads = 128}, [&](Index) {
      Shared a_tile({rows, depth}, bf16);
      copy(a.at(0, 0), a_tile);
      Fragment sum({rows, c.columns}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index n) {
        Shared b_tile({depth, c.columns}, bf16);
        copy(b.at(n * depth, 0), b_tile);
        gemm(a_tile, b_tile, sum);
      });
      if (c.by_threads)
        parallel(sum, [&](Index i, Index j) {
          out(i, j / 32 * 32 + j % 8 / 2 * 8 + j % 32 / 8 * 2 + j % 2) = sum(i, j);
        });
      else if (c.rounded == c.type)
        copy(sum, out.at(0, 0));
      else
        parallel(sum, [&](Index i, Index j) { out(i, j) = e4m3(sum(i, j)); });
    });
  });
}

class RowStores : public ::testing::TestWithParam<RowStore> {};

TEST_P(RowStores, WriteTheTensorAlone) {
  const Watchdog watchdog("row stores", most_time);
  const RowStore& c = GetParam();
  const lang::Kernel program = product(c);
  EXPECT_EQ(text_with_roles(program).find("tg::store_quad(") != std::string::npos, c.by_quads);
  EXPECT_EQ(text_with_roles(program).find("tg::store_own(") != std::string::npos, c.by_threads);
  const Tensor a = Tensor::random_normal({rows, depth}, bf16, 1),
               b = Tensor::random_normal({steps * depth, c.columns}, bf16, 2);
  const auto result = [&](Target target) {
    const Tensor whole = Tensor::full({rows + 1, c.stored + c.padding}, c.type, 7);
    compile(program, target)(a, b, whole.ref().slice(0, 0, rows).slice(1, 0, c.stored));
    return whole;
  };
  const Tensor expected = result(Target::interpreter());
  for (const Target target : {Target::emulated_sm90(), Target::emulated(), Target::cpu()})
    EXPECT_TRUE(all_close(result(target), expected, 2e-2, 2e-2)) << c.name;
}

INSTANTIATE_TEST_SUITE_P(Table, RowStores,
                         ::testing::Values(RowStore{"whole", 96, 96, f16, f16, true},
                                           RowStore{"padded", 96, 96, bf16, bf16, true, 8},
                                           RowStore{"off_16_bytes", 96, 96, bf16, bf16, true, 3},
                                           RowStore{"shorter_rows", 96, 88, f16, f16, false},
                                           RowStore{"longer_rows", 96, 104, f16, f16, true},
                                           RowStore{"rounded_before", 96, 96, e4m3, bf16, false},
                                           RowStore{"by_threads", 96, 96, bf16, bf16, false, 8, true},
                                           RowStore{"by_threads_f16", 64, 72, f16, f16, false, 0, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tegula::emulation
