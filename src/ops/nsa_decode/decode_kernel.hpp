// The tile program of native sparse attention for tokens that are decoded.
#pragma once
#include <algorithm>

#include "ops/pieces/features.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"

namespace tegula::ops {

struct NsaDecodeKernel {
  DType type = f32, compute = f32, gates = f32;
  int dim = 64, dim_v = 64;
  TileFeatures padded = {};
  int group = 1, rows = 64;  // heads of a group, and rows of a tile that has them
  int keys = 64;             // of a step, and entries
  int keys_of_block = 64;    // of a step over a selected block
  int branches = 3;          // with that of a window
  int columns = 32;          // blocks that threads hold at a time
  bool held = true;          // all of them
  int listed = 16;           // blocks that a token may choose
  // Entries that begin in a block, and of those how many reach into the next, where steps leave the weights
  // of whole blocks; 0: of entries.
  int begun = 0, reaching = 0;

  int features() const { return padded.of(dim); }
  int features_v() const { return padded.of_v(dim_v); }
  int blocks_of_step() const { return keys / begun; }
  // Weights that a step leaves of a head.
  int left_of_step() const { return begun > 0 ? blocks_of_step() : keys; }
  // All that steps leave, in shared memory: 64 KB leave room for three steps of 128 features of 16 bits.
  bool left_in_tiles() const {
    const bool small = std::max(features(), features_v()) * compute.bytes() <= 256;
    return begun > 0 && held && group * columns <= (small ? 16 << 10 : 4 << 10);
  }
  auto fields() const {
    return std::tuple(type, labelled("c", compute), labelled("gates", gates), joined("d", dim, dim_v), padded,
                      joined("g", group, rows), joined("t", keys, keys_of_block),
                      labelled("branches", branches), joined("b", columns, begun),
                      labelled("reach", reaching), labelled("held", held), labelled("n", listed));
  }
};

// Arguments: q [batch, queries, kv heads, group, d], k and v [batch, keys, kv heads, …], compressed_k and
// compressed_v [batch, entries, kv heads, …], gates [batch, queries, kv heads, group, branches], out as q
// with the features of v; scale (with log2(e)), and the options of nsa_decode by name.
lang::Kernel nsa_decode_program(const NsaDecodeKernel& instance);

}  // namespace tegula::ops
