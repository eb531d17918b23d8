// What becomes of the sums of a product before they are stored: factors, a bias, an activation.
#pragma once
#include "ops/pieces/activation.hpp"

namespace tegula::ops {

// Each row of the sums (dim 0), or each column (dim 1), times its factor.
void multiply_along(lang::Fragment& sums, int dim, const lang::Fragment& factors);
// Or plus its addend, and activated.
void add_along(lang::Fragment& sums, int dim, const lang::Fragment& added,
               Activation activation = Activation::none);

struct ProductEpilogue {
  bool scaled = false;
  std::optional<DType> bias = {};
  bool row_scale = false, column_scale = false;
  Activation activation = Activation::none;
  auto fields() const {
    return std::tuple(labelled("scaled", scaled), labelled("bias", bias), labelled("rows", row_scale),
                      labelled("columns", column_scale), activation);
  }
};

// What the program has of it. Rows and columns are those of the result.
class EpilogueInputs {
 public:
  // Declares row_scale [rows], column_scale [columns], bias [columns] and the scalar scale, where the
  // instance has them.
  EpilogueInputs(const ProductEpilogue& instance, const lang::Expr& rows, const lang::Expr& columns);

  // All but the activation, of sums from this row and column on; `transposed` sums are [columns, rows].
  void complete(lang::Fragment& sums, const lang::Expr& row, const lang::Expr& column,
                bool transposed = false) const {
    complete(sums, row, column, transposed, Activation::none);
  }
  // All of it.
  void finish(lang::Fragment& sums, const lang::Expr& row, const lang::Expr& column,
              bool transposed = false) const {
    complete(sums, row, column, transposed, c_.activation);
  }

 private:
  void complete(lang::Fragment& sums, const lang::Expr& row, const lang::Expr& column, bool transposed,
                Activation activation) const;

  const ProductEpilogue& c_;
  std::optional<lang::Tensor> row_scale_, column_scale_, bias_;
  std::optional<lang::Expr> scale_;
};

}  // namespace tegula::ops
