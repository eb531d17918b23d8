#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>

#include "child.hpp"
#include "measure.hpp"
#include "sections.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::bench {
namespace {

namespace programs {

using namespace lang;
using lang::Tensor;  // not that of the runtime

lang::Kernel row_scaling() {
  return kernel("bench_row_scaling", [] {
    Dim n("n");
    Tensor x = input("x", {n, 256}, f32), y = output("y", {n, 256}, f32);
    grid(ceildiv(n, 32), [&](Index b) {
      Fragment t = load(x.at(b * 32), {32, 256});
      parallel(t, [&](Index i, Index j) { t(i, j) = t(i, j) * 2.0f + 1.0f; });
      copy(t, y.at(b * 32));
    });
  });
}

lang::Kernel row_softmax() {
  return kernel("bench_row_softmax", [] {
    Dim n("n");
    Tensor x = input("x", {n, 512}, f32), y = output("y", {n, 512}, f32);
    grid(ceildiv(n, 16), [&](Index b) {
      Fragment t = load(x.at(b * 16), {16, 512}), top({16}, f32), sum({16}, f32, 0);
      fill(top, -inf);
      reduce_max(t, top);
      parallel(t, [&](Index i, Index j) { t(i, j) = exp2((t(i, j) - top(i)) * log2e); });
      reduce_sum(t, sum);
      parallel(t, [&](Index i, Index j) { t(i, j) /= sum(i); });
      copy(t, y.at(b * 16));
    });
  });
}

lang::Kernel product_and_exponential() {
  return kernel("bench_product_and_exponential", [] {
    Dim m("m"), n("n"), k("k");
    Tensor a = input("a", {m, k}, f32), b = input("b", {n, k}, f32), c = output("c", {m, n}, f32);
    grid(ceildiv(n, 96), ceildiv(m, 96), [&](Index x, Index y) {
      Fragment sum({96, 96}, f32, 0);
      pipelined(ceildiv(k, 48), {.stages = 2}, [&](Index step) {
        Shared left({96, 48}, f32), right({96, 48}, f32);
        copy(a.at(y * 96, step * 48), left);
        copy(b.at(x * 96, step * 48), right);
        gemm(left, right.T(), sum);
      });
      parallel(sum, [&](Index i, Index j) { sum(i, j) = exp2(-sum(i, j)); });
      copy(sum, c.at(y * 96, x * 96));
    });
  });
}

}  // namespace programs

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

void compile_section() {
  fmt::print(
      "## Compile time\n\nPrograms of a user, compiled in a fresh process with an empty cache and with one "
      "that holds the kernel: printing, the system's compiler or the cache, and loading. Medians of 5; "
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
  fmt::print("\n");
}

}  // namespace tegula::bench
