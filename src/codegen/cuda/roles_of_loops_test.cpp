// Loops of a block with roles, as text: their slots, what they divide, and what they read ahead.
#include <gtest/gtest.h>

#include "codegen/cuda_program.hpp"
#include "tegula/lang.hpp"

namespace tegula::codegen {
namespace {

// A product may not wait for the tile of the next step, whose only slot it reads itself. And memory of such
// a slot is taken: tiles that come once have no second one.
TEST(RolesOfLoops, MultipliesFromOneSlot) {
  using namespace lang;
  const lang::Kernel one = kernel("one_slot", [] {
    lang::Tensor A = input("A", {256, 256}, bf16), B = input("B", {256, 2080}, bf16),
                 C = output("C", {256, 208}, f32);
    grid(2, {.threads = 256}, [&](Index x) {
      Shared a({128, 256}, bf16);
      lang::copy(A.at(x * 128, 0), a);
      Fragment sum({128, 208}, f32, 0);
      pipelined(10, {.stages = 1}, [&](Index n) {
        Shared b({256, 208}, bf16);
        lang::copy(B.at(0, n * 208), b);
        lang::gemm(a, b, sum);
      });
      lang::copy(sum, C.at(x * 128, 0));
    });
  });
  const CudaProgram program = print_cuda(Signature(one.ir()), {90});
  EXPECT_NE(program.text.find("// ---- producer"), std::string::npos);
  EXPECT_LE(program.kernels[0].shared_bytes, 227 * 1024);
}

// NVRTC took seconds for a division, whose signs are tested, of every element that a thread stores.
TEST(RolesOfLoops, DividesWhatALoopReadsOnce) {
  using namespace lang;
  const lang::Kernel tiles = kernel("tiles", [] {
    Dim N("N"), K("K");
    Expr parts = scalar("parts", i32);
    lang::Tensor A = input("A", {N, K}, bf16), B = input("B", {64, K}, bf16), C = output("C", {N, 64}, f32);
    grid(4, {.threads = 128}, [&](Index x) {
      Var step = x * 3;
      loop_while([&] { return step < 100; },
                 [&] {
                   Expr row = step / parts * 64;
                   Fragment sum({64, 64}, f32, 0);
                   pipelined(ceildiv(K, 64), [&](Index n) {
                     Shared a({64, 64}, bf16), b({64, 64}, bf16);
                     lang::copy(A.at(row, n * 64), a);
                     lang::copy(B.at(0, n * 64), b);
                     lang::gemm(a, b.T(), sum);
                   });
                   lang::copy(sum, C.at(row, 0));
                   step += 5;
                 });
    });
  });
  const std::string text = print_cuda(Signature(tiles.ir()), {90}).text, division = "tg::div<int32_t>(";
  ASSERT_NE(text.find("// ---- producer"), std::string::npos);
  int count = 0;
  for (std::size_t at = 0; (at = text.find(division, at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 2) << text;
}

// Rows that a producer converts, and what else it reads for each of them, are on their way while it waits for
// a slot; a tile all of whose rows exist asks once, and in others a row that does not exist leaves vectors to
// the others. A number that the step looks up is read a step ahead itself, and lines of its rows, which are at
// equal distances, are prefetched; one that another number leads to is not.
TEST(RolesOfLoops, ReadsRowsToConvertAStepAhead) {
  using namespace lang;
  enum class First { of_step, looked_up, looked_up_twice };
  const auto text = [](First of) {
    const lang::Kernel program = kernel("rows", [&] {
      Dim K("K");
      Expr scale = scalar("scale", f32);
      lang::Tensor A = input("A", {128, 128}, bf16), B = input("B", {K, 128}, e4m3),
                   numbers = input("n", {K}, i32), factors = input("factors", {K}, f32),
                   C = output("C", {128, 128}, f32);
      grid(4, {.threads = 256}, [&](Index) {
        Shared a({128, 128}, bf16);
        lang::copy(A, a);
        Fragment sum({128, 128}, f32, 0);
        pipelined(ceildiv(K, 128), {.stages = 2}, [&](Index n) {
          Shared b({128, 128}, bf16), f({128}, f32);
          const auto bring = [&](const Expr& first) {
            parallel(b, [&](Index t, Index d) { b(t, d) = B(first + t, d) * scale; });
          };
          if (of == First::of_step)
            bring(n * 128);
          else if (of == First::looked_up)
            bring(numbers(n));
          else
            bring(numbers(numbers(n)));
          parallel(f, [&](Index t) { f(t) = factors(n * 128 + t); });
          Fragment p({128, 128}, f32, 0);
          lang::gemm(a, b.T(), p);
          parallel(p, [&](Index r, Index t) { p(r, t) = p(r, t) * f(t) * scale; });
          Fragment weights = p.to(bf16);
          lang::gemm(weights, b, sum);
        });
        lang::copy(sum, C);
      });
    });
    return print_cuda(Signature(program.ir()), {90}).text;
  };
  const std::string ahead = text(First::of_step), once = text(First::looked_up),
                    twice = text(First::looked_up_twice), mark = ": read a step ahead";
  ASSERT_NE(ahead.find("// ---- producer"), std::string::npos);
  EXPECT_NE(ahead.find(mark), std::string::npos) << ahead;
  EXPECT_NE(ahead.find(mark, ahead.find(mark) + 1), std::string::npos) << "the factors as well";
  EXPECT_NE(ahead.find("< K_ ? tg::load_pack<16>(B_"), std::string::npos) << ahead;
  EXPECT_NE(ahead.find("[r] = tg::load_pack<16>(B_"), std::string::npos) << ahead;
  EXPECT_NE(ahead.find("+ 2) < tg::"), std::string::npos)
      << "and those of the step after the next prefetched";
  EXPECT_NE(ahead.find("tg::prefetch(B_"), std::string::npos) << ahead;
  EXPECT_NE(once.find("tg::prefetch(B_"), std::string::npos) << "rows at equal distances are not held: " << once;
  EXPECT_EQ(once.find(mark), std::string::npos) << once;
  EXPECT_EQ(twice.find(mark), std::string::npos) << twice;
}

// Products of eight rows, one of which begins at columns that warp groups do not take.
TEST(RolesOfLoops, StoresSumsOfUnlikeProductsByThreads) {
  using namespace lang;
  const lang::Kernel unlike = kernel("unlike", [] {
    Dim N("N");
    lang::Tensor A = input("A", {8, 64}, f16), B = input("B", {N, 64}, f16), C = output("C", {8, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared a({8, 64}, f16);
      lang::copy(A, a);
      Fragment sum({8, 64}, f32, 0);
      pipelined(ceildiv(N, 64), {.stages = 2}, [&](Index n) {
        Shared b({64, 64}, f16);
        lang::copy(B.at(n * 64, 0), b);
        lang::gemm(a.slice(all, range(8, 40)), b.slice(all, range(8, 40)).T(), sum);
        lang::gemm(a, b, sum);
      });
      lang::copy(sum, C);
    });
  });
  EXPECT_EQ(print_cuda(Signature(unlike.ir()), {90}).text.find("store_box"), std::string::npos);
}

}  // namespace
}  // namespace tegula::codegen
