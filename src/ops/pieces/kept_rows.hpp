// Rows that are read twice, of which a block keeps pieces from one reading to the next.
#pragma once
#include <functional>
#include <initializer_list>

#include "ops/pieces/rows.hpp"

namespace tegula::ops {

// Whether rows end within 16 bytes of 16-bit elements. On their way to shared memory, pieces of such rows are
// awaited.
bool ends_within_piece(std::int64_t features);
// Long rows whose pieces come to registers at once, on a GPU.
LongRows direct_rows(std::int64_t row_bytes);

// On a GPU: all pieces in shared memory where blocks that share a processor have room for whole rows, else as
// many as one block of all its threads has room for. `tensors` are read together.
LongRows kept_rows(std::int64_t features, DType type, bool on_gpu, int tensors = 1);

// The same, but rows that no block has room for are shared by the CTAs of a cluster.
struct SpreadRows {
  LongRows rows = {};
  std::optional<int> cluster = {};  // CTAs with as many threads each
  auto fields() const { return std::tuple(rows, labelled("cluster", cluster)); }
  lang::GridOptions options() const { return {.threads = rows.threads, .cluster = cluster.value_or(1)}; }
};
SpreadRows spread_rows(std::int64_t features, DType type, bool on_gpu, int tensors = 1);
// Of such rows, the pieces that registers keep besides: those that shared memory has no room for, or as many
// as are left of a thread's registers.
std::optional<int> held_pieces(std::int64_t features, DType type, const LongRows& rows, int tensors = 1);

// Long rows whose ends cut pieces of 16 bytes would be awaited on their way to shared memory. A cluster of so
// many CTAs holds each in registers instead: the threads of each, if they have room for the row's elements.
inline constexpr int ctas_of_held_row = 8;
// Each thread has one of these numbers of pieces, as measured.
std::optional<int> threads_of_cut_row(std::int64_t features, bool has_clusters,
                                      std::initializer_list<int> pieces_of_thread = {3, 2, 4});
inline lang::GridOptions options_of_held_rows(std::optional<int> threads_of_cta,
                                              std::optional<int> threads = {}) {
  if (!threads_of_cta) return {.threads = threads.value_or(0)};
  return {.threads = *threads_of_cta, .cluster = ctas_of_held_row};
}

// Rows of tensors, which are read together: first from the piece after those in registers, then back to it.
class KeptRows {
 public:
  struct Row {
    lang::Tensor of;
    double fill = 0;  // beyond its end, where it is read first
  };
  // body(first column of a piece, its elements in f32)
  using Body = std::function<void(const lang::Expr& first, std::vector<lang::Fragment>& values)>;

  KeptRows(const LongRows& c, int held, std::vector<Row> rows);
  void each(const Body& body) const;
  void each_again(const Body& body) const;
  // The column of the piece that is read first.
  int begin() const { return static_cast<int>(held_.size()) * c_.piece; }
  // Elements of a tensor that all rows share.
  lang::Fragment beside(const lang::Tensor& shared, const lang::Expr& first) const {
    return lang::load(shared.at(first), {c_.piece}, f32);
  }

 private:
  void read(const lang::Expr& first, bool fills, const Body& body) const;
  void each_held(const Body& body) const;
  lang::Expr count() const;

  LongRows c_;
  std::vector<Row> rows_;
  std::vector<std::vector<lang::Fragment>> held_;  // of each piece its rows
};

}  // namespace tegula::ops
