// Sequences of few tokens without states: one tile holds the tokens of a head, and no state is formed.
#pragma once
#include "ops/gated_delta/kda_kernel.hpp"
#include "ops/linear/scan_short.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

// The rows of the tile that holds the longest sequence of such a call of a GPU: more tokens than half of
// those of a chunk take as long by chunks. `last` is the state behind them, or its gradient.
std::optional<int> tile_of_short_rule(const BoundCall& call, const char* last = "final_state");

// The threads of so many blocks, whose steps wait for each other: where there are many, fewer threads, so
// that a processor has the more blocks.
int threads_of_short_rule(std::int64_t blocks);

struct ShortRuleKernel {
  ScanKernel scan;  // of_tile
  DType beta = f32;
  std::optional<int> threads = {};
  int columns() const { return scan.block; }
  auto fields() const { return std::tuple(scan, labelled("beta", beta), labelled("t", threads)); }
};

// q, k, beta [, g], scale, v give out.
lang::Kernel short_rule_kernel(const ShortRuleKernel& c);
// q, k, g, beta, scale, v give out, of a decay for each feature.
lang::Kernel short_kda_kernel(const KdaKernel& c);
// q, k, beta [, g], scale, v, dout give dq, dk, dv, dbeta [, dg].
lang::Kernel short_rule_gradients_kernel(const ShortRuleKernel& c);

// Runs a program of these, and says where rows of a tile are without tokens.
template <class Kernel>
void launch_short_rule(const BoundCall& call, Launch& launch, const Kernel& kernel,
                       lang::Kernel (*program)(const Kernel&), int rows, const TensorRef& q,
                       const TensorRef& k) {
  const auto view = [&](const char* tensor) { return token_view(call, tensor); };
  note_tile_of_short(call, rows, launch);
  Kernel own = kernel;
  own.threads = threads_of_short_rule(sequences_of(call) * call.dim("heads") *
                                      ((call.dim("d_v") + own.columns() - 1) / own.columns()));
  launch(own, program,
         {{"q", q},
          {"k", k},
          {"v", view("v")},
          {"beta", view("beta")},
          {"g", view("g")},
          {"scale", call.real("scale")},
          {"out", view("out")}});
}

}  // namespace tegula::ops
