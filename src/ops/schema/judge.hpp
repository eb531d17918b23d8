// What a right result is: its error is at most twice that of the plain computation in its type.
#pragma once
#include <optional>
#include <string>

#include "tegula/tensor.hpp"

namespace tegula::ops {

struct ResultError {
  double largest = 0, norm = 0;  // of one element; of all, relative
};
ResultError error_of(const Tensor& result, const Tensor& exact);

// Of one element, and of all: twice that of `plain`, or a few units of rounding in `type`.
ResultError allowed_error(const Tensor& exact, const Tensor& plain, DType type);

// Nothing if the result is right: its error is at most twice that of `plain`, or a few units of rounding in
// `type`. Integers are equal. `exact` is the formula's result, `plain` that with every step in `type`.
std::optional<std::string> judge(const Tensor& result, const Tensor& exact, const Tensor& plain, DType type);

}  // namespace tegula::ops
