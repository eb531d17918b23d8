// The steps of ssd as operators: states of chunks, their passage, and the scan inside chunks. Chunks are 64
// tokens, the last one what is left.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct SsdChunkState {
  TensorRef x = {};                       // [batch, tokens, heads, p]; f32, f16 or bf16
  TensorRef dt = {};                      // [batch, tokens, heads], f32, f16 or bf16: step sizes
  TensorRef A = {};                       // f32 [heads], at most 0
  TensorRef B = {};                       // [batch, tokens, groups, n]: heads is a multiple of groups
  std::optional<TensorRef> dt_bias = {};  // f32 [heads], added to dt
  bool dt_softplus = false;               // dt becomes log(1 + exp(dt + dt_bias))
  std::optional<TensorRef> states = {}, decays = {};  // preallocated outputs
  Target target = Target::automatic();
};

struct SsdChunkStateResult {
  Tensor states, decays;  // f32 [batch, chunks, heads, p, n] and [batch, chunks, heads]
};

// For each chunk and head: the state that its own tokens leave, from zeros, and the factor by which a state
// before it fades. Wrong shapes, dtypes or options are an ArgumentError; dt · A above 0 is a ProgramError.
SsdChunkStateResult ssd_chunk_state(const TensorRef& x, const TensorRef& dt, const TensorRef& A,
                                    const TensorRef& B, SsdChunkState options = {});

struct SsdStatePassing {
  TensorRef states = {};                        // f32 [batch, chunks, heads, p, n]: those of chunks
  TensorRef decays = {};                        // f32 [batch, chunks, heads]
  std::optional<TensorRef> initial_state = {};  // f32 [batch, heads, p, n]
  std::optional<TensorRef> starts = {}, final_state = {};  // preallocated outputs
  Target target = Target::automatic();
};

struct SsdStatePassingResult {
  Tensor starts, final_state;  // f32 [batch, chunks, heads, p, n] and [batch, heads, p, n]
};

// The states before each chunk, and after the last: S ← decay · S + the chunk's own. Throws an ArgumentError
// for wrong shapes, dtypes or options.
SsdStatePassingResult ssd_state_passing(const TensorRef& states, const TensorRef& decays,
                                        SsdStatePassing options = {});

struct SsdChunkScan {
  TensorRef x = {}, dt = {}, A = {};              // as those of SsdChunkState
  TensorRef B = {}, C = {};                       // [batch, tokens, groups, n]
  TensorRef starts = {};                          // f32 [batch, chunks, heads, p, n]
  std::optional<TensorRef> D = {};                // f32 [heads]: D · x is added to the result
  std::optional<TensorRef> z = {}, dt_bias = {};  // as x: a gate, silu(z); f32 [heads], added to dt
  bool dt_softplus = false;                       // dt becomes log(1 + exp(dt + dt_bias))
  std::optional<TensorRef> out = {};              // preallocated output
  Target target = Target::automatic();
};

// The results of ssd for given states before each chunk; chunks are independent of each other. Throws as
// ssd_chunk_state() does.
Tensor ssd_chunk_scan(const TensorRef& x, const TensorRef& dt, const TensorRef& A, const TensorRef& B,
                      const TensorRef& C, const TensorRef& starts, SsdChunkScan options = {});

}  // namespace tegula::ops
TEGULA_API_END
