// Scans of sequences that fit one tile and have no states before or after them: one product of queries and
// keys, masked and faded, and one with values, so that no state is formed.
#pragma once
#include "ops/linear/scan.hpp"

namespace tegula::ops {

// The rows of the tile that holds the longest sequence of a call; none where chunks pass on a state, are
// longer, or are those of a CPU, whose chunks have no rows without tokens.
std::optional<int> tile_of_short(const BoundCall& call, const ScanKernel& scan);

// With blocks that have all columns of values, up to some: each forms the scores for itself.
ScanKernel with_all_columns(ScanKernel scan);

// Rows of the chunks in which gates are summed for it. Packed sequences have one numbering of chunks in a
// call, and in each of these a shorter tile.
std::optional<int> tile_of_sums(const ScanKernel& scan);

// The tensors of scan_kernel without states.
lang::Kernel scan_short_kernel(const ScanKernel& c);

// Says where rows of a tile are without tokens.
void note_tile_of_short(const BoundCall& call, int rows, Launch& launch);

// The same of gradients, for which a tile has a chunk at most.
std::optional<int> tile_of_short_gradients(const BoundCall& call, const ScanKernel& scan);
struct ShortGradientTensors {
  TensorRef q, k, v, dout, sums;
  double scale = 1;
  TensorRef dq, dk, dv, dsums;
};
void launch_short_gradients(const BoundCall& call, Launch& launch, const ScanKernel& scan,
                            const ShortGradientTensors& tensors);
// q, k, v, dout, [sums,] scale give dq, dk, dv [, dsums].
lang::Kernel scan_short_gradients_kernel(const ScanKernel& c);

}  // namespace tegula::ops
