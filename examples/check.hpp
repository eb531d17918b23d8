// Every lesson ends with this: it compares the result with that of a plain computation.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tegula/tensor.hpp"

// Exits with status 1 if the tensors differ by more than `tolerance`.
inline void check(const char* what, const tegula::TensorRef& result, const tegula::TensorRef& expected,
                  double tolerance) {
  if (auto difference = tegula::first_difference(result, expected, tolerance)) {
    std::printf("%s: WRONG: %s\n", what, difference->c_str());
    std::exit(1);
  }
  std::printf("%s: right, largest error %.1e\n", what, tegula::max_abs_difference(result, expected));
}
