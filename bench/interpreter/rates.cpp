// How fast the interpreter runs, with all checks, in one order: prints a line of docs/performance-log.md for
// each kind of work.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace {

using namespace tegula::lang;
using Data = tegula::Tensor;

constexpr int size = 64, repeats = 8;
constexpr double rows = 2048;

// X [N, 64] → Y [N, 64]; `body` works on a tile of X and gives what goes to Y.
template <class F>
tegula::Function rowwise(const char* name, F body) {
  return tegula::compile(kernel(name,
                                [&] {
                                  Dim N("N");
                                  Tensor X = input("X", {N, size}, f32), Y = output("Y", {N, size}, f32);
                                  grid(ceildiv(N, size), [&](Index b) { body(X, Y, b); });
                                }),
                         tegula::Target::interpreter());
}

void elementwise(const Tensor& X, const Tensor& Y, const Expr& b) {
  Fragment s({size, size}, f32), shift({size}, f32, 0.5f);
  copy(X.at(b * size), s);
  for (int r = 0; r < repeats; ++r) {
    parallel(s, [&](Index i, Index j) { s(i, j) = exp2(s(i, j) * 0.25f - shift(i)); });
  }
  copy(s, Y.at(b * size));
}

void products(const Tensor& X, const Tensor& Y, const Expr& b) {
  Shared a({size, size}, f32);
  Fragment c({size, size}, f32, 0);
  copy(X.at(b * size), a);
  for (int r = 0; r < repeats; ++r) gemm(a, a.T(), c);
  copy(c, Y.at(b * size));
}

void copies(const Tensor& X, const Tensor& Y, const Expr& b) {
  Shared a({size, size}, f32);
  for (int r = 0; r < repeats; ++r) copy(X.at(b * size), a);
  copy(a, Y.at(b * size));
}

double seconds(const tegula::Function& f, const Data& x, const Data& y) {
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    const std::clock_t begin = std::clock();  // of the processor: it has one thread
    f(x, y);
    best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return best;
}

void report(const char* what, double count, double time) {
  fmt::print("| {} | {:.0f} |\n", what, count / time / 1e6);
}

}  // namespace

int main() {
  setenv("TEGULA_INTERPRETER_ORDERS", "1", 1);
  const Data x = Data::random_normal({2048, size}, f32, 1), y = Data::zeros({2048, size}, f32);
  constexpr double elements = rows * size;
  // Two loads, a product, a difference, exp2 and a store.
  report("element operations of `parallel`", elements * repeats * 6,
         seconds(rowwise("elementwise", elementwise), x, y));
  report("multiply-adds of `gemm`", elements * size * repeats, seconds(rowwise("products", products), x, y));
  report("elements of `copy`", elements * (repeats + 1), seconds(rowwise("copies", copies), x, y));
}
