// Windows of tokens, whose means are compressed entries: in programs, and in the tables of the operators over
// them.
#pragma once
#include "ops/pieces/heads.hpp"
#include "ops/schema/schema.hpp"
#include "tegula/lang.hpp"
#include "tegula/ops/nsa_compress.hpp"

namespace tegula::ops {

// Windows of `length` tokens that begin at multiples of `stride`.
struct Windows {
  lang::Expr length, stride;

  // Whole ones of so many tokens.
  lang::Expr among(const lang::Expr& tokens) const {
    return lang::max(lang::floordiv(tokens - length, stride) + 1, 0);
  }
  // The first that ends after a token, and one past the last that begins before one.
  lang::Expr ending_behind(const lang::Expr& token) const {
    return lang::max(lang::floordiv(token - length, stride) + 1, 0);
  }
  lang::Expr beginning_before(const lang::Expr& token) const { return lang::ceildiv(token, stride); }
};

// Sequence b of a batch, or of packed sequences where there are fences, which are in one batch: the entries
// of one that begins at token t stand from t / stride on.
struct CompressedSequence {
  lang::Expr batch;
  lang::Range tokens, entries;

  lang::Expr length() const { return tokens.end - tokens.begin; }
  // Checks a packed sequence, whose length the caller promises.
  void check(const lang::Expr& longest) const {
    lang::assert_that(length() <= longest, "a sequence has more tokens than max_seqlen");
  }
  static CompressedSequence of_batch(const lang::Expr& b, const lang::Expr& tokens,
                                     const lang::Expr& entries) {
    return {b, lang::range(0, tokens), lang::range(0, entries)};
  }
  static CompressedSequence packed(const lang::Tensor& fences, const lang::Expr& b,
                                   const lang::Expr& stride) {
    lang::Expr begin = fences(b), end = fences(b + 1);
    return {lang::Expr(0), lang::range(begin, end), lang::range(begin / stride, end / stride)};
  }
};

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

// With a batch of one before its own dimensions, of which the first may be empty.
inline TensorRef as_one_batch(const TensorRef& tensor) {
  TensorRef result = tensor;
  result.shape.insert(result.shape.begin(), 1);
  result.strides.insert(result.strides.begin(), std::max<std::int64_t>(tensor.size(0), 1) * tensor.stride(0));
  return result;
}
// [batch, rows, heads, features]; packed sequences are one batch.
inline TensorRef batched(const TensorRef& tensor, Layout layout) {
  return tensor.rank() == 4 ? as_bshd(tensor, layout) : as_one_batch(tensor);
}
// [batch, heads, tokens] of one that lacks the batch where sequences are packed.
inline TensorRef batched_vector(const TensorRef& tensor) {
  return tensor.rank() == 3 ? tensor : as_one_batch(tensor);
}

}  // namespace tegula::ops
