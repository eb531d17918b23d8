// Printed CUDA, without a GPU: the kernels of all operators pass NVRTC for both architectures, and what the
// assembler says of their registers is as it should be.
#include <gtest/gtest.h>

#include <iostream>

#include "codegen/cuda/sync_rules.hpp"
#include "codegen/cuda/testing/texts.hpp"
#include "ops/attention/kernel.hpp"
#include "ops/products/matrix_product.hpp"
#include "ops/registry.hpp"
#include "ops/testing/covering.hpp"

namespace tegula::codegen {
namespace {

// By the name of an operator.
class PrintedCuda : public ::testing::TestWithParam<std::string> {
 protected:
  // Compiling is slow.
  static void expect_clean_examples(Target target, int architecture) {
    const ops::Operator& op = ops::find_operator(GetParam());
    for (const ops::Case* example : ops::covering_cases(op)) {
      SCOPED_TRACE(example->name);
      const ops::Options options = ops::Options::parse(op, example->options);
      for (const lang::Kernel& kernel : op.kernels(example->inputs(1), options, target))
        expect_clean_code(kernel, architecture);
    }
  }
};

TEST_P(PrintedCuda, Compiles) { expect_clean_examples(Target::cuda(), 90); }
TEST_P(PrintedCuda, CompilesForAmpere) { expect_clean_examples(Target::cuda_sm80(), 80); }

INSTANTIATE_TEST_SUITE_P(Operators, PrintedCuda, ::testing::ValuesIn(ops::operator_names()),
                         [](const auto& info) { return info.param; });

// Chosen bits that are turned are one instruction, on whatever side they stand, unless they have a name.
TEST(PrintedBits, TurnsChosenBitsByOneInstruction) {
  const lang::Kernel bits = lang::kernel("bits", [] {
    using namespace lang;
    lang::Tensor x = input("x", {64}, u32), y = output("y", {4, 64}, u32);
    grid(1, {.threads = 128}, [&](Index) {
      parallel(64, [&](Index i) {
        y(0, i) = (x(i) & 0xf0u) ^ 0x43000000u;
        y(1, i) = u32(i) ^ (x(i) & 15u);
        Expr named = x(i) & 7u;
        y(2, i) = (named ^ 1u) + named;
        y(3, i) = (x(i) & 3u) | 4u;
      });
    });
  });
  expect_clean_code(bits, 90);
  const std::string text = print_cuda(Signature(bits.ir()), {90}).text;
  const auto count = [&](std::string_view name) {
    std::size_t times = 0;
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) ++times;
    return times;
  };
  EXPECT_EQ(count("masked_xor"), 2) << text;
  EXPECT_EQ(count("masked_or"), 1) << text;
  for (const Target target : {Target::interpreter(), Target::emulated()}) {
    const Tensor x = Tensor::random_integers({64}, i32, 1, 0, 1 << 30).to(u32);
    const Tensor y = Tensor::zeros({4, 64}, u32);
    compile(bits, target)(x, y);
    for (std::int64_t i = 0; i < 64; ++i) {
      const auto given = x.at<std::uint32_t>(i);
      EXPECT_EQ(y.at<std::uint32_t>(0, i), (given & 0xf0U) ^ 0x43000000U);
      EXPECT_EQ(y.at<std::uint32_t>(1, i), (given & 15U) ^ i);
      EXPECT_EQ(y.at<std::uint32_t>(2, i), ((given & 7U) ^ 1U) + (given & 7U));
      EXPECT_EQ(y.at<std::uint32_t>(3, i), (given & 3U) | 4U);
    }
  }
}

// Tiles of the sizes that suit GPUs.
std::vector<lang::Kernel> large_kernels() {
  std::vector<lang::Kernel> result;
  for (const DType type : {bf16, f32}) {
    for (const ops::GemmTiles tiles : {ops::GemmTiles{128, 128, 32}, {64, 64, 64}, {128, 128, 64}}) {
      if (type == f32 && tiles.k > 32) continue;
      ops::GemmKernel gemm;
      gemm.type = gemm.compute = gemm.out = type;
      gemm.tiles = tiles;
      result.push_back(gemm_kernel(gemm));
    }
  }
  for (const int dim : {64, 128}) {
    ops::AttentionKernel attention;
    attention.type = attention.compute = bf16;
    attention.dim = attention.dim_v = dim;
    attention.queries = attention.keys = 128;
    attention.right = true;
    result.push_back(attention_kernel(attention));
  }
  return result;
}

// Registers of elements that do not exist hold anything, also what a division reports.
TEST(PrintedDivisions, AreRunForElementsThatExist) {
  const auto asks = [](int divisor) {
    const lang::Kernel program = lang::kernel("divided", [&] {
      lang::Dim m("m");
      lang::Tensor x = lang::input("x", {m, 300}, i32), y = lang::output("y", {m, 300}, i32);
      lang::grid(m, {.threads = 128}, [&](lang::Index row) {
        lang::Fragment a = lang::load(x.at(row), {1, 300}, i32);
        lang::parallel(a, [&](lang::Index i, lang::Index j) { a(i, j) = a(i, j) / divisor; });
        lang::copy(a, y.at(row));
      });
    });
    const std::string text = print_cuda(Signature(program.ir()), {90}).text;
    return text.find("< 300) {") != std::string::npos;
  };
  EXPECT_FALSE(asks(3));
  EXPECT_TRUE(asks(-1));
}

TEST(PrintedCuda, LargeTilesCompile) {
  for (const lang::Kernel& kernel : large_kernels())
    for (const int architecture : {90, 80}) expect_good_code(kernel, architecture);
}

// Of so many blocks and steps as there are whole tiles, every element exists; of one more, none may.
TEST(PrintedCuda, AsksForNoLimitsOfWholeTiles) {
  const auto asks = [](int more) {
    const lang::Kernel program = lang::kernel("whole", [&] {
      using namespace lang;
      Dim N("N"), W("W");
      lang::Tensor x = input("x", {N, W}, f32), scale = input("scale", {N, W / 16}, f32);
      lang::Tensor y = output("y", {N}, f32);
      grid(N / 2, {.threads = 32}, [&](Index block) {
        Fragment sum({32}, f32, 0);
        serial(W / 128 + more, [&](Index step) {
          parallel(sum, [&](Index lane) {
            Expr at = step * 128 + lane * 4, row = block * 2 + 1;
            sum(lane) += x(row, at + 3) * scale(row, at / 16);
          });
        });
        y(block * 2 + 1) = reduce_sum(sum).scalar();
      });
    });
    return print_cuda(Signature(program.ir()), {90}).text.find("? tg::load") != std::string::npos;
  };
  EXPECT_FALSE(asks(0));
  EXPECT_TRUE(asks(1));
}

// What GPUs newer than Hopper get: the text for 8.0, which nobody has run there.
TEST(PrintedCuda, CompilesForBlackwell) {
  constexpr int first_that_knows_it = 12080, blackwell = 100;
  const cuda::Nvrtc* nvrtc = cuda::find_nvrtc();
  if (!nvrtc || nvrtc->version() < first_that_knows_it) GTEST_SKIP() << "no NVRTC of 12.8 or newer";
  const std::vector<lang::Kernel> kernels = large_kernels();
  for (const lang::Kernel* kernel : {&kernels.front(), &kernels.back()}) {
    const Signature signature(kernel->ir());
    EXPECT_EQ(print_cuda(signature, {blackwell}).text, print_cuda(signature, {80}).text);
    expect_good_code(*kernel, blackwell);
  }
}

// ---- barriers

constexpr MemoryUse R = MemoryUse::read, W = MemoryUse::write, A = MemoryUse::combine;

Step code(MemoryUse use, std::int64_t at, bool by_one = false) {
  Step step;
  step.touches.push_back({{-1, at, at + 16}, use, by_one});
  return step;
}

Step in_half(MemoryUse use) {
  Step step = code(use, 0);
  step.touches[0].half = 0;
  return step;
}

// A loop with memory whose halves alternate.
Step alternating(std::vector<Step> body) {
  Step step;
  step.kind = StepKind::loop;
  step.body = std::move(body);
  step.alternating = {0};
  return step;
}

Step of_tensor(MemoryUse use) {
  Step step = code(use, 0);
  step.touches[0].memory.tensor = 0;
  return step;
}

Step around(StepKind kind, std::vector<Step> body) {
  Step step;
  step.kind = kind;
  step.body = std::move(body);
  step.barrier = "group";
  return step;
}

// A loop whose steps touch places of their own of tensor 0.
Step apart(std::vector<Step> body) {
  Step step = around(StepKind::loop, std::move(body));
  step.apart = {0};
  return step;
}

// Where slots that all threads fill begin to be used, and where the loop that uses them is over.
Step slots(int ring, bool is_over = false) {
  Step step = code(W, 0);
  step.touches[0].ring = ring, step.touches[0].is_over = is_over;
  return step;
}

// One letter a step: r, w, a; | for a barrier, ! for that of a group, parentheses around bodies.
std::string sketch(const std::vector<Step>& steps) {
  std::string result;
  for (const Step& step : steps) {
    if (step.kind != StepKind::code)
      result += "(" + sketch(step.body) + ")";
    else if (step.touches.empty())
      result += step.lines.empty() ? "." : step.lines[0] == "group" ? "!" : "|";
    else
      result += step.touches[0].use == R ? "r" : step.touches[0].use == W ? "w" : "a";
  }
  return result;
}

constexpr const char* block_barrier = "tg::block_sync();";

// The steps once for each of their barriers, without that one.
std::vector<std::vector<Step>> without_a_barrier(const std::vector<Step>& steps) {
  std::vector<std::vector<Step>> result;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::vector<Step> less = steps;
    if (steps[i].kind == StepKind::code && steps[i].touches.empty() && !steps[i].lines.empty()) {
      less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
      result.push_back(std::move(less));
      continue;
    }
    for (std::vector<Step>& body : without_a_barrier(steps[i].body)) {
      less[i].body = std::move(body);
      result.push_back(less);
    }
  }
  return result;
}

TEST(PlaceSync, OrdersWhatDoesNotCommute) {
  struct Case {
    std::vector<Step> steps;
    std::string expected;
  };
  const auto loop = StepKind::loop, branch = StepKind::branch, otherwise = StepKind::otherwise;
  Step leave;
  leave.leaves = true;
  const std::vector<Case> cases{
      {{code(W, 0), code(R, 0)}, "w|r"},
      {{code(R, 0), code(W, 0)}, "r|w"},
      {{code(W, 0), code(W, 0)}, "w|w"},
      {{code(R, 0), code(R, 0)}, "rr"},
      {{code(A, 0), code(A, 0), code(R, 0)}, "aa|r"},
      {{code(W, 0), code(A, 0)}, "w|a"},
      {{code(W, 0), code(W, 16), code(R, 0), code(R, 16)}, "ww|rr"},
      {{code(W, 0), code(R, 8)}, "w|r"},
      {{code(W, 0, true), code(W, 0, true), code(R, 0)}, "ww|r"},
      {{around(loop, {code(W, 0), code(R, 0)})}, "(|w|r)"},
      {{around(loop, {code(R, 0), code(R, 16)}), code(W, 0)}, "(rr)|w"},
      {{code(W, 0), around(loop, {code(R, 0)})}, "w|(r)"},
      {{code(W, 16), around(loop, {code(W, 0), code(R, 0), code(R, 16)})}, "w(|w|rr)"},
      {{around(branch, {code(W, 0)}), around(otherwise, {code(W, 0)}), code(R, 0)}, "(w)(w)|r"},
      {{code(W, 0), around(branch, {code(R, 0)}), around(otherwise, {code(R, 0)})}, "w(|r)(|r)"},
      {{around(loop, {code(W, 0), leave, code(R, 0)}), code(R, 0)}, "(|w.|r)|r"},
      {{code(W, 0), around(StepKind::group, {code(R, 0)})}, "w|(r)"},
      {{around(StepKind::group, {code(W, 0), code(R, 0)}), code(R, 0)}, "(!w!r)|r"},
      {{code(W, 0), around(StepKind::rows, {code(R, 1), code(R, 0)}), code(W, 0)}, "w|(rr)|w"},
      {{alternating({in_half(W), in_half(R)})}, "(w|r)"},
      {{alternating({in_half(W)})}, "(|w)"},
      {{around(loop, {alternating({in_half(W), in_half(R)})}), code(W, 0)}, "((w|r))|w"},
      {{alternating({in_half(W), in_half(R), code(W, 8)})}, "(|w|r|w)"},
      {{apart({of_tensor(W)}), of_tensor(R)}, "(w)|r"},
      {{of_tensor(W), apart({of_tensor(W)})}, "w|(w)"},
      {{apart({of_tensor(R), of_tensor(W)})}, "(r|w)"},
      {{apart({of_tensor(W), code(W, 0)})}, "(w|w)"},
      {{around(loop, {apart({of_tensor(W)})})}, "(|(w))"},
      {{slots(0), around(loop, {code(W, 32), code(R, 32)}), slots(0, true), code(W, 0)}, "w(|w|r)w|w"},
      {{slots(0), around(loop, {code(W, 32), code(R, 32)}), slots(0, true), slots(1)}, "w(|w|r)w|w"},
      {{around(loop, {slots(0), around(loop, {code(W, 32), code(R, 32)}), slots(0, true)})}, "(|w(|w|r)w)"},
  };
  for (const Case& c : cases) {
    const std::vector<Step> placed = place_sync(c.steps);
    EXPECT_EQ(sketch(placed), c.expected) << sketch(c.steps);
    EXPECT_FALSE(find_race(placed, block_barrier)) << c.expected;
    for (const std::vector<Step>& less : without_a_barrier(placed))
      EXPECT_TRUE(find_race(less, block_barrier)) << c.expected << " as " << sketch(less);
  }
}

// Parts of a tile that are apart need no barrier, whatever stands between their elements in memory.
TEST(PlaceSync, LetsPartsOfATileBe) {
  const auto tile = std::make_shared<ir::Buffer>();
  const auto part = [&](MemoryUse use, std::int64_t row, std::int64_t column) {
    Step step = code(use, 0);
    step.touches[0].memory.part = {tile.get(), {{row, row + 16}, {column, column + 16}}};
    return step;
  };
  EXPECT_EQ(sketch(place_sync({part(R, 16, 16), part(W, 16, 0), part(R, 0, 0)})), "rwr");
  EXPECT_EQ(sketch(place_sync({part(W, 16, 0), part(R, 24, 8)})), "w|r");
  EXPECT_EQ(sketch(place_sync({part(W, 16, 0), code(R, 0)})), "w|r");
  const auto other = std::make_shared<ir::Buffer>();
  Step reused = part(R, 0, 0);
  reused.touches[0].memory.part.tile = other.get();
  EXPECT_EQ(sketch(place_sync({part(W, 16, 16), reused})), "w|r");
}

TEST(PlaceSync, KeepsAPragmaWithItsLoop) {
  Step before = code(W, 0);
  before.lines = {"first", "#pragma unroll 1"};
  const std::vector<Step> placed = place_sync({before, around(StepKind::loop, {code(R, 0)})});
  ASSERT_EQ(placed.size(), 4u);
  EXPECT_EQ(placed[0].lines, std::vector<std::string>{"first"});
  EXPECT_EQ(placed[1].lines, std::vector<std::string>{"tg::block_sync();"});
  EXPECT_EQ(placed[2].lines, std::vector<std::string>{"#pragma unroll 1"});
}

}  // namespace
}  // namespace tegula::codegen
