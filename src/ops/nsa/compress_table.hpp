// What the operators over compressed entries share: lines of their tables, and their tensors in one form.
#pragma once
#include "ops/pieces/heads.hpp"
#include "ops/schema/schema.hpp"
#include "tegula/ops/nsa_compress.hpp"

namespace tegula::ops {

struct CompressBackward : NsaCompress {
  TensorRef dout = {};
  std::optional<TensorRef> dx = {};
};

// A tensor over tokens, or over entries, in the order that the layout says; packed sequences have no batch.
inline std::string compressed_dims(const char* rows, const char* heads, const char* features) {
  return fmt::format("cu_seqlens ? {0} {1} {2} : layout=bshd ? batch {0} {1} {2} : batch {1} {0} {2}", rows,
                     heads, features);
}

// Windows of the tokens, and packed sequences of them.
template <class Op>
auto add_windows(const char* tokens) {
  return [tokens](Schema<Op>& table) {
    table
        .in(&Op::cu_seqlens, "cu_seqlens", "sequences+1", index,
            "boundaries of packed sequences: sequence i has the tokens from entry i up to entry i + 1")
        .remedy("give the boundaries of the sequences in ascending order")
        .packs(tokens, "max_seqlen", "longest")
        .option(&Op::max_seqlen, "max_seqlen",
                "upper bound on the length of a packed sequence, which the caller promises",
                {0, {}, false, "a number of tokens, or 0 if unknown", "leave it out"})
        .option(&Op::layout, "layout",
                "order of batch, sequence, heads, features; packed sequences have none")
        .option(&Op::length, "length", "tokens of a window; the mean of each window is an entry", block_size)
        .option(&Op::stride, "stride", "tokens from the start of one window to the start of the next",
                block_size)
        .require("stride", "stride <= length", "at most {length}, the length of a window",
                 "give a longer window: tokens between windows would be ignored")
        .require("max_seqlen", "cu_seqlens ? 1 : max_seqlen <= 0", "cu_seqlens as well",
                 "leave it out: without them all sequences are equally long");
  };
}

// [batch, rows, heads, features]; packed sequences are one batch.
inline TensorRef batched(const TensorRef& tensor, Layout layout) {
  return tensor.rank() == 4 ? as_bshd(tensor, layout)
                            : split_heads(tensor, 0, std::max<std::int64_t>(tensor.size(0), 1));
}
// [batch, heads, tokens] of one that lacks the batch where sequences are packed.
inline TensorRef batched_vector(const TensorRef& tensor) {
  return tensor.rank() == 3 ? tensor : split_heads(tensor, 0, std::max<std::int64_t>(tensor.size(0), 1));
}

}  // namespace tegula::ops
