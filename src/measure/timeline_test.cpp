#include "tegula/timeline.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "codegen/cuda/timeline.hpp"
#include "codegen/cuda_program.hpp"
#include "cuda/compile.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/error.hpp"
#include "tegula/lang.hpp"

namespace tegula {
namespace timeline_test {

constexpr std::chrono::seconds most_time{100};

lang::Kernel product() {
  using namespace lang;
  return kernel("product", [] {
    Dim m("m"), n("n"), k("k");
    k.multiple_of(8);
    lang::Tensor A = input("A", {m, k}, bf16), B = input("B", {n, k}, bf16), C = output("C", {m, n}, f32);
    grid(ceildiv(n, 64), ceildiv(m, 64), [&](Index x, Index y) {
      Fragment sum({64, 64}, f32, 0);
      pipelined(ceildiv(k, 64), [&](Index step) {
        Shared a({64, 64}, bf16), b({64, 64}, bf16);
        copy(A.at(y * 64, step * 64), a);
        copy(B.at(x * 64, step * 64), b);
        gemm(a, b.T(), sum);
      });
      copy(sum, C.at(y * 64, x * 64));
    });
  });
}

// Each role's events follow each other, producers load and consumers multiply, and the result is the same.
TEST(Timeline, ShowsWhatRolesDo) {
  const Watchdog watchdog("a timeline", most_time);
  const Tensor a = Tensor::random_normal({64, 256}, bf16, 1), b = Tensor::random_normal({64, 256}, bf16, 2);
  const Tensor c = Tensor::full({64, 64}, f32, 0), plain = Tensor::full({64, 64}, f32, 1);
  const Timeline timeline = record_timeline(product(), Target::emulated_sm90(), a, b, c);
  compile(product(), Target::emulated_sm90())(a, b, plain);
  EXPECT_EQ(c.values<float>(), plain.values<float>());
  std::map<std::string, std::string> words;
  std::map<std::string, double> last;
  for (const Timeline::Event& e : timeline.events) {
    EXPECT_GE(e.begin, last[e.role]) << e.role << ": " << e.words;
    EXPECT_GE(e.end, e.begin);
    last[e.role] = e.begin;
    words[e.role] += e.words + "; ";
    EXPECT_NE(e.place.find("timeline_test.cpp:"), std::string::npos) << e.place;
  }
  EXPECT_NE(words["producer"].find("load"), std::string::npos) << words["producer"];
  EXPECT_NE(words["consumers 0"].find("gemm"), std::string::npos) << words["consumers 0"];
  const auto trace = nlohmann::json::parse(timeline.json());
  std::size_t complete = 0;
  for (const auto& e : trace["traceEvents"]) complete += e["ph"] == "X";
  EXPECT_EQ(complete, timeline.events.size());
}

TEST(Timeline, ShowsKernelsWithoutRoles) {
  const lang::Kernel twice = lang::kernel("twice", [] {
    using namespace lang;
    lang::Tensor x = inout("x", {256}, f32);
    grid(2, {.threads = 128}, [&](Index block) {
      Fragment f = load(x.at(block * 128), {128});
      parallel(f, [&](Index i) { f(i) *= 2; });
      copy(f, x.at(block * 128));
    });
  });
  const Tensor x = Tensor::full({256}, f32, 3);
  const Timeline timeline = record_timeline(twice, Target::emulated(), x);
  EXPECT_EQ(x.values<float>(), std::vector<float>(256, 6));
  ASSERT_FALSE(timeline.events.empty());
  EXPECT_EQ(timeline.events.front().role, "warps 0");
  EXPECT_EQ(timeline.events.back().block, 1);
}

// The text with stamps is what NVRTC takes, where it is found.
TEST(Timeline, CompilesForGpus) {
  const cuda::Nvrtc* nvrtc = cuda::find_nvrtc();
  if (!nvrtc) GTEST_SKIP() << "NVRTC was not found on this machine";
  ir::Kernel kernel = *product().ir();
  ir::Buffer words{codegen::timeline_name, ir::Space::global, ir::Role::inout, i64, {}, false, kernel.at};
  for (const int extent : {1, 4, codegen::timeline_rows, 100}) words.shape.push_back(ir::int32(extent));
  kernel.parameters.push_back({std::make_shared<const ir::Buffer>(std::move(words)), nullptr});
  const Signature signature(std::make_shared<const ir::Kernel>(std::move(kernel)));
  for (const int architecture : {80, 90}) {
    const codegen::CudaProgram program = codegen::print_cuda(signature, {architecture});
    EXPECT_FALSE(program.events.empty());
    const auto code =
        cuda::compile_code(*nvrtc, program.text, cuda::device_headers(), architecture, kernel_cache());
    EXPECT_EQ(cuda::read_remarks(code.log), std::vector<std::string>{});
  }
}

TEST(Timeline, RefusesTargetsWithoutRoles) {
  EXPECT_THROW(record_timeline(product(), Target::cpu()), ArgumentError);
}

}  // namespace timeline_test
}  // namespace tegula
