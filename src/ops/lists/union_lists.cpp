#include "ops/lists/union_lists.hpp"

#include "ops/lists/runs.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int chunk = blocks_of_runs;  // that are marked at a time

// The bits of a warp group's tokens in a word of marks.
std::uint32_t bits_of(const SelectedBlocks& c, int group, int word) {
  const int of_group = c.queries / c.row_groups;
  std::uint32_t bits = 0;
  for (int token = group * of_group; token < (group + 1) * of_group; ++token) {
    if (token / UnionLists::word_bits == word) bits |= 1u << token % UnionLists::word_bits;
  }
  return bits;
}

}  // namespace

UnionLists::UnionLists(const SelectedBlocks& c, const Expr& heads, const Expr& tiles, const Expr& tokens,
                       const std::optional<Expr>& segments)
    : c(c),
      width_(c.width()),
      words_(ceildiv(c.queries, word_bits)),
      blocks_(workspace("union_blocks", {heads, tiles, c.queries * width_}, i32)),
      chosen_(workspace("union_chosen", {heads, tiles, c.queries * width_, words_}, u32)),
      counts_(workspace("union_counts", {heads, tiles}, i32)),
      whole_(workspace("union_whole", {heads, tiles}, i32)) {
  if (!c.divides()) return;
  left_out_.emplace(workspace("rest", {heads, tokens, width_}, i32));
  most_of_segment_.emplace(output("most_of_part", {*segments}, i32));
  most_left_out_.emplace(output("most_rest", {heads, tiles * c.row_groups}, i32));
}

void UnionLists::clear_segments() const {
  const Tensor& most = *most_of_segment_;
  grid(ceildiv(most.extent(0), chunk), [&](Index x) {
    parallel(chunk, [&](Index i) { when(x * chunk + i < most.extent(0), [&] { most(x * chunk + i) = 0; }); });
  });
}

UnionLists::List UnionLists::list(const Expr& head, const Expr& tile) const {
  return {blocks_.slice(head, tile), chosen_.slice(head, tile), counts_(head, tile), whole_(head, tile)};
}

// How many tokens of a warp group selected a block.
Expr UnionLists::tokens_of(Shared& marks, const Expr& run, const Expr& i, int group) const {
  Var number = 0;
  for (int w = 0; w < words_; ++w) {
    if (const std::uint32_t own = bits_of(c, group, w))
      number += i32(popcount(Expr(marks(run, i, w)) & u32(own)));
  }
  return number;
}

// Appends what is marked. `marks` is [runs, run_length + 1, words]; `cut` counts blocks from to.whole on.
void UnionLists::list_marked(Shared& marks, const Expr& begin, const List& to, Var& count,
                             Shared& cut) const {
  Shared place({runs + 1}, i32);
  auto is_marked = [&](const Expr& run, const Expr& i) {
    Var bits = Expr(marks(run, i, 0));
    for (int w = 1; w < words_; ++w) bits |= marks(run, i, w);
    return Expr(bits) != 0u;
  };
  add_up_runs([&](const Expr& run, const Expr& i) -> Expr { return select(is_marked(run, i), 1, 0); }, place);
  Expr first = count;
  parallel(runs, [&](Index run) {
    Var at = first + place(run);
    serial(run_length, [&](Index i) {
      when(is_marked(run, i), [&] {
        Expr block = begin + run * run_length + i;
        to.blocks(at) = block;
        when(block >= to.whole, [&] { atomic_add(cut(0), 1); });
        for (int w = 0; w < words_; ++w) to.chosen(at, w) = marks(run, i, w);
        at += 1;
      });
    });
  });
  count += place(runs);
}

// For each warp group, the number of blocks that it is spared, times c.fewest: the savings of leaving out a
// block, minus the cost of its pairs.
void UnionLists::find_gains(Shared& marks, Shared& gains) const {
  clear(gains);
  parallel(runs, run_length, [&](Index run, Index i) {
    for (int group = 0; group < c.row_groups; ++group) {
      Expr number = tokens_of(marks, run, i, group);
      when(number > 0 && number < c.fewest, [&] { atomic_add(gains(group), c.fewest - number); });
    }
  });
}

// Takes the tokens of a warp group out of the marks of blocks, from `begin` on, that few of them selected,
// and puts their entries into `left_out`.
void UnionLists::leave_out(Shared& marks, const Expr& begin, int group, Shared& named,
                           Shared& left_out) const {
  const int entries = c.queries / c.row_groups * width_;
  parallel(entries, [&](Index of_group) {
    Expr n = group * entries + of_group, block = named(n), own = block - begin;
    when(block != no_row && own >= 0 && own < chunk, [&] {
      Var earlier = 0;
      serial(range(n / width_ * width_, n), [&](Index m) { earlier += select(named(m) == block, 1, 0); });
      Expr few = tokens_of(marks, own / run_length, own % run_length, group) < c.fewest;
      when(few && earlier == 0, [&] { left_out(n) = block; });
    });
  });
  parallel(runs, run_length, [&](Index run, Index i) {
    when(tokens_of(marks, run, i, group) < c.fewest, [&] {
      for (int w = 0; w < words_; ++w) {
        if (const std::uint32_t own = bits_of(c, group, w))
          marks(run, i, w) = Expr(marks(run, i, w)) & u32(~own);
      }
    });
  });
}

void UnionLists::leave_out_few(Shared& marks, const Expr& begin, Shared& named, Shared& left_out) const {
  Shared gains({c.row_groups}, i32);
  find_gains(marks, gains);
  for (int group = 0; group < c.row_groups; ++group)
    when(gains(group) >= c.fewest * c.least_gain, [&] { leave_out(marks, begin, group, named, left_out); });
}

// `left_out` has the entries of so many tokens of the tile, from `row` on. The most of one.
Expr UnionLists::write_left_out(const Expr& head, const Expr& tile, const Expr& row, const Expr& tokens,
                                Shared& left_out) const {
  Shared numbers({c.queries}, i32);
  auto number_of = [&](const Expr& begin, const Expr& end) -> Expr {
    Var number = 0;
    serial(range(begin, end), [&](Index m) { number += select(left_out(m) != no_row, 1, 0); });
    return number;
  };
  parallel(c.queries,
           [&](Index token) { numbers(token) = number_of(token * width_, token * width_ + width_); });
  parallel(c.queries * width_, [&](Index n) {
    Expr token = n / width_, block = left_out(n);
    when(token < tokens, [&] {
      when(block != no_row, [&] { (*left_out_)(head, row + token, number_of(token * width_, n)) = block; });
      when(n % width_ >= numbers(token), [&] { (*left_out_)(head, row + token, n % width_) = -1; });
    });
  });
  const int groups = c.row_groups, of_group = c.queries / groups;
  Var most = 0;
  serial(groups, [&](Index group) {
    Var own = 0;
    serial(of_group, [&](Index token) { own = max(own, numbers(group * of_group + token)); });
    (*most_left_out_)(head, tile * groups + group) = own;
    most = max(most, own);
  });
  return most;
}

void UnionLists::find(const Expr& head, const Expr& tile, const Expr& first_row, const TokenTile& tokens,
                      const Selection& selection, const Expr& segment) const {
  const int entries = c.queries * width_;
  Shared named({entries}, i32), repeat({c.repeats ? entries : 1}, i32),
      left_out({c.divides() ? entries : 1}, i32);
  if (c.divides()) fill(left_out, no_row);
  parallel(entries, [&](Index n) { named(n) = selection.block(tokens, n / width_, n % width_); });
  // The number of an entry among those of its token that list the same block.
  if (c.repeats)
    parallel(entries, [&](Index n) {
      Expr own = named(n);
      Var earlier = 0;
      serial(range(n / width_ * width_, n), [&](Index m) { earlier += select(named(m) == own, 1, 0); });
      repeat(n) = earlier;
    });
  Expr last = min(tokens.count - tokens.first, c.queries) - 1;
  Expr blocks = ceildiv(tokens.limit(last), c.block);
  const List to{blocks_.slice(head, tile), chosen_.slice(head, tile), Expr(0),
                tokens.limit(Operand(0)) / c.block};
  Var count = 0;
  Shared cut({1}, i32);
  clear(cut);
  auto find_in = [&](const Expr& begin, const std::optional<Expr>& of_repeat) {
    Shared marks({runs, run_length + 1, words_}, u32);
    clear(marks);
    parallel(entries, [&](Index n) {
      Expr block = named(n), token = n / width_;
      Expr here = block >= begin && block < begin + chunk && block != no_row;
      when(of_repeat ? here && repeat(n) == *of_repeat : here, [&] {
        Expr own = block - begin;
        atomic_or(marks(own / run_length, own % run_length, token / word_bits),
                  u32(1) << u32(token % word_bits));
      });
    });
    if (c.divides()) leave_out_few(marks, begin, named, left_out);
    list_marked(marks, begin, to, count, cut);
  };
  serial(ceildiv(blocks, chunk), [&](Index n) {
    if (c.repeats)
      serial(width_, [&](Index of_repeat) { find_in(n * chunk, Expr(of_repeat)); });
    else
      find_in(n * chunk, std::nullopt);
  });
  counts_(head, tile) = count;
  whole_(head, tile) = count - cut(0);
  if (!c.divides()) return;
  Expr most = write_left_out(head, tile, first_row + tokens.first, last + 1, left_out);
  when(most > 0, [&] { atomic_max((*most_of_segment_)(segment), most); });
}

}  // namespace tegula::ops
