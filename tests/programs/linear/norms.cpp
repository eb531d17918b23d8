// RMS norm and layer norm of rows, whole rows in registers or rows of any length in pieces that are read
// twice; the gradients of RMS norm.
#include "tests/programs/list.hpp"

namespace programs {
namespace {

constexpr double epsilon_of_calls = 1e-5;

struct RowTile {
  int n;         // features of a row that a block holds at once
  int rows = 1;  // of a block
  DType type = bf16;
};

Kernel rms_norm_of_whole_rows(const RowTile& t) {
  return kernel("rms_norm", [&] {
    Dim M("M");
    Tensor X = input("X", {M, t.n}, t.type), weight = input("weight", {t.n}, t.type);
    Tensor Y = output("Y", {M, t.n}, t.type);
    Expr epsilon = scalar("epsilon", f32);
    grid(ceildiv(M, t.rows), [&](Index block) {
      Fragment x({t.rows, t.n}, f32), square({t.rows, t.n}, f32), w({t.n}, f32);
      copy(X.at(block * t.rows), x);
      copy(weight.at(0), w);
      parallel(x, [&](Index i, Index j) { square(i, j) = x(i, j) * x(i, j); });
      Fragment factor = reduce_sum(square);
      parallel(factor, [&](Index i) { factor(i) = rsqrt(factor(i) / float(t.n) + epsilon); });
      parallel(x, [&](Index i, Index j) { x(i, j) *= factor(i) * w(j); });
      copy(x, Y.at(block * t.rows));
    });
  });
}

Kernel rms_norm_in_pieces(const RowTile& t) {
  return kernel("rms_norm_in_pieces", [&] {
    Dim M("M"), N("N");
    Tensor X = input("X", {M, N}, t.type), weight = input("weight", {N}, t.type);
    Tensor Y = output("Y", {M, N}, t.type);
    Expr epsilon = scalar("epsilon", f32);
    grid(ceildiv(M, t.rows), [&](Index block) {
      Expr row = block * t.rows, pieces = ceildiv(N, t.n);
      Fragment factor({t.rows}, f32, 0);
      pipelined(pieces, {.stages = 2}, [&](Index piece) {
        Fragment x({t.rows, t.n}, f32);
        copy(X.at(row, piece * t.n), x);
        parallel(x, [&](Index i, Index j) { x(i, j) *= x(i, j); });
        reduce_sum(x, factor);
      });
      parallel(factor, [&](Index i) { factor(i) = rsqrt(factor(i) / f32(N) + epsilon); });
      pipelined(pieces, {.stages = 2}, [&](Index piece) {
        Fragment x({t.rows, t.n}, f32), w({t.n}, f32);
        copy(X.at(row, piece * t.n), x);
        copy(weight.at(piece * t.n), w);
        parallel(x, [&](Index i, Index j) { x(i, j) *= factor(i) * w(j); });
        copy(x, Y.at(row, piece * t.n));
      });
    });
  });
}

Kernel layer_norm_of_whole_rows(const RowTile& t) {
  return kernel("layer_norm", [&] {
    Dim M("M");
    Tensor X = input("X", {M, t.n}, t.type), weight = input("weight", {t.n}, t.type);
    Tensor bias = input("bias", {t.n}, t.type), Y = output("Y", {M, t.n}, t.type);
    Expr epsilon = scalar("epsilon", f32);
    grid(ceildiv(M, t.rows), [&](Index block) {
      Fragment x({t.rows, t.n}, f32), square({t.rows, t.n}, f32), w({t.n}, f32), added({t.n}, f32);
      copy(X.at(block * t.rows), x);
      copy(weight.at(0), w);
      copy(bias.at(0), added);
      Fragment mean = reduce_sum(x);
      parallel(x, [&](Index i, Index j) {
        x(i, j) -= mean(i) / float(t.n);
        square(i, j) = x(i, j) * x(i, j);
      });
      Fragment factor = reduce_sum(square);
      parallel(factor, [&](Index i) { factor(i) = rsqrt(factor(i) / float(t.n) + epsilon); });
      parallel(x, [&](Index i, Index j) { x(i, j) = x(i, j) * factor(i) * w(j) + added(j); });
      copy(x, Y.at(block * t.rows));
    });
  });
}

// One row after another in two blocks for each processor, of which one computes while the other waits: each
// adds up what its rows give to the gradient of the weights, and a second grid adds up the blocks.
Kernel rms_norm_gradient_of_rows(int n, DType type) {
  return kernel("rms_norm_gradient", [&] {
    Dim M("M");
    Tensor X = input("X", {M, n}, type), weight = input("weight", {n}, type), dY = input("dY", {M, n}, type);
    Tensor factors = input("factors", {M}, f32), dX = output("dX", {M, n}, type);
    Expr blocks = processors() * 2;
    Tensor d_weight = output("d_weight", {n}, f32), partials = workspace("parts", {blocks, n}, f32);
    grid(blocks, [&](Index block) {
      Fragment sum({n}, f32, 0), w({n}, f32);
      copy(weight.at(0), w);
      pipelined(ceildiv(M - block, blocks), {.stages = 2}, [&](Index step) {
        Expr row = block + step * blocks, factor = factors(row);
        Fragment x({n}, f32), g({n}, f32), product({n}, f32);
        copy(X.slice(row), x);
        copy(dY.slice(row), g);
        parallel(x, [&](Index i) {
          x(i) *= factor;
          sum(i) += g(i) * x(i);
          g(i) *= w(i);
          product(i) = g(i) * x(i);
        });
        Expr mean = reduce_sum(product).scalar() / float(n);
        parallel(x, [&](Index i) { g(i) = factor * (g(i) - x(i) * mean); });
        copy(g, dX.slice(row));
      });
      copy(sum, partials.slice(block));
    });
    grid(ceildiv(n, 128), [&](Index x) {
      Fragment sum({128}, f32, 0);
      serial(blocks, [&](Index block) {
        Fragment partial = load(partials.slice(block).at(x * 128), {128});
        parallel(sum, [&](Index i) { sum(i) += partial(i); });
      });
      copy(sum, d_weight.at(x * 128));
    });
  });
}

double rms_factor(const Numbers& x, int row) {
  const auto n = x.shape[1];
  return 1 / std::sqrt(sum_of(n, [&](int j) { return x(row, j) * x(row, j); }) / n + epsilon_of_calls);
}

Prepared rms_norm_call(const Kernel& kernel, int rows, int n) {
  const Data x = normal({rows, n}, bf16, 1), weight = normal({n}, bf16, 2);
  const Numbers X(x), W(weight);
  Numbers Y(X.shape);
  each(rows, n, [&](int i, int j) { Y(i, j) = X(i, j) * rms_factor(X, i) * W(j); });
  return {kernel, {x, weight, Wanted{Y, bf16}, epsilon_of_calls}};
}

Prepared layer_norm_call(int rows, int n) {
  const Data x = normal({rows, n}, bf16, 1), weight = normal({n}, bf16, 2), bias = normal({n}, bf16, 3);
  const Numbers X(x), W(weight), B(bias);
  Numbers Y(X.shape);
  each(rows, [&](int i) {
    const double mean = sum_of(n, [&](int j) { return X(i, j); }) / n;
    const double variance = sum_of(n, [&](int j) { return std::pow(X(i, j) - mean, 2); }) / n;
    each(n,
         [&](int j) { Y(i, j) = (X(i, j) - mean) / std::sqrt(variance + epsilon_of_calls) * W(j) + B(j); });
  });
  return {layer_norm_of_whole_rows({n, 2}), {x, weight, bias, Wanted{Y, bf16}, epsilon_of_calls}};
}

Prepared rms_norm_gradient_call(int rows, int n) {
  const Data x = normal({rows, n}, bf16, 1), weight = normal({n}, bf16, 2), dy = normal({rows, n}, bf16, 3);
  const Numbers X(x), W(weight), G(dy);
  Numbers factors({rows}), dX(X.shape), dW({n});
  each(rows, [&](int i) {
    const double r = factors(i) = rms_factor(X, i);
    const double mean = sum_of(n, [&](int j) { return G(i, j) * W(j) * X(i, j) * r; }) / n;
    each(n, [&](int j) {
      dX(i, j) = r * (G(i, j) * W(j) - X(i, j) * r * mean);
      dW(j) += G(i, j) * X(i, j) * r;
    });
  });
  return {rms_norm_gradient_of_rows(n, bf16),
          {x, weight, dy, factors.to(f32), Wanted{dX, bf16}, Wanted{dW, f32, 1e-5}}};
}

}  // namespace

Program rms_norm() {
  return {"linear",
          "rms_norm",
          "rows divided by the root of their mean square, times weights",
          {{"whole_rows",
            [] {
              return rms_norm_call(rms_norm_of_whole_rows({256, 2}), 5, 256);
            }},
           {"in_pieces",
            [] {
              return rms_norm_call(rms_norm_in_pieces({96, 2}), 5, 250);
            }}},
          {{"rows of 1024",
            [] {
              return rms_norm_of_whole_rows({1024, 4});
            }},
           {"rows of 4096", [] { return rms_norm_of_whole_rows({4096}); }},
           {"rows of 8192", [] { return rms_norm_of_whole_rows({8192}); }},
           {"rows of 32768", [] { return rms_norm_of_whole_rows({32768}); }},
           {"in pieces of 4096", [] { return rms_norm_in_pieces({4096}); }}}};
}

Program layer_norm() {
  return {"linear",
          "layer_norm",
          "rows less their mean, divided by their deviation, times weights, plus a bias",
          {{"", [] { return layer_norm_call(5, 256); }}},
          {{"rows of 4096", [] { return layer_norm_of_whole_rows({4096}); }},
           {"rows of 8192", [] { return layer_norm_of_whole_rows({8192}); }}}};
}

Program rms_norm_gradient() {
  return {"linear",
          "rms_norm_gradient",
          "the gradients of RMS norm by its rows and its weights",
          {{"", [] { return rms_norm_gradient_call(7, 256); }}},
          {{"rows of 4096", [] { return rms_norm_gradient_of_rows(4096, bf16); }},
           {"rows of 8192", [] { return rms_norm_gradient_of_rows(8192, bf16); }}}};
}

}  // namespace programs
