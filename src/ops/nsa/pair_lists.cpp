#include "ops/nsa/pair_lists.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

constexpr int word_bits = 32;              // tokens that are sorted at a time
constexpr int run_length = 32, runs = 32;  // of blocks that are looked after at a time; see UnionLists
constexpr int columns = runs * run_length;

Expr number_of_bits(const Expr& word) {
  Expr pairs = word - ((word >> 1u) & 0x55555555u);
  Expr fours = (pairs & 0x33333333u) + ((pairs >> 2u) & 0x33333333u);
  Expr bytes = (fours + (fours >> 4u)) & 0x0f0f0f0fu;
  return i32((bytes * 0x01010101u) >> 24u);
}

}  // namespace

PairLists::PairLists(const NsaKernel& c, const Extents& extents, int longest)
    : c(c),
      width_(c.entries + (c.diagonal ? 1 : 0)),
      longest_(longest),
      begins_(workspace("pair_begins", {extents.heads, extents.chunks, extents.blocks + 1}, i32)),
      tokens_(workspace("pair_tokens", {extents.heads, extents.tokens * width_}, i32)),
      places_(workspace("pair_places", {extents.heads, extents.tokens, width_}, i32)),
      long_blocks_(workspace("long_blocks", {extents.heads, extents.chunks, long_slots()}, i32)),
      slots_(workspace("long_slots", {extents.heads, extents.chunks, extents.blocks + 1}, i32)) {}

PairLists::List PairLists::list(const Chunk& chunk, const Expr& block) const {
  Expr begin = begins_(chunk.head, chunk.number, block), end = begins_(chunk.head, chunk.number, block + 1);
  return {tokens_.slice(chunk.head), chunk.first_row * width_ + begin, end - begin};
}

// The blocks of word_bits tokens, each once for a token.
void PairLists::name_blocks(const TokenTile& tokens, const Selection& selection, const Expr& first,
                            Shared& named) const {
  Shared listed({word_bits * width_}, i32);
  parallel(listed, [&](Index n) { listed(n) = selection.block(tokens, first + n / width_, n % width_); });
  parallel(listed, [&](Index n) {
    Expr own = listed(n);
    Var block = own;
    serial(range(n / width_ * width_, n),
           [&](Index m) { block = select(listed(m) == own, no_row, Expr(block)); });
    named(n) = block;
  });
}

namespace {

// For each run, how much of `of_run` belongs to the runs before it; at `runs`, to all.
void add_up(const Shared& of_run, Shared& before) {
  parallel(runs + 1, [&](Index run) {
    Var sum = 0;
    serial(runs, [&](Index other) { sum += select(other < run, of_run(other), 0); });
    before(run) = sum;
  });
}

}  // namespace

// Numbers of pairs become the begins of lists. `counts` is [runs, run_length + 1].
void PairLists::find_begins(const Chunk& chunk, const Expr& begin, Shared& counts, Var& total) const {
  Shared found({runs}, i32), place({runs + 1}, i32);
  parallel(runs, [&](Index run) {
    Var sum = 0;
    serial(run_length, [&](Index i) { sum += counts(run, i); });
    found(run) = sum;
  });
  add_up(found, place);
  Expr before = total;
  parallel(runs, [&](Index run) {
    Var at = before + place(run);
    serial(run_length, [&](Index i) {
      Expr own = counts(run, i), block = begin + run * run_length + i;
      counts(run, i) = at;
      when(block <= chunk.blocks, [&] { begins_(chunk.head, chunk.number, block) = at; });
      at += own;
    });
  });
  total += place(runs);
}

void PairLists::find_long(const Chunk& chunk, const Expr& begin, const Shared& counts, Var& total) const {
  Shared found({runs}, i32), place({runs + 1}, i32);
  parallel(runs, [&](Index run) {
    Var sum = 0;
    serial(run_length, [&](Index i) { sum += select(counts(run, i) > longest_, 1, 0); });
    found(run) = sum;
  });
  add_up(found, place);
  Expr before = total;
  parallel(runs, [&](Index run) {
    Var slot = before + place(run);
    serial(run_length, [&](Index i) {
      when(counts(run, i) > longest_, [&] {
        Expr block = begin + run * run_length + i;
        long_blocks_(chunk.head, chunk.number, slot) = block;
        slots_(chunk.head, chunk.number, block) = slot;
        slot += 1;
      });
    });
  });
  total += place(runs);
}

// The pairs of word_bits tokens. `cursors` says where those of each block come to stand.
void PairLists::write(const Chunk& chunk, const Expr& first, const Expr& begin, Shared& named,
                      Shared& cursors) const {
  Shared marks({runs, run_length + 1}, u32);
  clear(marks);
  auto each_pair = [&](auto body) {
    parallel(named, [&](Index n) {
      Expr block = named(n), column = block - begin;
      when(block != no_row && block >= begin && block < begin + columns,
           [&] { body(n / width_, n % width_, column / run_length, column % run_length); });
    });
  };
  each_pair([&](const Expr& token, const Expr&, const Expr& run, const Expr& i) {
    atomic_or(marks(run, i), u32(1) << u32(token));
  });
  each_pair([&](const Expr& token, const Expr& entry, const Expr& run, const Expr& i) {
    Expr earlier = marks(run, i) & ((u32(1) << u32(token)) - 1u);
    Expr at = chunk.first_row * width_ + cursors(run, i) + number_of_bits(earlier);
    tokens_(chunk.head, at) = first + token;
    places_(chunk.head, chunk.first_row + first % chunk_tokens + token, entry) = at;
  });
  parallel(runs, run_length, [&](Index run, Index i) { cursors(run, i) += number_of_bits(marks(run, i)); });
}

void PairLists::find(const Chunk& chunk, const TokenTile& tokens, const Selection& selection) const {
  // Tokens are named as in the sequence.
  Expr count = min(tokens.count - tokens.first, chunk_tokens), words = ceildiv(count, word_bits);
  const TokenTile sequence{c, Expr(Operand(0)), tokens.count, tokens.keys, tokens.behind};
  Var total = 0, total_long = 0;
  serial(ceildiv(chunk.blocks + 1, columns), [&](Index pass) {
    Expr begin = pass * columns;
    Shared counts({runs, run_length + 1}, i32), named({word_bits * width_}, i32);
    clear(counts);
    serial(words, [&](Index word) {
      Expr first = tokens.first + word * word_bits;
      name_blocks(sequence, selection, first, named);
      parallel(named, [&](Index n) {
        Expr block = named(n), column = block - begin, row = first % chunk_tokens + n / width_;
        when(block == no_row && pass == 0 && row < count,
             [&] { places_(chunk.head, chunk.first_row + row, n % width_) = -1; });
        when(block != no_row && block >= begin && block < begin + columns,
             [&] { atomic_add(counts(column / run_length, column % run_length), 1); });
      });
    });
    find_long(chunk, begin, counts, total_long);
    find_begins(chunk, begin, counts, total);
    serial(words, [&](Index word) {
      Expr first = tokens.first + word * word_bits;
      name_blocks(sequence, selection, first, named);
      write(chunk, first, begin, named, counts);
    });
  });
  Expr used = total_long;
  parallel(long_slots(), [&](Index slot) {
    when(slot >= used, [&] { long_blocks_(chunk.head, chunk.number, slot) = -1; });
  });
}

}  // namespace tegula::ops
