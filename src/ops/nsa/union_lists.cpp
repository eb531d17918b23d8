#include "ops/nsa/union_lists.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

// Of the blocks that are marked at a time, each thread looks after a run. Its length is odd in memory, so
// that the runs of a warp lie in different banks.
constexpr int run_length = 32, runs = 32, chunk = runs * run_length;
constexpr int word_bits = 32;

}  // namespace

UnionLists::UnionLists(const NsaKernel& c, const Expr& heads, const Expr& tiles)
    : c(c),
      width_(c.entries + (c.diagonal ? 1 : 0)),
      words_(ceildiv(c.queries, word_bits)),
      blocks_(workspace("union_blocks", {heads, tiles, c.queries * width_}, i32)),
      chosen_(workspace("union_chosen", {heads, tiles, c.queries * width_, words_}, u32)),
      counts_(workspace("union_counts", {heads, tiles}, i32)) {}

UnionLists::List UnionLists::list(const Expr& head, const Expr& tile) const {
  return {blocks_.slice(head, tile), chosen_.slice(head, tile), counts_(head, tile)};
}

// Appends what is marked. `marks` is [runs, run_length + 1, words].
void UnionLists::list_marked(Shared& marks, const Expr& begin, const List& to, Var& count) const {
  Shared found({runs}, i32), place({runs + 1}, i32);
  auto is_marked = [&](const Expr& run, const Expr& i) {
    Var bits = Expr(marks(run, i, 0));
    for (int w = 1; w < words_; ++w) bits |= marks(run, i, w);
    return Expr(bits) != 0u;
  };
  parallel(runs, [&](Index run) {
    Var number = 0;
    serial(run_length, [&](Index i) { number += select(is_marked(run, i), 1, 0); });
    found(run) = number;
  });
  parallel(runs + 1, [&](Index run) {
    Var sum = 0;
    serial(runs, [&](Index other) { sum += select(other < run, found(other), 0); });
    place(run) = sum;
  });
  Expr first = count;
  parallel(runs, [&](Index run) {
    Var at = first + place(run);
    serial(run_length, [&](Index i) {
      when(is_marked(run, i), [&] {
        to.blocks(at) = begin + run * run_length + i;
        for (int w = 0; w < words_; ++w) to.chosen(at, w) = marks(run, i, w);
        at += 1;
      });
    });
  });
  count += place(runs);
}

void UnionLists::find(const Expr& head, const Expr& tile, const TokenTile& tokens,
                      const Selection& selection) const {
  const int entries = c.queries * width_;
  Shared named({entries}, i32), turn({c.repeats ? entries : 1}, i32);
  parallel(entries, [&](Index n) { named(n) = selection.block(tokens, n / width_, n % width_); });
  // Of the entries of a token that name one block, which one it is.
  if (c.repeats)
    parallel(entries, [&](Index n) {
      Expr own = named(n);
      Var earlier = 0;
      serial(range(n / width_ * width_, n), [&](Index m) { earlier += select(named(m) == own, 1, 0); });
      turn(n) = earlier;
    });
  Expr last = min(tokens.count - tokens.first, c.queries) - 1;
  Expr blocks = ceildiv(tokens.limit(last), c.block);
  const List to{blocks_.slice(head, tile), chosen_.slice(head, tile), Expr(0)};
  Var count = 0;
  auto find_in = [&](const Expr& begin, const std::optional<Expr>& of_turn) {
    Shared marks({runs, run_length + 1, words_}, u32);
    clear(marks);
    parallel(entries, [&](Index n) {
      Expr block = named(n), token = n / width_;
      Expr here = block >= begin && block < begin + chunk && block != no_row;
      when(of_turn ? here && turn(n) == *of_turn : here, [&] {
        Expr own = block - begin;
        atomic_or(marks(own / run_length, own % run_length, token / word_bits),
                  u32(1) << u32(token % word_bits));
      });
    });
    list_marked(marks, begin, to, count);
  };
  serial(ceildiv(blocks, chunk), [&](Index n) {
    if (c.repeats)
      serial(width_, [&](Index of_turn) { find_in(n * chunk, Expr(of_turn)); });
    else
      find_in(n * chunk, std::nullopt);
  });
  counts_(head, tile) = count;
}

}  // namespace tegula::ops
