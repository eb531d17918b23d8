// The tile program of the gradients of attention over compressed entries.
#pragma once
#include "ops/nsa_compressed/compressed.hpp"

namespace tegula::ops {

struct CompressedBackwardKernel {
  CompressedKernel heads;
  bool dlse = false;
  bool one_pass = false;  // dq is summed in f32 over the blocks of entries, in their order
  int splits = 1;         // of a group, which sum dk and dv by themselves

  auto fields() const {
    return std::tuple(heads, labelled("dlse", dlse), labelled("one_pass", one_pass),
                      labelled("parts_", splits > 1 ? std::optional(splits) : std::nullopt));
  }
};

// Under the rule of compressed entries later queries see more.
inline lang::Order later_queries_first() {
  return lang::Order::heavy_first([](lang::Index x, lang::Index, lang::Index) -> lang::Expr { return x; });
}

// delta of the queries; dq by tiles of queries, then dk and dv by tiles of entries; or all by tiles of
// entries, and what they left of dq and of splits of groups is brought together.
lang::Kernel compressed_backward_program(const CompressedBackwardKernel& instance);

}  // namespace tegula::ops
