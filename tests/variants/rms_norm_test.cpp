// RMS norm of whole rows.
#include "tests/variants/variants.hpp"

namespace variants::rms_norm_variants {
namespace {

using namespace tegula::lang;

constexpr int n = 4096;

struct Rows {
  Dim M{"M"};
  Tensor X = input("X", {M, n}, bf16), weight = input("weight", {n}, bf16), Y = output("Y", {M, n}, bf16);
};

Kernel squares_in_a_tile_of_their_own() {
  return kernel("rms_norm", [] {
    Rows r;
    grid(r.M, [&](Index row) {
      Fragment x({1, n}, f32), square({1, n}, f32), w({n}, f32);
      copy(r.X.at(row), x);
      copy(r.weight.at(0), w);
      parallel(x, [&](Index i, Index j) { square(i, j) = x(i, j) * x(i, j); });
      Fragment factor = reduce_sum(square);
      parallel(factor, [&](Index i) { factor(i) = rsqrt(factor(i) / float(n) + 1e-5f); });
      parallel(x, [&](Index i, Index j) { x(i, j) *= factor(i) * w(j); });
      copy(x, r.Y.at(row));
    });
  });
}

Kernel loaded_by_the_call() {
  return kernel("rms_norm", [] {
    Rows r;
    grid(r.M, [&](Index row) {
      Fragment x = load(r.X.at(row), {1, n}), w = load(r.weight.at(0), {n}), square = x.to(f32);
      parallel(square, [&](Index i, Index j) { square(i, j) *= square(i, j); });
      Fragment factor = reduce_sum(square), y({1, n}, f32);
      parallel(factor, [&](Index i) { factor(i) = rsqrt(factor(i) * (1.0f / n) + 1e-5f); });
      parallel(y, [&](Index i, Index j) { y(i, j) = x(i, j) * factor(i) * w(j); });
      copy(y, r.Y.at(row));
    });
  });
}

Kernel rows_as_vectors() {
  return kernel("rms_norm", [] {
    Rows r;
    grid(r.M, [&](Index row) {
      Fragment x({n}, f32), square({n}, f32), w({n}, f32);
      copy(r.X.slice(row), x);
      copy(r.weight.at(0), w);
      parallel(x, [&](Index j) { square(j) = x(j) * x(j); });
      Expr factor = rsqrt(reduce_sum(square).scalar() / float(n) + 1e-5f);
      parallel(x, [&](Index j) { x(j) *= factor * w(j); });
      copy(x, r.Y.slice(row));
    });
  });
}

Kernel by_way_of_shared_memory() {
  return kernel("rms_norm", [] {
    Rows r;
    grid(r.M, [&](Index row) {
      Shared row_tile({1, n}, bf16);
      copy(r.X.at(row), row_tile);
      Fragment x({1, n}, f32), square({1, n}, f32);
      copy(row_tile, x);
      parallel(x, [&](Index i, Index j) { square(i, j) = x(i, j) * x(i, j); });
      Fragment factor = reduce_sum(square);
      parallel(x, [&](Index i, Index j) { x(i, j) *= rsqrt(factor(i) / float(n) + 1e-5f) * r.weight(j); });
      copy(x, r.Y.at(row));
    });
  });
}

Kernel sum_in_a_tile() {
  return kernel("rms_norm", [] {
    Rows r;
    grid(r.M, [&](Index row) {
      Fragment x({1, n}, f32), total({1}, f32, 0), w({n}, f32);
      copy(r.X.at(row), x);
      copy(r.weight.at(0), w);
      Fragment square = clone(x);
      parallel(square, [&](Index i, Index j) { square(i, j) = square(i, j) * square(i, j); });
      reduce_sum(square, total);
      Fragment factor({1}, f32);
      parallel(factor, [&](Index i) { factor(i) = rsqrt(total(i) / float(n) + 1e-5f); });
      parallel(x, [&](Index i, Index j) { x(i, j) = x(i, j) * factor(i); });
      parallel(x, [&](Index i, Index j) { x(i, j) = x(i, j) * w(j); });
      copy(x, r.Y.at(row));
    });
  });
}

Kernel stored_by_a_loop() {
  return kernel("rms_norm", [] {
    Rows r;
    grid(r.M, [&](Index row) {
      Fragment x({1, n}, f32), square({1, n}, f32), w({n}, f32);
      parallel(x, [&](Index i, Index j) { x(i, j) = r.X(row, j); });
      copy(r.weight.at(0), w);
      parallel(x, [&](Index i, Index j) { square(i, j) = x(i, j) * x(i, j); });
      Fragment total = reduce_sum(square);
      parallel(x,
               [&](Index i, Index j) { r.Y(row, j) = x(i, j) * rsqrt(total(i) / float(n) + 1e-5f) * w(j); });
    });
  });
}

TEST(RmsNormInSeveralWays, IsPlannedAlike) {
  expect_planned_alike({{"squares in a tile of their own", squares_in_a_tile_of_their_own()},
                        {"tiles that load makes", loaded_by_the_call()},
                        {"rows as vectors", rows_as_vectors()},
                        {"by way of shared memory", by_way_of_shared_memory()},
                        {"the sum in a tile that was there", sum_in_a_tile()},
                        {"loaded and stored by loops", stored_by_a_loop()}});
}

}  // namespace
}  // namespace variants::rms_norm_variants
