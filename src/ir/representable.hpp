// Which values a small storage type represents exactly, so that they need not be rounded or wrapped.
#pragma once
#include <functional>
#include <optional>

#include "ir/expr.hpp"

namespace tegula::ir {

// Whether every value of `other` stays what it is when it is rounded or wrapped to `type`.
bool contains(DType type, DType other);

// A type that surely holds the value of a variable: that of the element it was loaded from.
using StoredType = std::function<std::optional<DType>(const VariablePtr&)>;

// Whether `type` surely holds the value of the expression.
bool is_representable(const Expr& e, DType type, const StoredType& stored_type);

}  // namespace tegula::ir
