// Lesson 6: an operator. A kernel becomes a function that anyone can call: it takes any leading extents,
// checks its arguments, chooses tiles by the shape of the call, compiles each variant once, and allocates the
// result. In the library itself, a table provides most of this: see docs/adding-an-operator.md.
#include <map>
#include <tegula/tegula.hpp>
#include <tuple>

#include "check.hpp"

using namespace tegula::lang;

// Everything that is fixed when a kernel is compiled. A Dim may vary from call to call.
struct LinearKernel {
  tegula::DType type = f32;
  bool bias = false;
  int m = 32, n = 32, k = 32;
  auto key() const { return std::tuple(type.name(), bias, m, n, k); }
};

Kernel linear_kernel(const LinearKernel& c) {
  return kernel("linear", [&] {
    Dim M("rows"), N("out_features"), K("features");
    Tensor X = input("x", {M, K}, c.type), W = input("weight", {N, K}, c.type);
    Tensor bias = c.bias ? input("bias", {N}, c.type) : W;  // decided in C++: the parameter exists or not
    Tensor Y = output("y", {M, N}, c.type);
    grid(ceildiv(N, c.n), ceildiv(M, c.m), [&](Index bx, Index by) {
      Fragment sum({c.m, c.n}, f32, 0), added({c.n}, f32, 0);
      if (c.bias) copy(bias.at(bx * c.n), added);
      pipelined(ceildiv(K, c.k), {.stages = 3}, [&](Index step) {
        Shared x({c.m, c.k}, c.type), w({c.n, c.k}, c.type);
        copy(X.at(by * c.m, step * c.k), x);
        copy(W.at(bx * c.n, step * c.k), w);
        gemm(x, w.T(), sum);
      });
      parallel(sum, [&](Index i, Index j) { sum(i, j) += added(j); });
      copy(sum, Y.at(by * c.m, bx * c.n));  // rounded to the type of y
    });
  });
}

// x [..., features], weight [out_features, features], bias [out_features]: x weightᵀ + bias.
struct LinearOptions {
  std::optional<tegula::Tensor> bias = {};
  tegula::Target target = tegula::Target::automatic();
};
tegula::Tensor linear(const tegula::Tensor& x, const tegula::Tensor& weight,
                      const LinearOptions& options = {}) {
  // The kernel checks dtypes, ranks and extents, but its errors name its own parameters. Mistakes that the
  // caller knows under other names are reported here.
  if (x.rank() < 1)
    throw tegula::ArgumentError(
        "linear: x has no dimensions; give it one of features, as in [rows, features]");
  if (weight.rank() == 2 && x.shape().back() != weight.size(1))
    throw tegula::ArgumentError("linear: x has " + std::to_string(x.shape().back()) +
                                " features and weight " + std::to_string(weight.size(1)) +
                                "; give weight as [out_features, features]");
  const tegula::Tensor rows = x.reshape({-1, x.shape().back()});
  LinearKernel c{.type = x.dtype(), .bias = options.bias.has_value()};
  c.m = rows.size(0) <= 16 ? 16 : 32;  // a larger tile would be mostly empty

  static std::map<decltype(c.key()), tegula::Function> compiled;  // for one thread and one target only
  auto found = compiled.find(c.key());
  if (found == compiled.end())
    found = compiled.emplace(c.key(), tegula::compile(linear_kernel(c), options.target)).first;

  tegula::Shape shape = x.shape();
  shape.back() = weight.size(0);
  tegula::Tensor y = tegula::Tensor::empty({rows.size(0), weight.size(0)}, x.dtype(), x.device());
  if (options.bias)
    found->second(rows, weight, *options.bias, y);
  else
    found->second(rows, weight, y);
  return y.reshape(shape);
}

int main() {
  auto x = tegula::Tensor::random_integers({3, 7, 40}, f32, 1, -4, 5),
       weight = tegula::Tensor::random_integers({50, 40}, f32, 2, -4, 5),
       bias = tegula::Tensor::random_integers({50}, f32, 3, -4, 5),
       expected = tegula::Tensor::empty({3, 7, 50}, f32);
  for (int b = 0; b < 3; ++b)
    for (int i = 0; i < 7; ++i)
      for (int j = 0; j < 50; ++j) {
        double sum = bias.get({j});
        for (int k = 0; k < 40; ++k) sum += x.get({b, i, k}) * weight.get({j, k});
        expected.set({b, i, j}, sum);
      }
  check("linear", linear(x, weight, {.bias = bias}), expected, 0);
  check("linear of few rows", linear(x.select(0, 1), weight, {.bias = bias}), expected.select(0, 1), 0);
  try {
    auto y = linear(x, weight.transpose(0, 1));
    return 1;
  } catch (const tegula::ArgumentError& error) { std::printf("refused: %s\n", error.what()); }
}
