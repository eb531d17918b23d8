// Sums of branches by gates: lines of tables, the program of the gradients, and the rule of gates in programs
// and formulas.
#pragma once
#include <array>
#include <cmath>

#include "ops/nsa/table.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"
#include "tegula/ops/nsa_gated_attention.hpp"

namespace tegula::ops {

// The rule: what a branch adds to the sum is weighted by the sigmoid of its gate.
template <class Number>
Number weight_of_gate(const Number& gate) {
  using std::exp;
  return 1 / (1 + exp(-gate));
}
// Gates of rows become weights.
inline void weigh_gates(lang::Fragment& gates) {
  lang::parallel(gates, [&](lang::Index i) { gates(i) = 1.f / (1.f + lang::exp2(-gates(i) * lang::log2e)); });
}
// The formula: the sum of as many of the branches compressed, selected and window as there are gates, f64.
tegula::Tensor sum_by_gates(const std::array<TensorRef, 3>& branches, const TensorRef& gates);

inline constexpr const char *meaning_of_gates = "logits: a branch is weighted by the sigmoid of its gate",
                            *sum_of_branches = "the sum of sigmoid(gate) * branch";
// `count` is the condition that there are as many as branches.
template <class Op>
void require_gates(Schema<Op>& table, const char* count) {
  table.require("gates", count, "a gate for each branch, in the order compressed, selected, window",
                "give two gates, or three with a window");
}

struct CombineInstance {
  DType type = f32, gates = f32;
  bool window = false;
  int columns = 128, rows = 16;                     // of a tile
  bool more_selected = false, more_window = false;  // of gradients: what is added to these branches' own
  auto fields() const {
    return std::tuple(type, labelled("gates", gates), labelled("window", window), joined("t", rows, columns),
                      labelled("more_selected", more_selected), labelled("more_window", more_window));
  }
};
CombineInstance combine_instance(DType type, DType gates, bool window, int features);

// A branch gets its weight of dout, and its gate the product of both times the slope of the sigmoid.
// Arguments: compressed, selected and, where the instance has it, window [rows, features], their gradients
// dcompressed, dselected and dwindow, gates [rows, branches], dout as the branches, dgates as gates; then,
// where the instance has them, more_selected and more_window, as the branches.
lang::Kernel combine_backward(const CombineInstance& instance);

struct NsaGated : NsaGatedOptions {
  TensorRef q = {}, k = {}, v = {}, block_indices = {}, compressed = {}, gates = {};
};

struct NsaGatedBackward : NsaGatedOptions, NsaGatedBackwardOptions {
  TensorRef dout = {}, q = {}, k = {}, v = {}, block_indices = {}, compressed = {}, gates = {};
  TensorRef selected = {}, lse = {};
  // Not where the forward call writes its own.
  using NsaGatedBackwardOptions::window_lse, NsaGatedBackwardOptions::window_out;
};

}  // namespace tegula::ops
