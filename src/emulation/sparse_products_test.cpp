// Sparse products: by wgmma.sp on the emulated Hopper, by mma.sp on warps, and expanded elsewhere, beside
// the interpreter. The sums are exact, so that none may differ.
#include <gtest/gtest.h>

#include "codegen/cuda/testing/nvrtc.hpp"
#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace sparse_products_test {

constexpr std::chrono::seconds most_time{60};

struct SparseProduct {
  const char* name;
  DType type;
  int m, n, depth, steps;
  bool along_k;             // b is [n, k]
  const char* instruction;  // in the text for Hopper; null where it is expanded
  int zeros = 0;            // rows of metadata that are 0, as what is outside reads
  int together = 1;         // steps whose metadata are loaded at once
};

lang::Kernel product_of(const SparseProduct& c) {
  using namespace lang;
  return kernel("sparse_product", [&] {
    const int k = c.depth * c.steps;
    lang::Tensor values = input("values", {c.m, k / 2}, c.type),
                 metadata = input("metadata", {c.m, k / 8}, u8);
    lang::Tensor b = c.along_k ? input("b", {c.n, k}, c.type) : input("b", {k, c.n}, c.type);
    lang::Tensor out = output("out", {c.m, c.n}, f32);
    grid(1, [&](Index) {
      Fragment sum({c.m, c.n}, c.type == i8 ? i32 : f32, 3);
      pipelined(c.steps, {.stages = 2}, [&](Index k) {
        const int columns = c.depth / 8;
        Shared own({c.m, c.depth / 2}, c.type), loaded({c.m, c.together * columns}, u8);
        Shared other({c.along_k ? c.n : c.depth, c.along_k ? c.depth : c.n}, c.type);
        copy(values.at(0, k * (c.depth / 2)), own);
        copy(metadata.at(0, k / c.together * (c.together * columns)), loaded);
        const Shared places = c.together == 1
                                  ? std::move(loaded)
                                  : loaded.reshape({c.m, c.together, columns}).slice(all, k % c.together);
        copy(c.along_k ? b.at(0, k * c.depth) : b.at(k * c.depth, 0), other);
        if (c.along_k)
          gemm_sparse(own, places, other.T(), sum);
        else
          gemm_sparse(own, places, other, sum);
      });
      copy(map(sum, [&](Index i, Index j) { return f32(sum(i, j)); }), out.at(0, 0));
    });
  });
}

Tensor metadata_of(const SparseProduct& c) {
  constexpr int codes[] = {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110};
  const Shape shape{c.m, c.depth * c.steps / 8};
  const Tensor chosen = Tensor::random_integers(shape, i32, 3, 0, 36), result = Tensor::empty(shape, u8);
  for (std::int64_t i = 0; i < chosen.nelements(); ++i) {
    const int at = chosen.data_as<std::int32_t>()[i];
    const bool is_zero = i / shape[1] < c.zeros;
    result.data_as<std::uint8_t>()[i] =
        static_cast<std::uint8_t>(is_zero ? 0 : codes[at % 6] | codes[at / 6] << 4);
  }
  return result;
}

class SparseProducts : public ::testing::TestWithParam<SparseProduct> {};

TEST_P(SparseProducts, AreExact) {
  const Watchdog watchdog("sparse products", most_time);
  const SparseProduct& c = GetParam();
  const lang::Kernel program = product_of(c);
  const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
  if (c.instruction)
    EXPECT_NE(text.find(c.instruction), std::string::npos) << text;
  else
    EXPECT_EQ(text.find("mma_async.sp"), std::string::npos) << text;
  const std::string of_warps = codegen::print_cuda(Signature(program.ir()), {80}).text;
  const bool by_warps = c.type.bits() == 16 && c.depth % 64 == 0;
  EXPECT_EQ(of_warps.find("tg::mma_sparse<") != std::string::npos, by_warps) << of_warps;
  if (const auto* nvrtc = codegen::testing::Nvrtc::find()) {
    const codegen::testing::Compiled compiled = nvrtc->compile(text, 90),
                                     other = nvrtc->compile(of_warps, 80);
    EXPECT_TRUE(compiled.ok && other.ok) << compiled.log << other.log;
    EXPECT_EQ(compiled.log.find("serializ"), std::string::npos) << compiled.log;
  }
  const int k = c.depth * c.steps;
  const Shape b = c.along_k ? Shape{c.n, k} : Shape{k, c.n};
  expect_as_interpreted(program,
                        {Tensor::random_integers({c.m, k / 2}, i32, 1, -4, 5).to(c.type), metadata_of(c),
                         Tensor::random_integers(b, i32, 2, -4, 5).to(c.type)},
                        {c.m, c.n}, 0, {Target::cpu(), Target::emulated(), Target::emulated_sm90()});
}

const SparseProduct cases[] = {
    {"f16", f16, 64, 24, 64, 3, true, "wgmma_n24_f16_sparse1("},
    {"bf16_across_k", bf16, 128, 64, 128, 2, false, "wgmma_n64_bf16_tb_sparse0("},
    {"e4m3", e4m3, 64, 32, 128, 2, true, "wgmma_n32_e4m3_sparse0("},
    {"i8_rows_outside", i8, 64, 32, 256, 2, true, "wgmma_n32_s8_sparse0(", 9},
    {"halves_of_metadata", bf16, 192, 64, 64, 4, true, "(row) * 2 + int((", 0, 2},
    {"by_warps", f16, 48, 24, 64, 2, true, "tg::mma_sparse<tg::f16"},
    {"by_warps_across_k", bf16, 80, 40, 128, 2, false, "tg::mma_sparse<tg::bf16"},
    {"e5m2_across_k", e5m2, 64, 16, 64, 1, false, nullptr},
    {"few_rows", bf16, 40, 16, 24, 2, true, nullptr, 3},
};
INSTANTIATE_TEST_SUITE_P(All, SparseProducts, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace sparse_products_test
}  // namespace tegula::emulation
