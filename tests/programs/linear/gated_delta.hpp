// What the programs of the gated delta net share: their tiles, views of sequences, and the sequences of their
// calls.
#pragma once
#include <algorithm>

#include "tests/programs/program.hpp"

namespace programs {

struct DeltaTile {
  int dk = 128, dv = 128, chunk = 64;
  int block_v = 64;  // columns of values that a block has
  bool packed =
      false;  // tokens [T, …] between fences begin [N + 1], chunks between those of first_chunk [N + 1]
  int threads = 0, stages = 2;
  DType type = bf16;
};

// The parameters that say where sequences are: a batch [B, S, H, …] with chunks [B, C, H, …], or packed ones
// [T, H, …] with chunks [C, H, …].
class Sequences {
 public:
  Dim H{"H"};

  explicit Sequences(const DeltaTile& t) : t_(t) {
    if (t.packed)
      T_.emplace("T");
    else
      B_.emplace("B"), S_.emplace("S");
  }
  Tensor in(const char* name, std::initializer_list<Operand> others, DType type) const {
    return input(name, with(tokens(), others), type);
  }
  Tensor out(const char* name, std::initializer_list<Operand> others, DType type) const {
    return output(name, with(tokens(), others), type);
  }
  // Every chunk has a state [dk, dv].
  Extents states(const Dim& C) const {
    return with(t_.packed ? Extents{C} : Extents{*B_, C}, {H, t_.dk, t_.dv});
  }
  // After all other parameters.
  void declare_fences() {
    if (!t_.packed) return;
    Dim N("fences");
    begin_.emplace(input("begin", {N}, i32));
    first_chunk_.emplace(input("first_chunk", {N}, i32));
    longest_.emplace(scalar("longest", i32));
  }
  Expr count() const { return t_.packed ? begin_->extent(0) - 1 : Expr(*B_); }
  Expr most_chunks() const { return ceildiv(t_.packed ? *longest_ : Expr(*S_), t_.chunk); }
  // Rows of a head of sequence n, with all heads in `rows`, and its chunks.
  Tensor of(const Tensor& x, const Expr& n, const Expr& h) const {
    return t_.packed ? x.slice(range((*begin_)(n), (*begin_)(n + 1)), h) : x.slice(n, all, h);
  }
  Tensor rows(const Tensor& x, const Expr& n) const {
    return t_.packed ? x.slice(range((*begin_)(n), (*begin_)(n + 1))) : x.slice(n);
  }
  Tensor chunks_of(const Tensor& x, const Expr& n, const Expr& h) const {
    return t_.packed ? x.slice(range((*first_chunk_)(n), (*first_chunk_)(n + 1)), h) : x.slice(n, all, h);
  }

 private:
  static Extents with(Extents extents, std::initializer_list<Operand> others) {
    for (const Operand& extent : others) extents.push_back(extent);
    return extents;
  }
  Extents tokens() const { return with(t_.packed ? Extents{*T_} : Extents{*B_, *S_}, {H}); }

  DeltaTile t_;
  std::optional<Dim> B_, S_, T_;
  std::optional<Tensor> begin_, first_chunk_;
  std::optional<Expr> longest_;
};

// Lower triangular decay e^(g_i − g_j) of a score; gates are sums inside the chunk and fall.
inline Expr decayed(const Expr& score, const Expr& gi, const Expr& gj, const Expr& is_seen) {
  return select(is_seen && gi <= gj, score * exp(min(gi - gj, 0)), 0);
}

// The sequences of a call, whose formula sees tokens as [T, H, …] and chunks as [C, H, …].
class CallSequences {
 public:
  static constexpr int heads = 2;

  explicit CallSequences(const DeltaTile& t) : packed_(t.packed), chunk_(t.chunk) {
    for (const int length : t.packed ? std::vector<int>{70, 0, 30} : std::vector<int>{100, 100}) {
      begin_.push_back(begin_.back() + length);
      first_chunk_.push_back(first_chunk_.back() + (length + chunk_ - 1) / chunk_);
      longest_ = std::max(longest_, length);
    }
  }
  int count() const { return static_cast<int>(begin_.size()) - 1; }
  Shape tokens(Shape others = {}) const { return before(begin_.back(), std::move(others)); }
  Shape chunks(Shape others = {}) const { return before(first_chunk_.back(), std::move(others)); }

  // As the program takes them: sequences that are not packed have a dimension of their own.
  Data given(const Data& x) const { return packed_ ? x : x.reshape(divided(x.shape())); }
  Wanted wanted(Numbers exact, DType type, double tolerance = 2e-2) const {
    if (!packed_) exact.shape = divided(exact.shape);
    return {std::move(exact), type, tolerance};
  }
  void add_fences(std::vector<Value>& values) const {
    if (!packed_) return;
    values.emplace_back(Data::from(begin_));
    values.emplace_back(Data::from(first_chunk_));
    values.emplace_back(longest_);
  }
  // f(sequence, number of the chunk among all, its first row, its rows, head); from the first chunk to the
  // last, or back.
  template <class F>
  void each_chunk(F f) const {
    each(count(), [&](int n) {
      for (int c = first_chunk_[n]; c < first_chunk_[n + 1]; ++c) each_head(n, c, f);
    });
  }
  template <class F>
  void each_chunk_back(F f) const {
    each(count(), [&](int n) {
      for (int c = first_chunk_[n + 1] - 1; c >= first_chunk_[n]; --c) each_head(n, c, f);
    });
  }
  // Sums of small negative numbers inside chunks.
  Numbers gates(int seed) const {
    Numbers g(uniform(tokens(), f32, seed, -0.2, 0));
    each_chunk([&](int, int, int row, int rows, int h) {
      for (int i = 1; i < rows; ++i) g(row + i, h) += g(row + i - 1, h);
    });
    return g;
  }

 private:
  static Shape before(int first, Shape others) {
    others.insert(others.begin(), {first, heads});
    return others;
  }
  template <class F>
  void each_head(int n, int chunk, F f) const {
    const int row = begin_[n] + (chunk - first_chunk_[n]) * chunk_;
    each(heads, [&](int h) { f(n, chunk, row, std::min(chunk_, begin_[n + 1] - row), h); });
  }
  Shape divided(Shape shape) const {
    shape[0] /= count();
    shape.insert(shape.begin(), count());
    return shape;
  }

  bool packed_;
  int chunk_, longest_ = 0;
  std::vector<int> begin_{0}, first_chunk_{0};
};

}  // namespace programs
