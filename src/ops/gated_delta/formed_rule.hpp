// What both directions of a call of the gated delta rule form: factors of chunks, and passes over them.
#pragma once
#include "ops/gated_delta/delta_gradients.hpp"
#include "ops/gated_delta/segments.hpp"
#include "ops/schema/launch.hpp"
#include "ops/schema/schema.hpp"
#include "tegula/ops/gated_delta_rule.hpp"

namespace tegula::ops {

using RuleCall = Bound<GatedDeltaRule>;

// One of equally long stretches of all sequences.
struct Stretch {
  std::int64_t index = 0, count = 1;
  // A tensor over tokens or chunks, [batch, tokens, …].
  TensorRef of(const TensorRef& tensor) const {
    if (count == 1 || tensor.rank() < 2) return tensor;
    const std::int64_t own = tensor.shape[1] / count;
    return tensor.slice(1, index * own, (index + 1) * own);
  }
};

// Segments of sequences: equally long ones are sequences of their own, or blocks find the chunks of theirs.
struct SegmentsOfCall {
  std::int64_t number = 1;
  bool found = false;
  Tensor ends, starts, map, remainder;  // [batch, segments, heads, …]; of maps the terms

  TensorRef own(const TensorRef& tensor) const { return found ? tensor : *divided(tensor, number); }
  TensorRef state(const Tensor& tensor) const { return found ? tensor.ref() : as_sequences(tensor); }
};

struct FormedRule {
  const RuleCall& c;
  Launch& launch;
  TensorRef q, k, v, beta, g;
  std::vector<Tensor> owners = {};
  DeltaPass pass = {};
  Tensor vectors = {}, inverse = {}, scores = {}, states = {}, written = {};

  FormedRule(const RuleCall& call, Launch& launches);

  // Tensors over tokens, of heads or key heads.
  Shape shape(const char* heads, Shape remainder = {}) const;
  Tensor make(const char* heads, Shape remainder, DType type) const {
    return launch.scratch(shape(heads, remainder), type);
  }
  // Of heads, with a row for each token of a chunk.
  Tensor make_rows(std::int64_t columns) const {
    return launch.scratch(chunk_shape(c.call(), {c.dim("heads"), chunk_tokens_of_scan, columns}), pass.type);
  }
  Tensor make_states() const {
    return launch.scratch(chunk_shape(c.call(), {c.dim("heads"), pass.d_v, pass.d}), pass.type);
  }
  // States of a call are [.., d, d_v], those of passes [.., d_v, d].
  TensorRef turned(const char* name) const {
    const TensorRef state = c.has(name) ? c.call().formed(name) : TensorRef();
    return state.rank() == 4 ? state.transpose(2, 3) : state;
  }

  // q and k by their norms, if they are wanted so.
  void normalize();
  void make_factors();
  // Of some chunks of each sequence.
  void form_factors(const Stretch& stretch = {});
  // What gradients read of all chunks.
  void make_kept() { states = make_states(), written = make_rows(pass.d_v); }
  // The results of all chunks.
  void run_with_results();
  // With one block a processor where there are so few.
  DeltaPass of_few(DeltaPass own, std::int64_t segments) const;
  void launch_pass(const DeltaPass& own, const Stretch& stretch, const TensorRef& out, const TensorRef& start,
                   const TensorRef& end);
  // Of a state or its gradient that a stretch leaves to the next one.
  Tensor make_between() const {
    return launch.scratch({sequences_of(c.call()), c.dim("heads"), pass.d_v, pass.d}, f32);
  }

  // Whether so many equally long segments are sequences of their own, of this tensor, too.
  bool divides(std::int64_t segments, const TensorRef& other) const;
  Tensor make_states_of_segments(std::int64_t number) const {
    return launch.scratch({sequences_of(c.call()), number, c.dim("heads"), pass.d_v, pass.d}, f32);
  }
  SegmentsOfCall make_segments(std::int64_t number, const TensorRef& other) const;
  // What segments add to a state and make of it; the states that they begin with; and then their passes.
  void form_maps(const SegmentsOfCall& segments);
  void form_starts(const SegmentsOfCall& segments, const TensorRef& final_state);
  void run_segments(const SegmentsOfCall& segments, const TensorRef& out);

 private:
  void run_by_stretches(std::int64_t count, const TensorRef& out, const TensorRef& final_state);
};

// The gradients of a call by chunks.
void differentiate_rule(const RuleCall& c, Launch& launch);

}  // namespace tegula::ops
