#include "ops/lists/pair_lists.hpp"

#include "ops/lists/runs.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int tokens_of_word = 32;  // tokens that are sorted at a time
constexpr int columns_of_runs = blocks_of_runs;
constexpr int chunks_under_way = 8;  // whose numbers are under way together

Tensor declare(const std::string& name, const lang::Extents& shape, PairLists::Role role) {
  switch (role) {
    case PairLists::Role::outputs:
      return output(name, shape, i32);
    case PairLists::Role::inputs:
      return input(name, shape, i32);
    default:
      return workspace(name, shape, i32);
  }
}

}  // namespace

PairLists::PairLists(const SelectedBlocks& c, const Extents& e, const Options& options)
    : c(c),
      width_(c.width()),
      longest_(options.longest),
      options_(options),
      begins_(declare("pair_begins", {e.heads, e.sequences, e.blocks + 1}, options.role)),
      tokens_(declare("pair_tokens", {e.heads, e.tokens * width_}, options.role)),
      places_(declare("pair_places", {e.heads, e.tokens, width_}, options.role)),
      piece_blocks_(declare("piece_blocks", {e.heads, all_pieces(e.tokens, e.sequences, width_, longest_)},
                            options.role)),
      first_pieces_(declare("first_pieces", {e.heads, e.sequences, e.blocks}, options.role)) {
  if (options.role == Role::inputs) return;
  counts_.emplace(workspace("pair_counts", {e.heads, e.chunks, e.blocks}, i32));
  chunk_pairs_.emplace(workspace("chunk_pairs", {e.heads, e.chunks}, i32));
  if (c.repeats) times_.emplace(workspace("pair_times", {e.heads, e.tokens * width_}, i32));
}

PairLists::List PairLists::list(const Owner& owner, const Expr& block) const {
  Expr begin = begins_(owner.head, owner.sequence, block),
       end = begins_(owner.head, owner.sequence, block + 1);
  List result{tokens_.slice(owner.head), owner.first_row * width_ + begin, end - begin, {}};
  if (times_) result.times.emplace(times_->slice(owner.head));
  return result;
}

// Over the blocks of keys that are looked after at a time. A packed sequence may have tokens and no keys:
// then once, so that its entries have no places.
void PairLists::each_pass(const Owner& owner, const std::function<void(const Expr&)>& body) const {
  Expr passes = ceildiv(owner.blocks, columns_of_runs);
  serial(c.varlen ? max(passes, 1) : passes, [&](Index pass) { body(pass * columns_of_runs); });
}

// The blocks of word_bits tokens, each once for a token. Tokens are numbered as in the sequence.
void PairLists::each_word(const TokenTile& tokens, const Selection& selection, const OfWord& body) const {
  const TokenTile sequence{c, Expr(Operand(0)), tokens.count, tokens.keys, tokens.behind};
  Expr count = min(tokens.count - tokens.first, c.chunk);
  serial(ceildiv(count, tokens_of_word), [&](Index word) {
    Shared listed({tokens_of_word * width_}, i32), named({tokens_of_word * width_}, i32);
    Expr first = tokens.first + word * tokens_of_word;
    parallel(listed, [&](Index n) { listed(n) = selection.block(sequence, first + n / width_, n % width_); });
    if (options_.left_out) return body(first, listed, listed);
    parallel(listed, [&](Index n) {
      Expr own = listed(n);
      Var block = own;
      serial(range(n / width_ * width_, n),
             [&](Index m) { block = select(listed(m) == own, no_row, Expr(block)); });
      named(n) = block;
    });
    body(first, named, listed);
  });
}

void PairLists::count(const Owner& owner, const TokenTile& tokens, const Selection& selection) const {
  Expr chunk = owner.first_chunk + tokens.first / c.chunk;
  Var all_pairs = 0;
  each_pass(owner, [&](const Expr& begin) {
    Shared numbers({columns_of_runs}, i32);
    clear(numbers);
    each_word(tokens, selection, [&](const Expr&, Shared& named, Shared&) {
      parallel(named, [&](Index n) {
        Expr block = named(n);
        when(block != no_row && block >= begin && block < begin + columns_of_runs,
             [&] { atomic_add(numbers(block - begin), 1); });
      });
    });
    parallel(numbers, [&](Index i) {
      when(begin + i < owner.blocks, [&] { (*counts_)(owner.head, chunk, begin + i) = numbers(i); });
    });
    all_pairs += reduce_sum(numbers).scalar();
  });
  (*chunk_pairs_)(owner.head, chunk) = all_pairs;
}

// Where rows are few, most chunks have none, and often all.
void PairLists::leave_empty(const Owner& owner, const TokenTile& tokens) const {
  Expr own = (*chunk_pairs_)(owner.head, owner.first_chunk + tokens.first / c.chunk);
  Var all_pairs = 0;
  each_chunk(tokens, [&](const Expr& n, const Expr& exists) {
    all_pairs += select(exists, (*chunk_pairs_)(owner.head, owner.first_chunk + n), 0);
  });
  when(all_pairs == 0 && tokens.first == 0, [&] {
    parallel(owner.blocks + 1, [&](Index block) { begins_(owner.head, owner.sequence, block) = 0; });
    parallel(owner.blocks, [&](Index block) { first_pieces_(owner.head, owner.sequence, block) = 0; });
    parallel(pieces(tokens.count, owner.blocks),
             [&](Index n) { piece_blocks_(owner.head, begin_of_pieces(owner) + n) = -1; });
  });
  exit_if(all_pairs == 0 || (own == 0 && tokens.first > 0));
}

// A few at a time, so that what is read of them is under way together.
void PairLists::each_chunk(const TokenTile& tokens,
                           const std::function<void(const Expr& n, const Expr& exists)>& body) const {
  Expr chunks = ceildiv(tokens.count, c.chunk);
  serial(ceildiv(chunks, chunks_under_way), [&](Index group) {
    for (int i = 0; i < chunks_under_way; ++i) {
      Expr n = group * chunks_under_way + i;
      body(n, n < chunks);
    }
  });
}

// For each block, counts all pairs and those of earlier chunks. Tiles are [runs, run_length + 1].
void PairLists::add_up_chunks(const Owner& owner, const TokenTile& tokens, const Expr& begin,
                              Shared& all_pairs, Shared& cursors) const {
  Expr own = tokens.first / c.chunk;
  parallel(runs, run_length, [&](Index run, Index i) {
    Expr block = begin + run * run_length + i;
    Var sum = 0, before = 0;
    each_chunk(tokens, [&](const Expr& n, const Expr& exists) {
      Expr number =
          select(exists && block < owner.blocks, (*counts_)(owner.head, owner.first_chunk + n, block), 0);
      sum += number;
      before += select(n < own, number, 0);
    });
    all_pairs(run, i) = sum;
    cursors(run, i) = before;
  });
}

// Cursors become where the chunk's pairs of a block begin. `total` pairs stand before. One chunk tells where
// lists begin.
void PairLists::find_begins(const Owner& owner, const Expr& begin, const Expr& tells, const Shared& all_pairs,
                            Shared& cursors, Var& total) const {
  Shared place({runs + 1}, i32);
  add_up_runs([&](const Expr& run, const Expr& i) -> Expr { return all_pairs(run, i); }, place);
  Expr before = total;
  parallel(runs, [&](Index run) {
    Var at = before + place(run);
    serial(run_length, [&](Index i) {
      Expr block = begin + run * run_length + i;
      cursors(run, i) += at;
      when(tells && block < owner.blocks, [&] { begins_(owner.head, owner.sequence, block) = at; });
      at += all_pairs(run, i);
    });
  });
  total += place(runs);
}

// Numbers the pieces of long lists. `total` pieces stand before.
void PairLists::cut(const Owner& owner, const Expr& begin, const Shared& all_pairs, Var& total) const {
  Shared place({runs + 1}, i32);
  auto pieces = [&](const Expr& run, const Expr& i) -> Expr {
    Expr pairs = all_pairs(run, i);
    return select(pairs > longest_, ceildiv(pairs, longest_), 0);
  };
  add_up_runs(pieces, place);
  Expr before = total;
  parallel(runs, [&](Index run) {
    Var piece = before + place(run);
    serial(run_length, [&](Index i) {
      Expr number = pieces(run, i), block = begin + run * run_length + i;
      when(block < owner.blocks, [&] {
        first_pieces_(owner.head, owner.sequence, block) = piece;
        serial(number,
               [&](Index n) { piece_blocks_(owner.head, begin_of_pieces(owner) + piece + n) = block; });
        piece += number;
      });
    });
  });
  total += place(runs);
}

// The pairs of word_bits tokens. `cursors` says where those of each block come to stand.
void PairLists::write_word(const Owner& owner, const Expr& first, const Expr& begin, Shared& named,
                           Shared& listed, Shared& cursors) const {
  Shared marks({runs, run_length + 1}, u32);
  clear(marks);
  auto each_pair = [&](auto body) {
    parallel(named, [&](Index n) {
      Expr block = named(n), column = block - begin;
      when(block != no_row && block >= begin && block < begin + columns_of_runs,
           [&] { body(n / width_, n % width_, column / run_length, column % run_length); });
    });
  };
  each_pair([&](const Expr& token, const Expr&, const Expr& run, const Expr& i) {
    atomic_or(marks(run, i), u32(1) << u32(token));
  });
  each_pair([&](const Expr& token, const Expr& entry, const Expr& run, const Expr& i) {
    Expr earlier = marks(run, i) & ((u32(1) << u32(token)) - 1u);
    Expr at = owner.first_row * width_ + cursors(run, i) + i32(popcount(earlier));
    tokens_(owner.head, at) = first + token;
    if (times_) {
      Expr own = named(token * width_ + entry);
      Var times = 0;
      serial(range(token * width_, token * width_ + width_),
             [&](Index m) { times += select(listed(m) == own, 1, 0); });
      (*times_)(owner.head, at) = times;
    }
    places_(owner.head, owner.first_row + first + token, entry) = at;
  });
  parallel(runs, run_length, [&](Index run, Index i) { cursors(run, i) += i32(popcount(marks(run, i))); });
}

void PairLists::write(const Owner& owner, const TokenTile& tokens, const Selection& selection) const {
  if (options_.left_out) leave_empty(owner, tokens);
  Var total = 0, total_pieces = 0;
  each_pass(owner, [&](const Expr& begin) {
    Shared all_pairs({runs, run_length + 1}, i32), cursors({runs, run_length + 1}, i32);
    add_up_chunks(owner, tokens, begin, all_pairs, cursors);
    // All chunks find the same; the first one tells.
    when(tokens.first == 0, [&] { cut(owner, begin, all_pairs, total_pieces); });
    find_begins(owner, begin, tokens.first == 0, all_pairs, cursors, total);
    each_word(tokens, selection, [&](const Expr& first, Shared& named, Shared& listed) {
      parallel(named, [&](Index n) {
        Expr row = first + n / width_;
        when(named(n) == no_row && begin == 0 && row < tokens.count,
             [&] { places_(owner.head, owner.first_row + row, n % width_) = -1; });
      });
      write_word(owner, first, begin, named, listed, cursors);
    });
  });
  Expr used = total_pieces;
  when(tokens.first == 0, [&] {
    begins_(owner.head, owner.sequence, owner.blocks) = total;
    parallel(pieces(tokens.count, owner.blocks), [&](Index n) {
      when(n >= used, [&] { piece_blocks_(owner.head, begin_of_pieces(owner) + n) = -1; });
    });
  });
}

}  // namespace tegula::ops
