// What the programs of scans share: views of a head, and tiles of a chunk.
#pragma once
#include "ops/linear/scan.hpp"

namespace tegula::ops {

// The parameters that all have.
struct ScanInputs {
  const ScanKernel& c;
  Sequences s{c.packed};
  lang::Dim key_heads{"key_heads"}, heads{"heads"};
  LazyDim sequences{"sequences"}, segments{"segments"}, chunks{"chunks"};

  explicit ScanInputs(const ScanKernel& kernel) : c(kernel) {}

  lang::Tensor keys(const char* name) const { return lang::input(name, s.shape({key_heads, c.d}), c.type); }
  lang::Tensor values(const char* name) const {
    return lang::input(name, s.shape({heads, c.d_v - (c.ones ? 1 : 0)}), c.type);
  }
  lang::Extents columns() const { return s.shape({heads, c.d_v}); }
  lang::Extents of_heads() const { return s.shape({heads}); }
  // What tokens of a head have, by chunks: those of a chunk lie beside each other, so that they come ahead.
  lang::Tensor vectors(const char* name) const {
    return lang::input(name, s.vectors(chunks, heads, c.rows()), f32);
  }
  lang::Window vector(const lang::Tensor& t, const lang::Expr& n, const lang::Expr& chunk,
                      const lang::Expr& h) const {
    return s.chunk(t, n, chunk, h).at(0);
  }
  // Sums of gates, or the gates of heads.
  lang::Tensor gates() const { return c.even ? lang::input("g_gamma", {heads}, f32) : vectors("sums"); }
  lang::Tensor decays() const { return lang::input("decays", {s.batch, chunks, heads, c.d}, f32); }
  lang::Extents states() const { return {s.batch, chunks, heads, c.d, c.d_v}; }
  lang::Extents ends() const {
    if (c.divided) return {sequences, segments, heads, c.d, c.d_v};
    return {sequences, heads, c.d, c.d_v};
  }
  lang::Extents maps() const { return {sequences, segments, heads, c.d, c.d}; }
  lang::Extents fades() const {
    if (c.divided) return {sequences, segments, heads};
    return {sequences, heads};
  }
  // The chunks that a block has of a sequence: all, or those of a segment. Segments have as many chunks each,
  // but the last ones of a sequence, which may have none.
  struct Part {
    lang::Expr n, segment, first, chunks;
  };
  lang::Expr parts() const { return c.divided ? s.count() * lang::Expr(segments) : s.count(); }
  Part part(const lang::Expr& z) const {
    if (!c.divided) return {z, 0, 0, ceildiv(s.length(z), c.rows())};
    // Divided once, not for every chunk.
    lang::Expr count(segments);
    lang::Var n = z / count, segment = z % count;
    lang::Expr all = ceildiv(s.length(n), c.rows()), each = ceildiv(all, count);
    lang::Var first = segment * each, chunks_of_part = max(min(each, all - first), 0);
    return {n, segment, first, chunks_of_part};
  }
  // The state of a head, before the part or behind it.
  lang::Tensor state(const lang::Tensor& t, const Part& part, const lang::Expr& h) const {
    return c.divided ? t.slice(part.n, part.segment, h) : t.slice(part.n, h);
  }
  lang::Expr blocks() const { return lang::ceildiv(c.columns(), c.block); }
  lang::Expr key_head(const lang::Expr& h) const { return h / (lang::Expr(heads) / key_heads); }
  lang::Expr last_row(const lang::Expr& n, const lang::Expr& row) const {
    return min(c.rows(), s.length(n) - row) - 1;
  }
};

// The sums of gates of a chunk, as logarithms to base 2: a power of e takes some ten instructions for each
// score, with which a chunk takes 1 to 2 µs more. Nothing where there are no gates.
class GateTile {
 public:
  explicit GateTile(const ScanKernel& c)
      : tile_(rows_if(c.gated, c.rows())), weights_(rows_if(c.weighted, c.rows())), reverse_(c.reverse) {}
  void load(const lang::Window& from) {
    if (tile_) copy(from, *tile_);
  }
  // Sums of gates that all tokens have: those of every chunk. So threads keep the decays between its tokens,
  // if they have the registers. From the last token to the first, sums are those from a token on, so that the
  // first row has the whole of a chunk.
  void fill(const lang::Expr& gate, bool keep);
  // Loads the weights of the chunk's values, by which faded() multiplies.
  void load_weights(const lang::Window& from) { copy(from, *weights_); }
  // Rows [rows, …] times e^g, times e^(g_last − g), or all of it times e^g_last.
  void grow(lang::Fragment& x) const;
  void fade(lang::Fragment& x, const lang::Expr& last) const;
  // What values fade to, in `own` where they do: the copy engine brings only tiles that nothing else writes.
  const lang::Shared& faded(const lang::Shared& values, const lang::Expr& last,
                            std::optional<lang::Shared>& own) const;
  void age(lang::Fragment& state, const lang::Expr& last) const;
  // Scores of queries as rows and keys as columns, which are those of the same token or of earlier ones, of
  // later ones from the last token to the first; or of keys as rows.
  void mask(lang::Fragment& scores, const lang::Expr& factor) const;
  void mask_of_keys(lang::Fragment& scores, const lang::Expr& factor) const;
  lang::Expr at(const lang::Expr& row) const { return (*tile_)(row); }
  explicit operator bool() const { return tile_.has_value(); }

 private:
  static std::optional<lang::Shared> rows_if(bool wanted, int rows) {
    if (!wanted) return std::nullopt;
    return lang::Shared({rows}, f32);
  }
  std::optional<lang::Shared> tile_, weights_;
  std::optional<lang::Fragment> decays_;
  bool reverse_;
};

// Rows of a state times the decays of features over a chunk.
void fade_features(lang::Fragment& state, const lang::Shared& decays);

// Values whose last column is 1.
void add_ones(const ScanKernel& c, lang::Shared& values, const lang::Expr& column);

}  // namespace tegula::ops
