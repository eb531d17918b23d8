#include "codegen/cuda/program_lines.hpp"

#include <gtest/gtest.h>

#include "codegen/cuda_program.hpp"
#include "cuda/compile.hpp"
#include "tegula/lang.hpp"

namespace tegula::codegen {
namespace program_lines_test {

TEST(ProgramLines, AreThoseOfTheProgram) {
  int line = 0;
  const lang::Kernel program = lang::kernel("twice", [&] {
    using namespace lang;
    lang::Dim n("n");
    lang::Tensor x = inout("x", {n}, f32);
    grid(ceildiv(n, 128), [&](Index block) {
      Fragment f = load(x.at(block * 128), {128});
      parallel(f, [&](Index i) { f(i) *= 2; });
      line = __LINE__ - 1;
      copy(f, x.at(block * 128));
    });
  });
  const std::string text = with_program_lines(print_cuda(Signature(program.ir()), {90}).text, *program.ir());
  const std::string directive = "#line " + std::to_string(line) + " \"" + __FILE__ + "\"\n";
  const std::size_t at = text.find(directive);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_NE(text.find("* 2", at), std::string::npos) << text;
  if (const cuda::Nvrtc* nvrtc = cuda::find_nvrtc())
    cuda::compile_code(*nvrtc, text, cuda::device_headers(), 90, kernel_cache());
}

}  // namespace program_lines_test
}  // namespace tegula::codegen
