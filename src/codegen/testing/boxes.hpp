// For tests: a program whose boxes begin at any element of their innermost dimension, which the copy engine
// can bring and store at multiples of 16 bytes only.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::testing {

// out[:, first:] = a[:, first:] b · v[first:], or added to it; a vector, an operand and a sum that are moved.
inline lang::Kernel boxes_from(bool adds) {
  using namespace lang;
  constexpr int rows = 64, depth = 64, columns = 64, steps = 3;
  return kernel(adds ? "added_boxes" : "stored_boxes", [&] {
    lang::Tensor a = input("a", {rows, steps * depth + 16}, bf16),
                 b = input("b", {steps * depth, columns}, bf16), v = input("v", {steps * columns + 16}, f32),
                 out = inout("out", {rows, columns + 16}, f32);
    Expr first = scalar("first", i32);
    grid(1, {.threads = 128}, [&](Index) {
      Fragment sum({rows, columns}, f32, 0), factors({columns}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index n) {
        Shared a_tile({rows, depth}, bf16), b_tile({depth, columns}, bf16);
        Shared v_tile({columns}, f32);
        copy(a.at(0, n * depth + first), a_tile);
        copy(b.at(n * depth, 0), b_tile);
        copy(v.at(n * columns + first), v_tile);
        gemm(a_tile, b_tile, sum);
        parallel(factors, [&](Index j) { factors(j) += v_tile(j); });
      });
      parallel(sum, [&](Index i, Index j) { sum(i, j) *= factors(j); });
      if (adds)
        accumulate(out.at(0, first), sum);
      else
        copy(sum, out.at(0, first));
    });
  });
}

inline void expect_boxes_anywhere(bool adds, Target target, const Device& device) {
  const lang::Kernel program = boxes_from(adds);
  const Tensor a = Tensor::random_normal({64, 3 * 64 + 16}, bf16, 1),
               b = Tensor::random_normal({3 * 64, 64}, bf16, 2),
               v = Tensor::random_normal({3 * 64 + 16}, f32, 3);
  const Function function = compile(program, target), interpreted = compile(program, Target::interpreter());
  for (const int first : {0, 1, 4, 7, 8, 16}) {
    const Tensor out = Tensor::full({64, 64 + 16}, f32, 5).to(device),
                 expected = Tensor::full({64, 64 + 16}, f32, 5);
    function(a.to(device), b.to(device), v.to(device), out, first);
    interpreted(a, b, v, expected, first);
    EXPECT_TRUE(all_close(out.to(Device::cpu()), expected, 1e-2, 1e-2)) << "from element " << first;
  }
}

}  // namespace tegula::testing
