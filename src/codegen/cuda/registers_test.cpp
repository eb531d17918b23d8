// Tiles against the registers of a thread: what is accepted, with how many threads, and what ptxas makes of
// it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "codegen/cuda/testing/nvrtc.hpp"
#include "codegen/cuda_program.hpp"
#include "cuda/compile.hpp"
#include "passes/cuda/cuda_passes.hpp"
#include "tegula/tegula.hpp"

namespace tegula::codegen {
namespace registers_test {

using namespace lang;
using tegula::Target;

struct ProductTile {
  DType type;
  int m, n, warp_groups = 0;  // 0: the compiler chooses
};

lang::Kernel product_of(const ProductTile& t, int blocks_per_processor = 0) {
  return kernel("product", [&] {
    const int k = 128 / t.type.bytes();
    Dim M("M"), N("N"), K("K");
    lang::Tensor A = input("A", {M, K}, t.type), B = input("B", {N, K}, t.type),
                 C = output("C", {M, N}, bf16);
    grid(ceildiv(N, t.n), ceildiv(M, t.m),
         {.threads = 128 * t.warp_groups, .blocks_per_processor = blocks_per_processor},
         [&](Index x, Index y) {
           Fragment sum({t.m, t.n}, f32, 0);
           pipelined(ceildiv(K, k), [&](Index s) {
             Shared a({t.m, k}, t.type), b({t.n, k}, t.type);
             lang::copy(A.at(y * t.m, s * k), a);
             lang::copy(B.at(x * t.n, s * k), b);
             lang::gemm(a, b.T(), sum);
           });
           lang::copy(sum, C.at(y * t.m, x * t.n));
         });
  });
}

std::string name_of(const ProductTile& t) {
  return fmt::format("{}, {} x {}, {} warp groups", t.type.name(), t.m, t.n, t.warp_groups);
}

CudaProgram printed(const lang::Kernel& kernel) { return print_cuda(Signature(kernel.ir()), {90}); }

std::string error_of(const lang::Kernel& kernel) {
  try {
    printed(kernel);
  } catch (const ProgramError& error) { return error.what(); }
  return "";
}

bool has(const std::vector<std::string>& notes, const char* words) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

// Clean code, our own error, or a note that says what spills.
enum class Fate { clean, refused, spills };

Fate fate_of(const ProductTile& t, const testing::Nvrtc& nvrtc) {
  const lang::Kernel kernel = product_of(t);
  if (const std::string error = error_of(kernel); !error.empty()) {
    EXPECT_NE(error.find(fmt::format("the accumulators of {} x {} take", t.m, t.n)), std::string::npos)
        << error;
    return Fate::refused;
  }
  const CudaProgram program = printed(kernel);
  const testing::Compiled compiled = nvrtc.compile(program.text, 90);
  EXPECT_TRUE(compiled.ok) << name_of(t) << "\n" << compiled.log;
  int spilled = 0;
  for (const cuda::Resources& r : cuda::read_resources(compiled.log)) spilled += r.spill_store_bytes;
  if (spilled == 0) return Fate::clean;
  EXPECT_TRUE(has(passes::format(program.notes), "local memory")) << name_of(t) << " spills " << spilled;
  return Fate::spills;
}

std::vector<ProductTile> tiles() {
  std::vector<ProductTile> result;
  for (const DType type : {bf16, e4m3})
    for (const int m : {64, 128, 192, 256})
      for (int n = 24; n <= 256; n += 8)
        for (const int warp_groups : {0, 1, 2, 3, 4}) result.push_back({type, m, n, warp_groups});
  return result;
}

// TEGULA_TILES=all: every tile, an hour; else some, which differ in all that is swept.
TEST(Registers, EveryTileIsCleanOrRefusedOrNoted) {
  const testing::Nvrtc* nvrtc = testing::Nvrtc::find();
  if (!nvrtc) GTEST_SKIP() << "NVRTC was not found";
  const char* wanted = std::getenv("TEGULA_TILES");
  const std::size_t step = wanted && std::string(wanted) == "all" ? 1 : 157;
  const std::vector<ProductTile> all = tiles();
  int fates[3] = {};
  for (std::size_t i = 3; i < all.size(); i += step) {
    const Fate fate = fate_of(all[i], *nvrtc);
    ++fates[static_cast<int>(fate)];
    if (step == 1 && fate == Fate::spills) std::cout << name_of(all[i]) << " spills\n";
  }
  std::cout << fmt::format("{} clean, {} refused, {} spill\n", fates[0], fates[1], fates[2]);
  EXPECT_GT(fates[0], fates[1] + fates[2]);
}

// Where one warp group for 64 rows has too few registers, others help.
TEST(Registers, ThreadsAreChosenSoThatSumsFit) {
  for (const auto& [tile, threads] : {std::pair(ProductTile{bf16, 64, 128}, 256),
                                      {ProductTile{bf16, 64, 192}, 256},
                                      {ProductTile{bf16, 64, 224}, 384},
                                      {ProductTile{bf16, 64, 256}, 384},
                                      {ProductTile{bf16, 128, 256}, 384},
                                      {ProductTile{bf16, 192, 192}, 512},
                                      {ProductTile{bf16, 192, 256}, 384},
                                      {ProductTile{bf16, 256, 128}, 640},
                                      {ProductTile{bf16, 256, 160}, 384},
                                      {ProductTile{bf16, 256, 192}, 384},
                                      {ProductTile{bf16, 64, 512}, 384},
                                      {ProductTile{e4m3, 64, 256}, 384}}) {
    const CudaProgram program = printed(product_of(tile));
    EXPECT_EQ(program.kernels[0].threads, threads) << name_of(tile);
    EXPECT_NE(program.text.find("wgmma_n"), std::string::npos) << name_of(tile);
  }
}

TEST(Registers, VectorsCountAsMatricesDo) {
  for (const bool is_vector : {true, false}) {
    const CudaProgram program = printed(kernel("row", [&] {
      lang::Tensor X = input("X", {4, 16384}, f32), Y = output("Y", {4, 16384}, f32);
      grid(4, [&](Index r) {
        if (is_vector) {
          Fragment vector({16384}, f32);
          lang::copy(X.slice(r), vector);
          lang::copy(vector, Y.slice(r));
        } else {
          Fragment matrix({1, 16384}, f32);
          lang::copy(X.at(r, 0), matrix);
          lang::copy(matrix, Y.at(r, 0));
        }
      });
    }));
    EXPECT_EQ(program.kernels[0].threads, 256) << is_vector;
  }
}

struct Refusal {
  ProductTile tile;
  const char* words;
};

// On the target that only emulates ptxas's as well, at the line of the product.
TEST(Registers, WhatCannotFitIsRefusedWithItsNumbers) {
  for (const Refusal& r :
       {Refusal{{bf16, 256, 256},
                "take 154 registers of a thread of the 4 warp groups, a thread has "
                "96 when it begins: use smaller tiles"},
        {{bf16, 256, 256, 2}, "take 282 registers of a thread of the 2 warp groups, a thread has 240"},
        {{bf16, 192, 256, 3}, "smaller tiles or .threads = 256"},
        {{bf16, 256, 160, 4}, "smaller tiles or .threads = 256"},
        {{bf16, 128, 256, 1}, "the one warp group"},
        {{bf16, 128, 512, 4}, "take 154 registers"}}) {
    const std::string error = error_of(product_of(r.tile));
    EXPECT_NE(error.find(r.words), std::string::npos) << name_of(r.tile) << ": " << error;
    EXPECT_NE(error.find("registers_test.cpp:"), std::string::npos) << error;
    EXPECT_THROW(compile(product_of(r.tile), Target::emulated_sm90()), ProgramError) << name_of(r.tile);
    EXPECT_EQ(error.find("C7602"), std::string::npos);
  }
}

TEST(Registers, BlocksOfAProcessorAreFollowedOrNoted) {
  const auto bounds = [](const ProductTile& tile, int blocks, const char* expected, bool noted) {
    const CudaProgram program = printed(product_of(tile, blocks));
    EXPECT_NE(program.text.find(fmt::format("__launch_bounds__({})", expected)), std::string::npos)
        << name_of(tile) << ", " << blocks << program.text.substr(program.text.find("__launch_bounds__"), 30);
    EXPECT_EQ(has(passes::format(program.notes), ".blocks_per_processor"), noted)
        << name_of(tile) << ", " << blocks;
  };
  const ProductTile one{bf16, 64, 128, 1};
  bounds(one, 0, "256, 2", false);
  bounds(one, 1, "256, 1", false);
  bounds(one, 2, "256, 2", false);
  bounds(one, 3, "160, 3", false);
  bounds(one, 4, "160, 3", true);
  bounds({bf16, 64, 256, 1}, 2, "256, 1", true);
  bounds({bf16, 128, 128, 2}, 2, "384, 1", true);
}

// More threads than a block can have, with those that load, leave all threads with the same.
TEST(Registers, BlocksOf1024ThreadsHaveNoProducer) {
  const CudaProgram program = printed(product_of({bf16, 128, 128, 8}));
  EXPECT_EQ(program.kernels[0].threads, 1024);
}

// Rows of two parts are multiplied one after the other, with one set of sums.
lang::Kernel listed_steps() {
  return kernel("numbers", [] {
    Dim K("K");
    lang::Tensor a = input("a", {256, K}, bf16), b = input("b", {64, K}, bf16),
                 f = input("factors", {K}, f32), list = input("list", {K}, i32),
                 c = output("c", {256, 64}, f32);
    grid(1, {.threads = 256}, [&](Index) {
      Fragment upper({128, 64}, f32, 0), lower({128, 64}, f32, 0), part({128, 64}, f32);
      pipelined(ceildiv(K, 64), {.stages = 2}, [&](Index n) {
        Shared x({256, 64}, bf16), y({64, 64}, bf16);
        Expr at = list(n) * 64;
        lang::copy(a.at(0, at), x);
        lang::copy(b.at(0, at), y);
        Expr factor = f(n);
        int first = 0;
        for (Fragment* sum : {&upper, &lower}) {
          fill(part, 0);
          lang::gemm(x.slice(range(first, first + 128), all), y.T(), part);
          parallel(*sum, [&](Index i, Index j) { (*sum)(i, j) += part(i, j) * factor; });
          first += 128;
        }
      });
      lang::copy(upper, c.at(0, 0));
      lang::copy(lower, c.at(128, 0));
    });
  });
}

// Numbers that a step multiplies by are read from an address of each thread, those that select what is loaded
// from one of all.
TEST(StepReads, AreOfNumbersFromAddressesOfThreads) {
  const std::string text = print_cuda(Signature(listed_steps().ir()), {90}).text;
  EXPECT_NE(text.find("const float* at_ = factors_ + tg::zero_of_thread();"), std::string::npos) << text;
  EXPECT_NE(text.find(" = list_;"), std::string::npos) << text;
}

}  // namespace registers_test
}  // namespace tegula::codegen
