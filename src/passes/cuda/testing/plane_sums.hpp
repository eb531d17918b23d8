// For tests: a program that adds two products of each step to planes of a tensor.
#pragma once
#include "tegula/lang.hpp"

namespace tegula::passes::testing {

// The first sum goes to the tensor's first plane; the second to the next one, which goes along the same
// dimensions, or to a plane of rows that lie across all of those. x is [n, 64], y [64, 64] and out
// [64, 64, 64].
inline lang::Kernel plane_sums(bool along_same) {
  using namespace lang;
  return kernel("planes", [&] {
    Dim n("n");
    lang::Tensor x = input("x", {n, 64}, bf16), y = input("y", {64, 64}, bf16),
                 out = inout("out", {64, 64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared q({64, 64}, bf16);
      copy(y.at(0, 0), q);
      pipelined(ceildiv(n, 64), {.stages = 2}, [&](Index k) {
        Shared p({64, 64}, bf16);
        copy(x.at(k * 64, 0), p);
        Fragment a({64, 64}, f32, 0), b({64, 64}, f32, 0);
        gemm(p, q, a);
        gemm(p, q.T(), b);
        accumulate(out.slice(0).at(0, 0), a);
        accumulate(along_same ? out.slice(1).at(0, 0) : out.slice(all, 1).at(0, 0), b);
      });
    });
  });
}

}  // namespace tegula::passes::testing
