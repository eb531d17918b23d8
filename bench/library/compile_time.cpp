#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>

#include "child.hpp"
#include "measure.hpp"
#include "programs.hpp"
#include "sections.hpp"
#include "tegula/ops.hpp"
#include "tegula/runtime.hpp"

namespace tegula::bench {
namespace {

struct Example {
  const char* what;
  lang::Kernel (*build)();
};
constexpr Example examples[] = {{"elementwise", programs::row_scaling},
                                {"softmax of rows", programs::row_softmax},
                                {"product and exponential", programs::product_and_exponential}};

struct Directory {
  std::string path;
  Directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tegula-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path = pattern;
  }
  ~Directory() { std::filesystem::remove_all(path); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
};

}  // namespace

void time_to_compile(int which) {
  const Example& example = examples[which];
  const lang::Kernel kernel = example.build();
  fmt::print("{}\n", 1e3 * seconds_of([&] { compile(kernel, Target::cpu()); }));
}

void time_to_call() {
  const Tensor x = Tensor::random_normal({1, 64, 1, 64}, f32, 1);
  ops::AttentionOptions options;
  options.target = Target::cpu();
  fmt::print("{}\n", 1e3 * seconds_of([&] { ops::attention(x, x, x, options); }));
}

void compile_section() {
  fmt::print(
      "## Compile time\n\nUser programs compiled in a fresh process with an empty cache, and with a cache "
      "that contains the kernel: printing, the system's compiler or the cache, and loading. Medians of 5; "
      "the aim is 2 s cold and 10 ms cached.\n\n| kernel | cold, ms | cached, ms |\n|---|---|---|\n");
  for (int which = 0; which < int(std::size(examples)); ++which) {
    std::vector<double> cold, cached;
    for (int round = 0; round < 5; ++round) {
      const Directory directory;
      for (std::vector<double>* times : {&cold, &cached})
        times->push_back(
            number_from_child({"compile", std::to_string(which)}, {"TEGULA_CACHE_DIR=" + directory.path}));
    }
    fmt::print("| {} | {:.0f} | {:.1f} |\n", examples[which].what, median(cold), median(cached));
  }
  std::vector<double> first;
  for (int round = 0; round < 5; ++round)
    first.push_back(number_from_child({"first-call"}, {"TEGULA_CXX=none"}));
  fmt::print(
      "\nThe common kernels of the operators are built into the library: the first call of `attention` in a "
      "process, without a compiler, takes {:.1f} ms (64 queries and keys).\n\n",
      median(first));
}

}  // namespace tegula::bench
