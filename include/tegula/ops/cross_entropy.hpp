// Cross entropy of rows of logits, and its gradient.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct CrossEntropy {
  TensorRef logits = {};      // [..., classes], f32, f16 or bf16
  TensorRef labels = {};      // [...], i32: the class of each row, or ignore_index
  float label_smoothing = 0;  // 0 to 1: the share of the target distribution that is uniform over all classes
  std::int64_t ignore_index = -100;  // rows with this label have no loss and no gradient
  std::optional<TensorRef> loss = {}, lse = {};
  Target target = Target::automatic();
};
struct CrossEntropyResult {
  Tensor loss, lse;  // f32 [...]: per row; lse is the logarithm of the sum of the exponentials
};

// loss = lse − (1 − s) · logit of the label − s · mean(logits), with s the label smoothing; computed in f32
// from logits in their own dtype. A label that is neither a class nor ignore_index is a ProgramError.
CrossEntropyResult cross_entropy(const TensorRef& logits, const TensorRef& labels, CrossEntropy options = {});

struct CrossEntropyAndGradient {
  TensorRef logits = {}, labels = {};  // as above
  float label_smoothing = 0;
  std::int64_t ignore_index = -100;
  float gradient_scale = 1;  // of dlogits, for example 1 / number of labels
  std::optional<TensorRef> loss = {}, lse = {}, dlogits = {};
  Target target = Target::automatic();
};
struct CrossEntropyAndGradientResult {
  Tensor loss, lse;
  Tensor dlogits;  // of the logits' shape and dtype: the gradient of gradient_scale · sum(loss)
};

// The same, together with the gradient of the logits, computed while they are in the cache.
CrossEntropyAndGradientResult cross_entropy_and_gradient(const TensorRef& logits, const TensorRef& labels,
                                                         CrossEntropyAndGradient options = {});

struct CrossEntropyBackward {
  TensorRef dloss = {};                          // f32 [...]
  TensorRef logits = {}, labels = {}, lse = {};  // the arguments and result of cross_entropy
  std::optional<TensorRef> dlse = {};            // f32 [...]
  float label_smoothing = 0;
  std::int64_t ignore_index = -100;
  std::optional<TensorRef> dlogits = {};
  Target target = Target::automatic();
};

// The gradient of the logits for dloss, the gradient of the losses.
Tensor cross_entropy_backward(const TensorRef& dloss, const TensorRef& logits, const TensorRef& labels,
                              const TensorRef& lse, CrossEntropyBackward options = {});

}  // namespace tegula::ops
TEGULA_API_END
