// The recurrence token by token, for calls of a few tokens: the state is read once and written once.
#pragma once
#include "ops/linear/sequences.hpp"

namespace tegula::ops {

// What chunks take for a head with 128 x 128 features, in nanoseconds, and as long as a call has few heads, in
// microseconds.
struct ChunkCosts {
  double head, call;
};
// Whether a call of few tokens takes less time token by token than by chunks.
bool goes_by_token(const BoundCall& call, const ChunkCosts& chunks);

// Gates of features are no smaller, so that a chunk of 16 tokens fades by at most e^-80.
inline constexpr float least_gate = -5;

struct RecurrentKernel {
  DType type = f32, result = f32;
  int d = 64, d_v = 64, block = 32;
  std::optional<DType> g = {}, g_gamma = {};
  std::optional<DType> beta = {};  // the delta rule
  bool unit = false;               // q and k are divided by their norms
  bool by_feature = false;         // g has a gate for each feature
  bool ones = false;               // the last column of values is 1 and not in memory
  bool first = false, last = false, packed = false;
  auto fields() const {
    return std::tuple(type, labelled("to", result), labelled("d", d), labelled("dv", d_v),
                      labelled("b", block), labelled("g", g), labelled("gamma", g_gamma),
                      labelled("beta", beta), labelled("unit", unit), labelled("features", by_feature),
                      labelled("ones", ones), labelled("first", first), labelled("last", last),
                      labelled("packed", packed));
  }
};

// q, k, v, [g, g_gamma, beta, initial_state,] scale give out [, final_state].
lang::Kernel recurrent_kernel(const RecurrentKernel& c);
// Of one token: q, k, v, [g, g_gamma, beta, initial_state,] scale, dout [, dfinal_state] give dq, dk, dv
// [, dbeta, dg, dinitial_state]. `last` says that there is a gradient of the last state; dg is that of a
// token's gate.
lang::Kernel recurrent_gradients_kernel(const RecurrentKernel& c);
// Whether gradients of a call are found so.
bool differentiates_by_token(const BoundCall& call);

}  // namespace tegula::ops
