// Remarks of the assembler become notes with the line of the grid, the reason and a remedy.
#include "cuda/assembler_notes.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/compile.hpp"
#include "runtime/files/file_io.hpp"
#include "tegula/lang.hpp"

namespace tegula::cuda {
namespace assembler_notes_test {

// Two products in flight, then the sum of the first.
lang::Kernel products() {
  using namespace lang;
  return kernel("products", [] {
    lang::Tensor X = input("X", {256, 64}, bf16), Y = output("Y", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Fragment state({64, 64}, f32, 0);
      pipelined(4, {.stages = 2}, [&](Index c) {
        Shared x({64, 64}, bf16), rounded({64, 64}, bf16);
        copy(X.at(c * 64), x);
        Fragment a({64, 64}, f32, 0);
        gemm(x, x.T(), a);
        copy(state, rounded);
        gemm(x, rounded, a);
        gemm(a.to(bf16), x, state);
      });
      copy(state, Y.at(0));
    });
  });
}

struct Made {
  lang::Kernel kernel = products();
  codegen::CudaProgram program = codegen::print_cuda(Signature(kernel.ir()), {90});
  std::vector<std::string> notes(const std::string& log) const {
    return assembler_notes(log, *kernel.ir(), program);
  }
};

struct Row {
  const char* line;
  const char* note;  // words of it; null: none
};

class AssemblerNotes : public ::testing::TestWithParam<Row> {};

TEST_P(AssemblerNotes, SayWhatARemarkMeans) {
  const std::vector<std::string> notes = Made().notes(
      "ptxas info    : Compiling entry function 'products_0' for 'sm_90a'\n" + std::string(GetParam().line) +
      "\nptxas info    : Used 168 registers, used 9 barriers\n" + GetParam().line + "\n");
  if (!GetParam().note) {
    EXPECT_TRUE(notes.empty()) << notes[0];
    return;
  }
  ASSERT_EQ(notes.size(), 1u) << "each once";
  EXPECT_EQ(notes[0].rfind("assembler_notes_test.cpp:", 0), 0u) << notes[0];
  EXPECT_NE(notes[0].find(GetParam().note), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("; "), std::string::npos) << "a remedy: " << notes[0];
}

INSTANTIATE_TEST_SUITE_P(
    Lines, AssemblerNotes,
    ::testing::Values(
        Row{"ptxas info    : (C7518) Potential Performance Loss: wgmma.mma_async instructions are serialized "
            "due to program "
            "dependence on compiler-inserted WG.DP in divergent path in the function 'products_0'",
            "serialised products"},
        Row{"ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized "
            "due to insufficient "
            "register resources for the wgmma pipeline in the function 'products_0'",
            "do not fit the registers"},
        Row{"ptxas info    : (C7517) warpgroup.wait is injected in around line 195 by compiler to allow use "
            "of registers defined "
            "by GMMA in function 'products_0'",
            "added wait"},
        Row{"ptxas info    : (C7519) warpgroup.arrive is injected in around line 7 by compiler to allow use "
            "of registers in GMMA "
            "in function 'products_0'",
            "added fence"},
        Row{"    16 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads", "spills: 28 bytes"},
        Row{"    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", nullptr},
        Row{"ptxas info    : (C7517) warpgroup.wait is injected in around line 195 in function 'another_0'",
            nullptr}));

bool contains(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

// The same from the compiler itself, and again from the cache: without the wait that says which product is in
// flight.
TEST(AssemblerNotesOfCode, AreKeptWithIt) {
  if (!find_nvrtc()) GTEST_SKIP() << "NVRTC was not found on this machine";
  const TemporaryDirectory directory;
  const KernelCache cache(directory.file("cache"), 1 << 30);
  const Made made;
  const auto notes = [&](const std::string& text) {
    return made.notes(compile_code(nvrtc(), text, device_headers(), 90, cache).log);
  };
  EXPECT_EQ(notes(made.program.text), std::vector<std::string>{});
  std::string planted = made.program.text;
  const std::string wait = "tg::wgmma_wait<1>();";
  const std::size_t at = planted.find(wait);
  ASSERT_NE(at, std::string::npos) << planted;
  planted.erase(at, wait.size());
  for (int i = 0; i < 2; ++i) {
    const std::vector<std::string> found = notes(planted);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_TRUE(contains(found[0], "added wait") || contains(found[0], "serialised products")) << found[0];
  }
}

}  // namespace
}  // namespace tegula::cuda
