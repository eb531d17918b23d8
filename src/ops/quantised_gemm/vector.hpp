// A matrix of quantised weights times one vector, by multiply-add: threads of a GPU, or lanes of a CPU, read
// words of a row, and no weight passes through shared memory.
#pragma once
#include "ops/quantised_gemm/weights.hpp"

namespace tegula::ops {

struct QuantisedVector {
  DType type = bf16, out = bf16;
  QuantisedWeights weights = {};
  std::optional<DType> bias = {};
  bool tensor_scale = false, row_scale = false, on_cpu = false;
  int step = 0;  // words of a row that are multiplied at once, on a CPU

  auto fields() const {
    return std::tuple(type, labelled("out", out), weights, labelled("bias", bias),
                      labelled("whole", tensor_scale), labelled("of_rows", row_scale),
                      labelled("cpu", on_cpu), labelled("step", step));
  }
};

// Whether the program takes such weights: words, whose numbers are of one group. On a GPU, tiles multiply
// words in the packed order as fast, or faster.
inline bool takes_vectors(const QuantisedWeights& w, bool on_gpu) {
  if (w.packed && on_gpu) return false;
  return w.words && !(w.packed && w.group > 0 && w.group < 32);
}
// The step for rows of so many words: all of their steps are whole, if that is possible.
int vector_step(std::int64_t words);
lang::Kernel quantised_vector_program(const QuantisedVector& instance);

}  // namespace tegula::ops
