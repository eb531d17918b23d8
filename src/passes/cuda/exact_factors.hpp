// Numbers of few bits times factors that are rounded to bf16 for the left operand of a product, such as
// weights of MXFP4. What stands in the upper half of a word is a number of bf16 as it is. If only the last
// product can need more digits than bf16 has, products of bf16 give what those of f32 give when they are
// rounded, and one instruction forms two of them.
#pragma once
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ir/kernel.hpp"
#include "passes/cuda/infer_layouts.hpp"

namespace tegula::passes {

// bitcast(bits & mask, f32) * power * factor.
struct ExactFactors {
  ir::Expr bits;
  std::uint32_t mask = 0;
  float power = 1;
  ir::Expr factor = {};         // none: 1
  ir::VariablePtr masked = {};  // which is `bits & mask`, if nothing else reads it
};

// Of the elements that the loop stores to a fragment.
std::optional<ExactFactors> exact_factors(const ir::For& loop);

using FactoredFragments = std::unordered_map<const ir::Buffer*, ExactFactors>;

// Fragments that one loop writes so, and that are read where they become words of bf16 alone; `words` are
// fragments that are held in words.
FactoredFragments factored_fragments(const ir::Body& body, const Layouts& layouts,
                                     const std::unordered_set<const ir::Buffer*>& words);

}  // namespace tegula::passes
