#include "ops/products/epilogue.hpp"

namespace tegula::ops {

using namespace lang;

void multiply_along(Fragment& sums, int dim, const Fragment& factors) {
  parallel(sums, [&](Index i, Index j) { sums(i, j) *= factors(dim == 0 ? i : j); });
}

void add_along(Fragment& sums, int dim, const Fragment& added, Activation activation) {
  parallel(sums, [&](Index i, Index j) {
    sums(i, j) = activate(activation, sums(i, j) + added(dim == 0 ? i : j));
  });
}

EpilogueInputs::EpilogueInputs(const ProductEpilogue& c, const Expr& rows, const Expr& columns) : c_(c) {
  if (c.row_scale) row_scale_.emplace(input("row_scale", {rows}, f32));
  if (c.column_scale) column_scale_.emplace(input("column_scale", {columns}, f32));
  if (c.bias) bias_.emplace(input("bias", {columns}, *c.bias));
  if (c.scaled) scale_.emplace(scalar("scale", f32));
}

void EpilogueInputs::complete(Fragment& sums, const Expr& row, const Expr& column, bool transposed,
                              Activation activation) const {
  const int of_rows = transposed ? 1 : 0, of_columns = 1 - of_rows;
  if (scale_) parallel(sums, [&](Index i, Index j) { sums(i, j) = sums(i, j) * *scale_; });
  const auto vector = [&](const char* name, const Window& from, int dim) {
    Fragment loaded(name, {sums.extent(dim)}, f32);
    copy(from, loaded);
    return loaded;
  };
  if (row_scale_) multiply_along(sums, of_rows, vector("factors", row_scale_->at(row), of_rows));
  if (column_scale_)
    multiply_along(sums, of_columns, vector("factors", column_scale_->at(column), of_columns));
  if (bias_) return add_along(sums, of_columns, vector("added", bias_->at(column), of_columns), activation);
  if (activation != Activation::none)
    parallel(sums, [&](Index i, Index j) { sums(i, j) = activate(activation, sums(i, j)); });
}

}  // namespace tegula::ops
