// Lesson 1: a kernel, its signature, a grid of blocks, tiles, and a call.
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

Kernel vector_add() {
  return kernel("vector_add", [] {
    Dim N("N");  // known when called: one kernel serves every length
    Tensor X = input("X", {N}, f32), Y = input("Y", {N}, f32), Z = output("Z", {N}, f32);
    grid(ceildiv(N, 256), [&](Index block) {
      Fragment x = load(X.at(block * 256), {256}), y = load(Y.at(block * 256), {256});
      parallel(x, [&](Index i) { x(i) += y(i); });
      copy(x, Z.at(block * 256));  // in the last block, nothing is written past the end
    });
  });
}

TEGULA_KERNELS(vector_add())  // what `tegula show` and tegula.load() find here

int main() {
  auto add = tegula::compile(vector_add());
  std::printf("%s", vector_add().text().c_str());
  for (int n : {1, 255, 256, 1000}) {
    auto x = tegula::Tensor::random_integers({n}, f32, 1, -100, 100),
         y = tegula::Tensor::random_integers({n}, f32, 2, -100, 100);
    auto z = tegula::Tensor::empty({n}, f32), expected = tegula::Tensor::empty({n}, f32);
    add(x, y, z);
    for (int i = 0; i < n; ++i) expected.set({i}, x.get({i}) + y.get({i}));
    check("vector_add", z, expected, 0);
  }
}
