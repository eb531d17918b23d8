// The selection of key blocks in native sparse attention (Yuan et al., 2025), by the weights of compressed
// entries.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// How the weights of the entries at a block are combined: by their sum, or by their maximum, as in InfLLM v2.
enum class BlockWeight : std::uint8_t { sum, largest };

struct NsaSelect {
  TensorRef q = {}, k = {}, lse = {};
  std::int64_t count = 0;  // blocks selected per row, at most 4096
  Layout layout = Layout::bshd;
  int length = 32, stride = 16;  // of the compressed entries, as in nsa_compress
  int block_size = 64;           // tokens per block
  // Blocks that are always selected first: so many from the beginning, and so many ending with the query's
  // own.
  std::int64_t first_blocks = 1, local_blocks = 2;
  BlockWeight weight = BlockWeight::sum;
  std::int64_t key_tokens = 0;               // as in nsa_compressed_attention
  std::optional<float> scale = {};           // scale of the scores; default 1/√d
  std::optional<TensorRef> cu_seqlens = {};  // as there
  std::int64_t max_seqlen = 0;
  std::optional<TensorRef> out = {};  // preallocated output
  Target target = Target::automatic();
};

// q, the compressed keys k and lse are the arguments and result of nsa_compressed_attention. The score of a
// block for a query is the sum of the weights exp(scale · q · k − lse) over the query heads of the group and
// over the visible entries that share a token with the block or, depending on `weight`, the maximum over
// those entries of the sum over the heads. The result is i32 [batch, queries, kv_heads, count] (without batch
// if packed, with heads before queries in the layout bhsd): of the blocks up to the query's own, the `count`
// with the highest scores in ascending order, padded with −1 if there are fewer. Of equal scores, the lower
// block is selected. Weights are f32 and recomputed tile by tile; only those of the tiles in progress are in
// memory. Throws an ArgumentError for wrong shapes, dtypes or options.
Tensor nsa_select(const TensorRef& q, const TensorRef& k, const TensorRef& lse, std::int64_t count,
                  NsaSelect options = {});

}  // namespace tegula::ops
TEGULA_API_END
