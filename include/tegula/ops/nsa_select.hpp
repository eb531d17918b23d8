// The choice of key blocks in native sparse attention (Yuan et al., 2025): by the weights that compressed
// entries have.
#pragma once
#include "tegula/ops/attention.hpp"

TEGULA_API_BEGIN
namespace tegula::ops {

// What of the weights of entries at a block counts: their sum, or the largest, as in InfLLM v2.
enum class BlockWeight : std::uint8_t { sum, largest };

struct NsaSelect {
  TensorRef q = {}, k = {}, lse = {};
  std::int64_t count = 0;  // entries of a row, at most 4096
  Layout layout = Layout::bshd;
  int length = 32, stride = 16;  // of the compressed entries, as in nsa_compress
  int block_size = 64;           // tokens of a block that is selected
  // Blocks that are chosen before all others: so many from the beginning, and so many that end with the
  // query's own.
  std::int64_t first_blocks = 1, local_blocks = 2;
  BlockWeight weight = BlockWeight::sum;
  std::int64_t key_tokens = 0;               // as in nsa_compressed_attention
  std::optional<float> scale = {};           // 1/√d unless given
  std::optional<TensorRef> cu_seqlens = {};  // as there
  std::int64_t max_seqlen = 0;
  std::optional<TensorRef> out = {};  // written instead of a new tensor
  Target target = Target::automatic();
};

// q and compressed keys k as those of nsa_compressed_attention, and lse as it gives them. A block matters to
// a query by the sum, over the query heads of the group and the seen entries that share a token with the
// block, of the entry's weight exp(scale · q · k − lse); or, if `weight` says so, by the largest sum over the
// heads that such an entry has. i32 [batch, queries, kv_heads, count] (packed
// without batch, in the layout bhsd with heads before queries): of the blocks up to the query's own the
// `count` that matter most, in ascending order, −1 after them where there are fewer. Of equal ones the lower
// block is chosen. Weights are f32, formed anew by tiles, and never in memory for more than the tiles that
// processors work on. Wrong shapes, dtypes or options are an ArgumentError.
Tensor nsa_select(const TensorRef& q, const TensorRef& k, const TensorRef& lse, std::int64_t count,
                  NsaSelect options = {});

}  // namespace tegula::ops
TEGULA_API_END
