// Lesson 13: the copy engine brings tiles to elementwise programs. With `.persistent`, the blocks of a Hopper
// GPU stay: some warps, the producer, have the copy engine fetch the next block's tiles while the others
// compute with those of this block. The tool prints who does what:
//   tegula show examples/13_copy_engine.cpp --flag=-Iexamples --schedule
#include <string>
#include <tegula/show.hpp>
#include <tegula/tegula.hpp>

#include "check.hpp"

using namespace tegula::lang;

// Rows and columns: a box of each matrix is one instruction of the engine, which writes zeros where the box
// ends outside.
Kernel matrix_add(int m, int n) {
  return kernel("matrix_add", [&] {
    Dim M("M"), N("N");
    Tensor X = input("X", {M, N}, f32), Y = input("Y", {M, N}, f32), Z = output("Z", {M, N}, f32);
    grid(ceildiv(N, n), ceildiv(M, m), {.persistent = true}, [&](Index bx, Index by) {
      Shared x({m, n}, f32), y({m, n}, f32);
      copy(X.at(by * m, bx * n), x);
      copy(Y.at(by * m, bx * n), y);
      Fragment z({m, n}, f32);
      parallel(z, [&](Index i, Index j) { z(i, j) = x(i, j) + y(i, j); });
      copy(z, Z.at(by * m, bx * n));
    });
  });
}

// A block with several tiles: a `pipelined` loop has as many on their way as it has stages.
Kernel columns_scale(int m, int n) {
  return kernel("columns_scale", [&] {
    Dim M("M"), N("N");
    Tensor X = input("X", {M, N}, f32), F = input("F", {N}, f32), Z = output("Z", {M, N}, f32);
    grid(ceildiv(M, m), {.persistent = true}, [&](Index block) {
      pipelined(ceildiv(N, n), {.stages = 4}, [&](Index step) {
        Shared x({m, n}, f32), f({n}, f32);
        copy(X.at(block * m, step * n), x);
        copy(F.at(step * n), f);
        Fragment z({m, n}, f32);
        parallel(z, [&](Index i, Index j) { z(i, j) = x(i, j) * f(j); });
        copy(z, Z.at(block * m, step * n));
      });
    });
  });
}

TEGULA_KERNELS(matrix_add(32, 64), columns_scale(32, 64))

// Exits with status 1 unless the kernel's producer loads its tiles by the copy engine.
void expect_engine(const Kernel& kernel) {
  const std::string schedule = tegula::show(kernel, {.schedule = true});
  std::printf("%s", schedule.c_str());
  for (const char* line :
       {"consumer", "wait full s0[n]", "release s0[n]", "producer", "wait empty s0[n]", "load s0[s0]"})
    if (schedule.find(line) == std::string::npos) std::exit(1);
}

int main() {
  expect_engine(matrix_add(32, 64));
  expect_engine(columns_scale(32, 64));
  const auto add = tegula::compile(matrix_add(32, 64)), scale = tegula::compile(columns_scale(32, 64));
  for (int n : {1, 64, 200}) {
    auto x = tegula::Tensor::random_integers({3 * n, n}, f32, 1, -100, 100),
         y = tegula::Tensor::random_integers({3 * n, n}, f32, 2, -100, 100),
         f = tegula::Tensor::random_integers({n}, f32, 3, -100, 100);
    auto sum = tegula::Tensor::empty({3 * n, n}, f32), product = sum.clone(), sums = sum.clone(),
         products = sum.clone();
    add(x, y, sum);
    scale(x, f, product);
    for (int i = 0; i < 3 * n; ++i)
      for (int j = 0; j < n; ++j) {
        sums.set({i, j}, x.get({i, j}) + y.get({i, j}));
        products.set({i, j}, x.get({i, j}) * f.get({j}));
      }
    check("matrix_add", sum, sums, 0);
    check("columns_scale", product, products, 0);
  }
}
