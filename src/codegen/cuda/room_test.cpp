// Room in shared memory: what comes early takes what all else leaves.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/cuda_program.hpp"
#include "tegula/tegula.hpp"

namespace tegula::codegen {
namespace room_test {

using namespace lang;

// A list that both roles read, beside slots of 48 KB.
lang::Kernel with_list(int stages, int words) {
  return kernel("with_list", [&] {
    Dim M("M"), N("N"), K("K");
    lang::Tensor A = input("A", {M, K}, bf16), B = input("B", {K, N}, bf16), C = output("C", {M, N}, bf16),
                 L = input("L", {words}, i32);
    grid(ceildiv(N, 256), ceildiv(M, 128), [&](Index x, Index y) {
      Shared list({words}, i32);
      serial(words, [&](Index i) { list(i) = L(i); });
      Fragment sum({128, 256}, f32, 0);
      pipelined(K / 64, {.stages = stages}, [&](Index i) {
        Expr s = list(i);
        Shared a({128, 64}, bf16), b({64, 256}, bf16);
        lang::copy(A.at(y * 128, s * 64), a);
        lang::copy(B.at(s * 64, x * 256), b);
        lang::gemm(a, b, sum);
      });
      lang::copy(sum, C.at(y * 128, x * 256));
    });
  });
}

// Sums over parts of rows, if there are not a power of two, go through shared memory; q could come while the
// block before ends.
lang::Kernel with_conversion(int stages, int queries) {
  return kernel("with_conversion", [&] {
    Dim S("S"), T("T");
    lang::Tensor Q = input("Q", {T, queries, 128}, bf16), K = input("K", {S, 128}, bf16),
                 O = output("O", {T, queries / 16, S}, f32);
    grid(T, {.threads = 256}, [&](Index t) {
      Shared q({queries, 128}, bf16);
      lang::copy(Q.slice(t).at(0), q);
      pipelined(ceildiv(S, 64), {.stages = stages}, [&](Index j) {
        Shared k({64, 128}, bf16);
        lang::copy(K.at(j * 64), k);
        Fragment s({queries, 64}, f32, 0);
        lang::gemm(q, k.T(), s);
        lang::copy(reduce_sum(s.reshape({queries / 16, 16, 64}), 1), O.slice(t).at(0, j * 64));
      });
    });
  });
}

// A tile of 98 KB and a vector, made by all threads, beside slots of 64 KB.
lang::Kernel with_own_tiles(int stages, int small) {
  return kernel("with_own_tiles", [&] {
    Dim S("S");
    lang::Tensor A = input("A", {S, 128}, bf16), B = input("B", {S, 128}, bf16),
                 F = input("F", {784, 64}, bf16), G = input("G", {small}, f32),
                 O = output("O", {128, 128}, f32);
    grid(1, [&](Index) {
      Shared fixed({784, 64}, bf16), g({small}, f32);
      parallel(fixed, [&](Index i, Index j) { fixed(i, j) = F(i, j); });
      parallel(small, [&](Index i) { g(i) = G(i); });
      Fragment c({128, 128}, f32, 0);
      pipelined(ceildiv(S, 128), {.stages = stages}, [&](Index s) {
        Shared a({128, 128}, bf16), b({128, 128}, bf16);
        lang::copy(A.at(s * 128, 0), a);
        lang::copy(B.at(s * 128, 0), b);
        lang::gemm(a, b.T(), c);
      });
      parallel(c, [&](Index i, Index j) {
        c(i, j) += fixed(i, j % 64) * g(j);
        O(i, j) = c(i, j);
      });
    });
  });
}

// Two loops one after the other, whose tiles are in the same memory where none comes early.
lang::Kernel with_two_loops(int stages) {
  return kernel("with_two_loops", [&] {
    Dim K("K");
    lang::Tensor A = input("A", {128, K}, bf16), B = input("B", {256, K}, bf16),
                 C = output("C", {128, 256}, f32);
    grid(1, [&](Index) {
      Fragment sum({128, 256}, f32, 0);
      for (int loop = 0; loop < 2; ++loop) {
        pipelined(ceildiv(K, 192), {.stages = stages}, [&](Index s) {
          Shared a({128, 192}, bf16), b({256, 192}, bf16);
          lang::copy(A.at(0, s * 192), a);
          lang::copy(B.at(0, s * 192), b);
          lang::gemm(a, b.T(), sum);
        });
      }
      lang::copy(sum, C.at(0, 0));
    });
  });
}

// Neither the stages that are asked for, nor what comes a block early, nor buffers of stores.
TEST(Room, HintsDoNotDecideWhetherAKernelIsAccepted) {
  const auto accepted = [](const lang::Kernel& kernel, int stages, int size) {
    for (const bool copy_engine : {true, false}) {
      const Signature signature(kernel.ir());
      std::size_t bytes = 0;
      EXPECT_NO_THROW(bytes = print_cuda(signature, {90, copy_engine}).kernels[0].shared_bytes)
          << kernel.name() << ", stages " << stages << ", " << size;
      EXPECT_LE(bytes, 227 * 1024) << kernel.name() << ", stages " << stages << ", " << size;
    }
  };
  for (int stages = 0; stages <= 6; ++stages) {
    for (const int words : {256, 512, 768, 1024, 4096, 16384})
      accepted(with_list(stages, words), stages, words);
    for (const int queries : {128, 256, 384}) accepted(with_conversion(stages, queries), stages, queries);
    for (const int small : {128, 256, 512, 1024}) accepted(with_own_tiles(stages, small), stages, small);
    accepted(with_two_loops(stages), stages, 192);
  }
}

TEST(Room, WhatDoesNotFitIsListed) {
  const lang::Kernel large = kernel("large", [] {
    lang::Tensor X = input("X", {512, 256}, f32), Y = output("Y", {512, 256}, f32);
    grid(1, [&](Index) {
      Shared x({512, 256}, f32), y({16, 8}, f32);
      lang::copy(X.at(0, 0), x);
      parallel(y, [&](Index i, Index j) { y(i, j) = x(i * 2, j); });
      parallel(x, [&](Index i, Index j) { Y(i, j) = x(i, j) + y(i % 16, j % 8); });
    });
  });
  try {
    print_cuda(Signature(large.ir()), {90});
    FAIL() << "524288 bytes were accepted";
  } catch (const ProgramError& error) {
    const std::string text = error.what();
    for (const char* words :
         {"take 524800 bytes at once, a block has 232448",
          "\n  524288 bytes: f32[512, 256], room_test.cpp:", "\n  512 bytes: f32[16, 8], room_test.cpp:"})
      EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

}  // namespace room_test
}  // namespace tegula::codegen
