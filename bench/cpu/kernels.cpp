// Rates of the CPU device headers on one thread: products built from gemm_panel beside oneDNN, alternating in
// one process; attention's two products and the softmax rows between them.
#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu/testing/functions.hpp"

using namespace tegula_cpu_testing;

namespace {

struct Aligned {
  explicit Aligned(long size) : data(static_cast<float*>(std::aligned_alloc(64, (size * 4 + 63) / 64 * 64))) {
    for (long i = 0; i < size; ++i) data[i] = float(i * 2654435761u % 1000) / 1000 - 0.5f;
  }
  ~Aligned() { std::free(data); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  float* data;
};

template <class Work>
double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

const Product<float>& product(const Functions& set, int m, int n) {
  for (const Product<float>& p : set.products) {
    if (p.m == m && p.n == n) return p;
  }
  throw std::logic_error("the tables lack this product");
}
const Packing& packing(const Functions& set) { return set.packings.first[0]; }

struct Tiles {
  int rows, columns;
};

// C = A B as a printed kernel does it: for each tile of C, tiles of A are copied, tiles of B are packed, and
// the accumulated tile is written out. n is a multiple of 512.
void tiled_gemm(const Functions& set, Tiles tiles, long n, const float* a, const float* b, float* c) {
  const long rows = tiles.rows, columns = tiles.columns, depth = 256;
  const Aligned a_tile(rows * depth), panels(depth * columns), c_tile(rows * columns);
  const auto multiply = product(set, tiles.rows, tiles.columns).multiply;
  for (long i = 0; i < n; i += rows) {
    for (long j = 0; j < n; j += columns) {
      for (long k = 0; k < n; k += depth) {
        packing(set).copied_rows(a + i * n + k, n, rows, depth, {0, rows, 0, depth}, 0, a_tile.data, depth);
        packing(set).rows(b + k * n + j, n, depth, columns, {0, depth, 0, columns}, 0, panels.data);
        multiply(depth, a_tile.data, depth, 1, panels.data, c_tile.data, columns, k > 0);
      }
      for (long r = 0; r < rows; ++r)
        std::memcpy(c + (i + r) * n + j, c_tile.data + r * columns, columns * 4);
    }
  }
}

void compare_gemm(const Functions& set, Tiles tiles, long n) {
  const Aligned a(n * n), b(n * n), c(n * n), d(n * n);
  double ours = 1e9, theirs = 1e9;
  std::vector<double> ratios;  // of neighbours in time: the clock and the neighbours of a machine change
  for (int round = 0; round < (n > 1024 ? 9 : 31); ++round) {
    const double mine = seconds([&] { tiled_gemm(set, tiles, n, a.data, b.data, c.data); });
    const double other =
        seconds([&] { dnnl_sgemm('N', 'N', n, n, n, 1.0f, a.data, n, b.data, n, 0.0f, d.data, n); });
    ours = std::min(ours, mine), theirs = std::min(theirs, other);
    ratios.push_back(other / mine);
  }
  std::nth_element(ratios.begin(), ratios.begin() + long(ratios.size()) / 2, ratios.end());
  for (long i = 0; i < n * n; ++i) {
    if (std::abs(c.data[i] - d.data[i]) > 1e-2f) throw std::logic_error("the two products differ");
  }
  const double flops = 2.0 * double(n) * double(n) * double(n) * 1e-9;
  std::printf("%-9s gemm %5ld^3, tiles %d x %d: %7.1f GFLOP/s, oneDNN %7.1f (best); median ratio %.2f\n",
              set.name, n, tiles.rows, tiles.columns, flops / ours, flops / theirs,
              ratios[ratios.size() / 2]);
}

template <class Work>
double best_of(int rounds, int repeats, const Work& work) {
  double best = 1e9;
  for (int round = 0; round < rounds; ++round) {
    best = std::min(best, seconds([&] {
                            for (int i = 0; i < repeats; ++i) work();
                          }) / repeats);
  }
  return best;
}

// One step of attention: 256 query rows, 64 keys, head dimension 64.
void attention_step(const Functions& set) {
  constexpr long rows = 256, keys = 64, width = 64;
  const Aligned q(rows * width), k(keys * width), panels(keys * width), scores(rows * keys),
      out(rows * width);
  std::vector<float> sums(rows);
  const auto multiply = product(set, rows, keys).multiply;
  const double by_rows = best_of(7, 200, [&] {
    packing(set).rows(k.data, width, keys, width, {0, keys, 0, width}, 0, panels.data);
  });
  const double transposed = best_of(7, 200, [&] {
    packing(set).columns(k.data, width, width, keys, {0, width, 0, keys}, 0, panels.data);
  });
  const double scored =
      best_of(7, 200, [&] { multiply(width, q.data, width, 1, panels.data, scores.data, keys, false); });
  const double softmax = best_of(7, 200,
                                 [&] {
                                   multiply(width, q.data, width, 1, panels.data, scores.data, keys, false);
                                   set.softmax_rows(scores.data, rows, keys, 0.125f, sums.data());
                                 }) -
                         scored;
  const double flops = 2.0 * rows * keys * width;
  std::printf(
      "%-9s 256x64x64     %7.1f GFLOP/s; of its %.2f us: pack rows %.2f us, pack transposed %.2f us\n",
      set.name, flops / scored * 1e-9, scored * 1e6, by_rows * 1e6, transposed * 1e6);
  std::printf(
      "%-9s softmax rows  %7.2f us for 256 x 64, %.2f G elements/s; both products and it: %.2f of the gemm "
      "rate\n",
      set.name, softmax * 1e6, rows * keys / softmax * 1e-9, 2 * scored / (2 * scored + softmax));
}

void unary_rates(const Functions& set) {
  constexpr long n = 4096;
  const Aligned x(n), y(n);
  std::printf("%-9s elements/ns:", set.name);
  for (const Unary& f : set.math) {
    const double time = best_of(5, 50, [&] { f.vector(x.data, y.data, n); });
    std::printf(" %s %.2f", f.name, n / time * 1e-9);
  }
  std::printf("\n");
}

// The set to measure and the limit that keeps oneDNN to the same instructions; the limit holds for a process.
const Functions& chosen_set(const std::string& name) {
  const std::pair<const Functions*, dnnl_cpu_isa_t> sets[] = {{&functions_avx512, dnnl_cpu_isa_avx512_core},
                                                              {&functions_avx2, dnnl_cpu_isa_avx2},
                                                              {&functions_portable, dnnl_cpu_isa_sse41}};
  for (const auto& [set, limit] : sets) {
    if (!set->supported() || (!name.empty() && name != set->name)) continue;
    dnnl_set_max_cpu_isa(limit);
    return *set;
  }
  throw std::invalid_argument(
      "usage: bench_cpu_kernels [avx512 | avx2 | portable], one that this machine has");
}

int run(const std::string& name) {
  omp_set_num_threads(1);
  const Functions& set = chosen_set(name);
  for (Tiles tiles : {Tiles{256, 512}, Tiles{512, 1024}}) {
    for (long n : {1024, 2048}) compare_gemm(set, tiles, n);
  }
  attention_step(set);
  unary_rates(set);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
