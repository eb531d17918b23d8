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

PairLists::PairLists(const NsaKernel& c, const Extents& extents)
    : c(c),
      width_(c.entries + (c.diagonal ? 1 : 0)),
      begins_(workspace("pair_begins", {extents.heads, extents.chunks, extents.blocks + 1}, i32)),
      tokens_(workspace("pair_tokens", {extents.heads, extents.tokens * width_}, i32)),
      places_(workspace("pair_places", {extents.heads, extents.tokens, width_}, i32)) {}

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

// Numbers of pairs become the begins of lists. `counts` is [runs, run_length + 1].
void PairLists::count(const Chunk& chunk, const Expr& begin, Shared& counts, Var& total) const {
  Shared found({runs}, i32), place({runs + 1}, i32);
  parallel(runs, [&](Index run) {
    Var sum = 0;
    serial(run_length, [&](Index i) { sum += counts(run, i); });
    found(run) = sum;
  });
  parallel(runs + 1, [&](Index run) {
    Var sum = 0;
    serial(runs, [&](Index other) { sum += select(other < run, found(other), 0); });
    place(run) = sum;
  });
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
  Var total = 0;
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
    this->count(chunk, begin, counts, total);
    serial(words, [&](Index word) {
      Expr first = tokens.first + word * word_bits;
      name_blocks(sequence, selection, first, named);
      write(chunk, first, begin, named, counts);
    });
  });
}

}  // namespace tegula::ops
