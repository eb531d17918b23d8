// Tiles of the operands of a product, each as its matrix is stored.
#pragma once
#include <optional>

#include "tegula/lang.hpp"

namespace tegula::ops {

// [rows, columns] of an operand. The tile of a transposed one is stored, and loaded, as [columns, rows].
class OperandTile {
 public:
  OperandTile(const char* name, int rows, int columns, DType type, bool transposed)
      : stored_(name, {transposed ? columns : rows, transposed ? rows : columns}, type) {
    if (transposed) transposed_.emplace(stored_.T());
  }

  // Elements of the matrix from this row and column of the operand on.
  void load(const lang::Tensor& matrix, const lang::Expr& row, const lang::Expr& column) {
    copy(transposed_ ? matrix.at(column, row) : matrix.at(row, column), stored_);
  }
  // What is multiplied.
  const lang::Shared& operand() const { return transposed_ ? *transposed_ : stored_; }

 private:
  lang::Shared stored_;
  std::optional<lang::Shared> transposed_;
};

}  // namespace tegula::ops
