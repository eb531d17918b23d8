#include "ops/decode/sequence_list.hpp"

#include "ops/pieces/splits.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int threads = 128, compared_at_once = 8;

Expr entries_of(const Expr& sequences, const std::optional<Expr>& shares) {
  return shares ? sequences + *shares : sequences;
}

}  // namespace

// What every block of the grid finds for itself, of all sequences: the steps of a part, and how many parts.
struct SequenceList::Tables {
  Shared steps{{most_sequences}, i32}, parts{{most_sequences}, i32};
};
// Entries, and sequences of several parts: those that come before a sequence, and all.
struct SequenceList::Counts {
  Var before = 0, all = 0, merged_before = 0, merged = 0;
};

// A sequence has several parts from half more steps than a part's on, so that no more than two thirds of the
// shares can have any.
SequenceList::SequenceList(Sequences sequences, const std::optional<Expr>& shares)
    : sequences_(std::move(sequences)),
      shares_(shares),
      entries_(workspace("entries", {entries_of(sequences_.lengths.extent(0), shares), 4}, i32)) {
  if (shares_)
    merged_.emplace(workspace("merged", {min(sequences_.lengths.extent(0), *shares_ * 2 / 3 + 1)}, i32));
}

void SequenceList::record_grid() const {
  grid(ceildiv(sequences_.lengths.extent(0), threads), {.threads = threads}, [&](Index x) {
    Tables tables;
    fill(tables);
    parallel(threads, [&](Index i) {
      Expr own = x * threads + i;
      Counts counts;
      count_entries(tables, own, counts);
      when(own < sequences_.lengths.extent(0), [&] { write_entries(tables, own, counts); });
      if (shares_) when(x == 0, [&] { write_rest(i, counts); });
    });
  });
}

void SequenceList::fill(Tables& tables) const {
  Expr sequences = sequences_.lengths.extent(0);
  Fragment steps = load(sequences_.lengths.at(0), {most_sequences});
  parallel(steps, [&](Index b) { steps(b) = sequences_.steps(steps(b)); });
  std::optional<Var> each, whole;
  if (shares_) {
    const Var total = reduce_sum(steps).scalar(), longest = reduce_max(steps).scalar();
    each.emplace(max(max(ceildiv(total, *shares_), ceildiv(longest * 2, 2 * most_splits - 1)), 1));
    // Where whole sequences are enough blocks, those that are not far longer than others stay whole.
    whole.emplace(
        max(select(*shares_ <= sequences, ceildiv(total * 2, max(sequences, 1)), 0), *each + *each / 2));
  }
  parallel(steps, [&](Index b) {
    Expr own = steps(b), parts = each ? select(own > *whole, (own + *each / 2) / *each, 1) : Expr(Operand(1));
    tables.parts(b) = select(b < sequences, parts, 0);
    tables.steps(b) = ceildiv(own, parts);
  });
}

// Lengths behind the last sequence are 0, and its entries none.
void SequenceList::count_entries(const Tables& tables, const Expr& own, Counts& counts) const {
  Expr steps = tables.steps(own);
  serial(ceildiv(sequences_.lengths.extent(0), compared_at_once), [&](Index n) {
    unrolled(compared_at_once, [&](Index i) {
      Expr other = n * compared_at_once + i, parts = tables.parts(other),
           is_before = tables.steps(other) > steps || (tables.steps(other) == steps && other < own);
      counts.before += select(is_before, parts, 0);
      if (!shares_) return;
      counts.all += parts;
      counts.merged_before += select(parts > 1 && other < own, 1, 0);
      counts.merged += select(parts > 1, 1, 0);
    });
  });
}

void SequenceList::write_entries(const Tables& tables, const Expr& own, const Counts& counts) const {
  Expr length = sequences_.lengths(own), parts = tables.parts(own);
  if (!shares_) return write_entry(counts.before, {own, length, Operand(0), Operand(1)});
  serial(parts, [&](Index part) { write_entry(counts.before + part, {own, length, part, parts}); });
  when(parts > 1, [&] { (*merged_)(counts.merged_before) = counts.before; });
}

// Entries and merges that are nobody's.
void SequenceList::write_rest(const Expr& i, const Counts& counts) const {
  Expr none = Operand(0);
  serial(ceildiv(max(count() - counts.all - i, 0), threads), [&](Index n) {
    write_entry(counts.all + i + n * threads, {none, none, none, none});
  });
  serial(ceildiv(max(most_merged() - counts.merged - i, 0), threads),
         [&](Index n) { (*merged_)(counts.merged + i + n * threads) = -1; });
}

void SequenceList::write_entry(const Expr& place, const Entry& entry) const {
  entries_(place, 0) = entry.sequence;
  entries_(place, 1) = entry.length;
  entries_(place, 2) = entry.part;
  entries_(place, 3) = entry.parts;
}

// What the grid has written is in these ranges; the compiler leaves questions out where it knows them.
SequenceList::Entry SequenceList::entry(const Expr& x) const {
  Expr last = sequences_.lengths.extent(0) - 1;
  return {clamp(entries_(x, 0), 0, last), entries_(x, 1), max(entries_(x, 2), 0), max(entries_(x, 3), 0)};
}

}  // namespace tegula::ops
