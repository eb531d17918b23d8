// The sequences of a recurrent operator's call: those of a batch, or packed ones, between fences.
#pragma once
#include <fmt/format.h>

#include <string>

#include "ops/schema/schema.hpp"

namespace tegula::ops {

inline constexpr int chunk_tokens_of_scan = 64;

// ---- of tables. A tensor over tokens, and one that each sequence has.
inline std::string token_list(const char* others) {
  return fmt::format("cu_seqlens ? tokens {0} : batch tokens {0}", others);
}
inline std::string sequence_list(const char* others) {
  return fmt::format("cu_seqlens ? sequences {0} : batch {0}", others);
}
// The operations of a scan and of its gradient: by states, or for sequences shorter than that takes by the
// scores of pairs, which have no states.
std::string work_of_scan(const char* heads, const char* d, const char* d_v);
std::string gradient_work_of_scan(const char* heads, const char* d, const char* d_v);
template <class Op>
void add_fences(Schema<Op>& table) {
  const OptionRule tokens{0, {}, false, "a number of tokens, or 0 if unknown", "leave it out"};
  table
      .in(&Op::cu_seqlens, "cu_seqlens", "sequences+1", index,
          "boundaries of packed sequences: sequence i has the tokens from entry i up to entry i + 1")
      .packs("tokens", "max_seqlen", "longest")
      .option(&Op::max_seqlen, "max_seqlen",
              "upper bound on the length of a packed sequence, which the caller promises", tokens)
      .require("max_seqlen", "cu_seqlens ? 1 : max_seqlen <= 0", "cu_seqlens as well",
               "leave it out: without it all sequences are equally long");
}

// ---- of calls
// A tensor over tokens as programs see it, [batch, tokens, …]: packed sequences are one batch.
TensorRef with_batch(const TensorRef& tensor, bool packed);
// The view of a tensor of the call; empty if the call does not have it.
TensorRef token_view(const BoundCall& call, const char* tensor);
// How many sequences a call has, and how many tokens together.
std::int64_t sequences_of(const BoundCall& call);
// [batch, tokens, heads, …] as programs see it.
Shape shape_of_heads(const BoundCall& call, const Shape& others = {});
// Chunks of all sequences, for tensors that have something for each: of packed ones more than there are.
Shape chunk_shape(const BoundCall& call, const Shape& others, int rows = chunk_tokens_of_scan);
// What each token of a head has, by chunks, as scans read it. Chunks of packed sequences have one numbering.
Shape vector_shape(const BoundCall& call, std::optional<int> rows = {});

// For formulas: first row among all tokens, and how many rows.
struct Span {
  std::int64_t first, count;
};
std::vector<Span> spans_of(const BoundCall& call);

// ---- of programs
// A dim that exists only where something has it.
class LazyDim {
 public:
  explicit LazyDim(const char* name) : name_(name) {}
  operator lang::Operand() const {
    if (!dim_) dim_.emplace(name_);
    return *dim_;
  }

 private:
  const char* name_;
  mutable std::optional<lang::Dim> dim_;
};

// The number, among the chunks of all packed sequences, of the first one of sequence n: each begins with a
// chunk of its own, and has one more where its last tokens fill a chunk, or there are none. `more` tokens are
// those that each sequence has in addition.
lang::Expr first_chunk(const lang::Tensor& fences, const lang::Expr& n, int rows, int more = 0);

class Sequences {
 public:
  lang::Dim batch{"batch"};
  LazyDim tokens{"tokens"};

  explicit Sequences(bool packed) : packed_(packed) {}
  // Call this after the other parameters, which declare the dims `batch` and `tokens`.
  void declare();
  // The same for programs that have grids over chunks.
  void declare_chunks();

  lang::Extents shape(const lang::Extents& others) const;
  lang::Expr count() const;
  lang::Expr length(const lang::Expr& n) const;
  // Extents of grids over chunks: of equally long sequences, x numbers those of a sequence and y sequences;
  // of packed ones, x numbers the chunks of all. Sequences may have `more` tokens in addition.
  lang::Expr chunks(int rows = chunk_tokens_of_scan, int more = 0) const;
  lang::Expr parts() const { return packed_ ? lang::Expr(1) : lang::Expr(batch); }
  // The sequence of such a block, and its chunk in it.
  struct Place {
    lang::Expr n, chunk;
  };
  Place place(const lang::Expr& x, const lang::Expr& y, int rows = chunk_tokens_of_scan, int more = 0) const;
  // Ends a block of a chunk without tokens.
  void leave_unless(const lang::Expr& n, const lang::Expr& row) const;
  // A sequence has no more tokens than the caller promises.
  void hold_promise(const lang::Expr& n) const;
  // The number of a chunk among those of all packed sequences, or of its own.
  lang::Expr chunk_number(const lang::Expr& n, const lang::Expr& chunk,
                          int rows = chunk_tokens_of_scan) const;
  // The extents of what tokens have by chunks, [batch, chunks, heads, rows].
  lang::Extents vectors(const lang::Operand& chunks, const lang::Operand& heads, int rows) const;
  // [batch, tokens, …] becomes [tokens, …], or [tokens, …] of a head.
  lang::Tensor rows(const lang::Tensor& t, const lang::Expr& n) const;
  lang::Tensor head(const lang::Tensor& t, const lang::Expr& n, const lang::Expr& h) const;
  // [batch, chunks, heads, …] becomes [heads, …] of a chunk, or […] of a head.
  lang::Tensor heads_of_chunk(const lang::Tensor& t, const lang::Expr& n, const lang::Expr& chunk,
                              int rows = chunk_tokens_of_scan) const;
  lang::Tensor chunk(const lang::Tensor& t, const lang::Expr& n, const lang::Expr& chunk, const lang::Expr& h,
                     int rows = chunk_tokens_of_scan) const;

 private:
  lang::Range span(const lang::Expr& n) const;

  bool packed_;
  std::optional<lang::Tensor> fences_, owners_;
  std::optional<lang::Expr> longest_;
};

}  // namespace tegula::ops
