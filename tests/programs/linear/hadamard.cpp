// The Walsh–Hadamard transform of rows of 2^k elements, in Sylvester's order: by butterflies in registers or
// in shared memory, or as two products: a row as a matrix [a, b] becomes H_a · X · H_b, while the next rows
// arrive.
#include <algorithm>

#include "tests/programs/list.hpp"

namespace programs {
namespace {

Kernel hadamard_by_butterflies(int n, DType type) {
  return kernel("hadamard_butterflies", [&] {
    Dim B("B");
    Tensor X = input("X", {B, n}, type), Y = output("Y", {B, n}, type);
    grid(B, [&](Index row) {
      Fragment x({n}, f32);
      copy(X.slice(row), x);
      for (int stride = 1; stride < n; stride *= 2) {
        Fragment pairs = x.reshape({n / (2 * stride), 2, stride});
        parallel(n / (2 * stride), stride, [&](Index p, Index q) {
          Expr a = pairs(p, 0, q), b = pairs(p, 1, q);
          pairs(p, 0, q) = a + b;
          pairs(p, 1, q) = a - b;
        });
      }
      copy(x, Y.slice(row));
    });
  });
}

// The transform of 2^k values that a thread holds.
std::vector<Expr> transformed(std::vector<Expr> values) {
  for (std::size_t step = 1; step < values.size(); step *= 2) {
    std::vector<Expr> next;
    for (std::size_t i = 0; i < values.size(); ++i)
      next.push_back((i & step) != 0 ? values[i - step] - values[i] : values[i] + values[i + step]);
    values.swap(next);
  }
  return values;
}
// A thread takes `own` values of shared memory at a time.
Kernel hadamard_in_shared_memory(int n, DType type, int own, int threads) {
  return kernel("hadamard_shared", [&] {
    Dim B("B");
    Tensor X = input("X", {B, n}, type), Y = output("Y", {B, n}, type);
    grid(B, {.threads = threads}, [&](Index row) {
      Shared s({n}, f32);
      copy(X.slice(row), s);
      for (int stride = 1; stride < n;) {
        const int size = std::min(own, n / stride);
        parallel(n / size, [&](Index t) {
          Expr first = t / stride * (stride * size) + t % stride;
          std::vector<Expr> values;
          for (int i = 0; i < size; ++i) values.push_back(s(first + i * stride));
          values = transformed(std::move(values));
          for (int i = 0; i < size; ++i) s(first + i * stride) = values[i];
        });
        stride *= size;
      }
      copy(s, Y.slice(row));
    });
  });
}

Kernel hadamard_by_products(int a, int b, DType type, int columns) {
  return kernel("hadamard_products", [&] {
    Dim B("B");
    Tensor X = input("X", {B, a, b}, type), Y = output("Y", {B, a, b}, type);
    const auto sign = [](const Index& i, const Index& j) -> Expr {
      return select(popcount(u32(i) & u32(j)) % 2 == 0, 1.0f, -1.0f);
    };
    grid(processors(), [&](Index block) {
      Shared left({a, a}, type), right({b, b}, type);
      parallel(left, [&](Index i, Index j) { left(i, j) = sign(i, j); });
      parallel(right, [&](Index i, Index j) { right(i, j) = sign(i, j); });
      pipelined(ceildiv(B - block, processors()), {.stages = 2}, [&](Index step) {
        Expr row = block + step * processors();
        Shared x({a, b}, type);
        copy(X.slice(row).at(0), x);
        Fragment half({a, b}, f32, 0);
        gemm(left, x, half);
        const Fragment rounded = half.to(type);
        // A thread may have no registers for all columns beside the rounded product.
        for (int first = 0; first < b; first += columns) {
          Fragment y({a, columns}, f32, 0);
          gemm(rounded, right.slice(all, range(first, first + columns)), y);
          copy(y, Y.slice(row).at(0, first));
        }
      });
    });
  });
}

Prepared hadamard_call(const Kernel& kernel, DType type, const Shape& shape) {
  const Data x = normal(shape, type, 1);
  Numbers Y(x);
  const int rows = static_cast<int>(shape[0]), n = static_cast<int>(x.nelements()) / rows;
  for (int stride = 1; stride < n; stride *= 2) {
    each(rows, n, [&](int row, int i) {
      if ((i & stride) != 0) return;
      double &a = Y.values[row * n + i], &b = Y.values[row * n + i + stride];
      const double sum = a + b, difference = a - b;
      a = sum, b = difference;
    });
  }
  return {kernel, {x, Wanted{Y, type, type == f32 ? 1e-6 : 1e-2}}};
}

}  // namespace

Program hadamard() {
  return {"linear",
          "hadamard",
          "Walsh–Hadamard transforms of rows",
          {{"butterflies",
            [] {
              return hadamard_call(hadamard_by_butterflies(256, f32), f32, {3, 256});
            }},
           {"shared",
            [] {
              return hadamard_call(hadamard_in_shared_memory(256, f32, 32, 0), f32, {3, 256});
            }},
           {"products",
            [] {
              return hadamard_call(hadamard_by_products(64, 64, bf16, 64), bf16, {2, 64, 64});
            }}},
          {{"butterflies of 4096", [] { return hadamard_by_butterflies(4096, bf16); }},
           {"in shared memory, 4096", [] { return hadamard_in_shared_memory(4096, bf16, 32, 0); }},
           {"in shared memory, 32768", [] { return hadamard_in_shared_memory(32768, bf16, 32, 1024); }},
           {"products of 64 x 64", [] { return hadamard_by_products(64, 64, bf16, 64); }},
           {"products of 128 x 128", [] { return hadamard_by_products(128, 128, bf16, 128); }},
           {"products of 128 x 256, 128 columns at a time",
            [] { return hadamard_by_products(128, 256, bf16, 128); }}}};
}

}  // namespace programs
