// The pass over the chunks of a gated delta rule. Its states are transposed, rows for columns of values: so
// they stay in registers as the left operand of all products with keys and queries, and what a chunk writes
// is the left operand of the products that follow. No step waits for another warp.
#pragma once
#include "ops/linear/scan.hpp"

namespace tegula::ops {

struct DeltaPass {
  DType type = f32;
  int d = 64, d_v = 64, block = 64;  // features, columns of values, and those that a block has
  bool packed = false;
  bool first = false, last = false;  // there is a state before the first token, one wanted after the last
  bool outputs = false;              // results are wanted
  bool keep = false;                 // states of all chunks and what they write are wanted
  // d more columns have zero values and the identity as their first state, so that they end as the map that
  // applies to any state. Of 16 bits it is a sum of two terms, as products read them.
  bool segment = false;
  // A processor has one block, whose loads run further ahead.
  bool deep = false;
  bool divided = false;  // sequences are divided into segments, which have states of their own
  auto fields() const {
    return std::tuple(type, labelled("d", d), labelled("dv", d_v), labelled("b", block),
                      labelled("packed", packed), labelled("first", first), labelled("last", last),
                      labelled("outputs", outputs), labelled("keep", keep), labelled("segment", segment),
                      labelled("deep", deep), labelled("divided", divided));
  }
  int columns() const { return d_v + (segment ? d : 0); }
  bool splits_maps() const { return type.bits() == 16; }
};

// k, v, vectors, inverse [, q, scores, initial_state] give [out, states, written, final_state, maps], the
// states [.., columns of values, d], the maps [.., d, d], by names_of_maps(). Of a token that writes r to a
// chunk's system of equations, r = β (v − e^g k · state), the inverse makes what is written: inverse · r.
lang::Kernel delta_pass_kernel(const DeltaPass& c);

// One warp group has all columns of a block, so that none waits for another.
int threads_of_pass(const DeltaPass& c);
// The extents of tiles, of a pass and of gradients of chunks.
template <class Kernel>
ScanKernel scan_of(const Kernel& c) {
  ScanKernel scan;
  scan.type = c.type, scan.d = c.d, scan.d_v = c.d_v, scan.block = c.block, scan.packed = c.packed;
  return scan;
}
inline ScanKernel scan_of_pass(const DeltaPass& c) {
  ScanKernel scan = scan_of(c);
  scan.divided = c.divided;
  return scan;
}

}  // namespace tegula::ops
