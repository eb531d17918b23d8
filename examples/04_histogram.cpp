// Lesson 4: atomics, several grids in one kernel, and a workspace between them.
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

// How many values of X fall into each of `bins` bins, and the running sum of these counts.
Kernel histogram(int bins) {
  return kernel("histogram", [&] {
    Dim N("N");
    Tensor X = input("X", {N}, i32), Running = output("Running", {bins}, i32);
    Tensor counts = workspace("counts", {bins}, i32, {.zero = true});
    grid(ceildiv(N, 512), [&](Index block) {
      Shared local({bins}, i32);
      clear(local);
      parallel(512, [&](Index i) {
        Expr at = block * 512 + i;
        when(at < N, [&] { atomic_add(local(clamp(X(at), 0, bins - 1)), 1); });
      });
      atomic_add(counts.at(0), local);
    });
    grid(1, [&](Index) {  // sees what the first grid wrote
      Var sum = 0;
      serial(bins, [&](Index i) {
        sum += counts(i);
        Running(i) = sum;
      });
    });
  });
}

TEGULA_KERNELS(histogram(16))  // what `tegula show` and tegula.load() find here

int main() {
  auto count = tegula::compile(histogram(16));
  int n = 2000;
  auto x = tegula::Tensor::random_integers({n}, i32, 1, 0, 16), running = tegula::Tensor::empty({16}, i32),
       expected = tegula::Tensor::zeros({16}, i32);
  count(x, running);
  for (int i = 0; i < n; ++i)
    for (int bin = static_cast<int>(x.get({i})); bin < 16; ++bin)
      expected.set({bin}, expected.get({bin}) + 1);
  check("histogram", running, expected, 0);
}
