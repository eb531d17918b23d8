// The program of the gradients of a gated sum of branches.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

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

}  // namespace tegula::ops
