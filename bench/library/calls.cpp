#include <fmt/format.h>

#include "measure.hpp"
#include "programs.hpp"
#include "sections.hpp"
#include "tegula/ops.hpp"

namespace tegula::bench {
namespace {

constexpr int calls = 2000, rounds = 15;

Work many(const Work& work) {
  return [work] {
    for (int i = 0; i < calls; ++i) work();
  };
}

Work rows_of(const Function& function, std::int64_t rows) {
  const Tensor x = Tensor::random_normal({rows, 256}, f32, 1), y = Tensor::empty({rows, 256}, f32);
  return many([=] { function(x, y); });
}

Work small_product() {
  const Tensor a = Tensor::random_normal({16, 16}, f32, 1), b = Tensor::random_normal({16, 16}, f32, 2);
  const Tensor c = Tensor::empty({16, 16}, f32);
  return many([=] {
    ops::Gemm options;
    options.out = c, options.target = Target::cpu();
    ops::gemm(a, b, options);
  });
}

Work small_attention() {
  const Tensor x = Tensor::random_normal({1, 1, 1, 64}, f32, 1);
  const Tensor out = Tensor::empty({1, 1, 1, 64}, f32), lse = Tensor::empty({1, 1, 1}, f32);
  return many([=] {
    ops::AttentionOptions options;
    options.out = out, options.lse = lse, options.target = Target::cpu();
    ops::attention(x, x, x, options);
  });
}

}  // namespace

void calls_section() {
  const Function scaling = compile(programs::row_scaling(), Target::cpu());
  const char* names[] = {"a kernel, one block of 32 x 256 elements, `y = 2 x + 1`", "the same, two blocks",
                         "`gemm`, 16 x 16 x 16", "`attention`, one query and one key"};
  const Times times =
      interleaved({rows_of(scaling, 32), rows_of(scaling, 64), small_product(), small_attention()}, rounds);
  fmt::print(
      "## Calls\n\nTime of a warm call with almost no work: checks, plan, binding and the start of blocks. "
      "Medians of {} rounds of {} calls.\n\n| call | µs |\n|---|---|\n",
      rounds, calls);
  for (std::size_t i = 0; i < std::size(names); ++i)
    fmt::print("| {} | {:.2f} |\n", names[i], 1e6 * times.median(i) / calls);
  fmt::print("\n");
}

}  // namespace tegula::bench
