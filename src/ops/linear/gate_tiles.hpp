// Tiles of what heads have for each token of a chunk, and sums of these over the tokens of a chunk.
#pragma once
#include "ops/linear/sequences.hpp"

namespace tegula::ops {

// Some heads of a chunk.
struct GateTiles {
  static constexpr int heads_of_tile = 32;

  const Sequences& s;
  int rows;
  lang::Expr n, chunk, row, first;  // the sequence, its chunk, the chunk's first token and the first head

  // A tile of [heads, rows] that threads fill along heads, without two of them in one bank.
  lang::Shared turned() const {
    return lang::Shared({heads_of_tile, rows + 1}, f32).slice(lang::all, lang::range(0, rows));
  }
  // Of [batch, tokens, heads], and of [batch, chunks, heads, rows].
  lang::Window of_tokens(const lang::Tensor& t) const { return s.rows(t, n).at(row, first); }
  lang::Window of_chunks(const lang::Tensor& t) const {
    return s.heads_of_chunk(t, n, chunk, rows).at(first);
  }
};

// A block for each of so many chunks; those of packed sequences also for chunks without tokens.
template <class F>
void each_gate_tile(const Sequences& s, const lang::Dim& heads, const lang::Expr& chunks, int rows,
                    const F& body) {
  lang::grid(lang::ceildiv(heads, GateTiles::heads_of_tile), chunks, s.parts(),
             [&](lang::Index x, lang::Index y, lang::Index z) {
               const auto [n, chunk] = s.place(y, z, rows);
               s.hold_promise(n);
               body(GateTiles{s, rows, n, chunk, chunk * rows, x * GateTiles::heads_of_tile});
             });
}

}  // namespace tegula::ops
