// Whose the blocks of a grid over the sequences of a cache are, where lengths are known on the device alone:
// of the longest first, and of several blocks where one would read far more keys than others do.
#pragma once
#include <functional>
#include <optional>

#include "tegula/lang.hpp"

namespace tegula::ops {

class SequenceList {
 public:
  static constexpr int most_sequences = 512;

  struct Sequences {
    lang::Tensor lengths;
    std::function<lang::Expr(const lang::Expr&)> steps;  // of keys, for a length
  };
  // With `shares`, about so many blocks read all keys if sequences differ; otherwise each has one entry.
  SequenceList(Sequences sequences, const std::optional<lang::Expr>& shares);

  void record_grid() const;
  lang::Expr count() const { return entries_.extent(0); }
  // The last entries may be without parts: they are nobody's.
  struct Entry {
    lang::Expr sequence, length, part, parts;
  };
  Entry entry(const lang::Expr& x) const;

  // Sequences of several parts: the number of the entry of the first one, or −1.
  lang::Expr most_merged() const { return merged_->extent(0); }
  lang::Expr first_entry(const lang::Expr& n) const { return (*merged_)(n); }

 private:
  struct Tables;
  struct Counts;
  void fill(Tables& tables) const;
  void count_entries(const Tables& tables, const lang::Expr& own, Counts& counts) const;
  void write_entries(const Tables& tables, const lang::Expr& own, const Counts& counts) const;
  void write_rest(const lang::Expr& i, const Counts& counts) const;
  void write_entry(const lang::Expr& place, const Entry& entry) const;

  Sequences sequences_;
  std::optional<lang::Expr> shares_;
  lang::Tensor entries_;
  std::optional<lang::Tensor> merged_;
};

}  // namespace tegula::ops
