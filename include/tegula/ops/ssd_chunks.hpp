// The steps of ssd as operators, and their gradients: states of chunks, their passage, and the scan inside
// chunks. Chunks are 64 tokens, the last one of a sequence what is left. Of packed sequences, sequence i has
// the chunks from cu_seqlens[i] / 64 + i up to cu_seqlens[i + 1] / 64 + i + 1, so that there are
// tokens / 64 + sequences; the last of them may have no tokens: it leaves a state of zeros, and one before it
// does not fade.
#pragma once
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

struct SsdChunkState {
  TensorRef x = {};  // [batch, tokens, heads, p], packed [tokens, heads, p]; f32, f16 or bf16
  TensorRef dt = {};                      // [batch, tokens, heads], f32, f16 or bf16: step sizes
  TensorRef A = {};                       // f32 [heads], at most 0
  TensorRef B = {};                       // [batch, tokens, groups, n]: heads is a multiple of groups
  std::optional<TensorRef> dt_bias = {};  // f32 [heads], added to dt
  std::optional<TensorRef> cu_seqlens = {};  // i32 [sequences + 1]: packed sequences
  std::int64_t max_seqlen = 0;               // a promise: no packed sequence has more tokens
  bool dt_softplus = false;               // dt becomes log(1 + exp(dt + dt_bias))
  std::optional<TensorRef> states = {}, decays = {};  // preallocated outputs
  Target target = Target::automatic();
};

struct SsdChunkStateResult {
  Tensor states, decays;  // f32 [batch, chunks, heads, p, n] and [batch, chunks, heads]; packed without batch
};

// For each chunk and head: the state that its own tokens leave, from zeros, and the factor by which a state
// before it fades. Wrong shapes, dtypes or options are an ArgumentError; dt · A above 0 is a ProgramError.
SsdChunkStateResult ssd_chunk_state(const TensorRef& x, const TensorRef& dt, const TensorRef& A,
                                    const TensorRef& B, SsdChunkState options = {});

struct SsdChunkStateGradients {
  Tensor dx, ddt, dA, dB, ddt_bias;  // the last one empty if dt_bias is not given
};

// The gradients for those of both results. Throws as ssd_chunk_state() does.
SsdChunkStateGradients ssd_chunk_state_backward(const TensorRef& dstates, const TensorRef& ddecays,
                                                const TensorRef& x, const TensorRef& dt, const TensorRef& A,
                                                const TensorRef& B, SsdChunkState options = {});

struct SsdStatePassing {
  TensorRef states = {};                        // f32 [batch, chunks, heads, p, n], packed [chunks, …]
  TensorRef decays = {};                        // f32 [batch, chunks, heads]
  std::optional<TensorRef> initial_state = {};  // f32 [batch, heads, p, n]
  // i32 [sequences + 1]: packed sequences have the chunks from one entry up to the next.
  std::optional<TensorRef> cu_chunks = {};
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

struct SsdStatePassingGradients {
  Tensor dstates, ddecays, dinitial_state;  // the last one empty if initial_state is not given
};

// The gradients for those of both results. Throws as ssd_state_passing() does.
SsdStatePassingGradients ssd_state_passing_backward(const TensorRef& dstarts, const TensorRef& dfinal_state,
                                                    const TensorRef& states, const TensorRef& decays,
                                                    SsdStatePassing options = {});

struct SsdChunkScan {
  TensorRef x = {}, dt = {}, A = {};              // as those of SsdChunkState
  TensorRef B = {}, C = {};                       // [batch, tokens, groups, n]
  TensorRef starts = {};                          // f32 [batch, chunks, heads, p, n]
  std::optional<TensorRef> D = {};                // f32 [heads]: D · x is added to the result
  std::optional<TensorRef> z = {}, dt_bias = {};  // as x: a gate, silu(z); f32 [heads], added to dt
  std::optional<TensorRef> cu_seqlens = {};       // as those of SsdChunkState
  std::int64_t max_seqlen = 0;
  bool dt_softplus = false;                       // dt becomes log(1 + exp(dt + dt_bias))
  std::optional<TensorRef> out = {};              // preallocated output
  Target target = Target::automatic();
};

// The results of ssd for given states before each chunk; chunks are independent of each other. Throws as
// ssd_chunk_state() does.
Tensor ssd_chunk_scan(const TensorRef& x, const TensorRef& dt, const TensorRef& A, const TensorRef& B,
                      const TensorRef& C, const TensorRef& starts, SsdChunkScan options = {});

struct SsdChunkScanGradients {
  Tensor dx, ddt, dA, dB, dC, dstarts, dD, dz, ddt_bias;  // empty if the input is not given
};

// The gradients for dout, that of the result. Throws as ssd_chunk_state() does.
SsdChunkScanGradients ssd_chunk_scan_backward(const TensorRef& dout, const TensorRef& x, const TensorRef& dt,
                                              const TensorRef& A, const TensorRef& B, const TensorRef& C,
                                              const TensorRef& starts, SsdChunkScan options = {});

}  // namespace tegula::ops
TEGULA_API_END
