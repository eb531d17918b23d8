// The program for GPUs: a grid that joins the lists of each tile of tokens, and one that attends.
#include "ops/nsa/program.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int word_bits = 32;
// Tokens agree if a tile has at most 1 / agreement as many blocks as its tokens selected.
constexpr int agreement = 4;

Expr any_of(const std::vector<Expr>& conditions, std::size_t count) {
  return count == 1 ? conditions[0] : any_of(conditions, count - 1) || conditions[count - 1];
}

Expr word_of(const std::vector<Expr>& words, const Expr& token, std::size_t last) {
  if (last == 0) return words[0];
  return select(token < static_cast<int>(last) * word_bits, word_of(words, token, last - 1), words[last]);
}

// Keys that one step meets: a part of a block, or a few whole blocks one after the other.
struct Step {
  const NsaKernel& c;
  const UnionLists::List& list;
  Expr t;
  std::vector<Expr> first, end;           // of each block
  std::vector<std::vector<Expr>> chosen;  // the tokens that selected it: words of bits

  Step(const NsaKernel& c, const UnionLists::List& list, const Expr& t);

  void load(const Tensor& from, Shared& tile) const;
  Expr is_cut(const TokenTile& tokens) const;
  Expr is_missed() const;
  Expr has(std::size_t i, const Expr& token) const {
    Expr word = word_of(chosen[i], token, chosen[i].size() - 1);
    return ((word >> u32(token % word_bits)) & 1u) != 0u;
  }
  // For each of so many runs of tokens, whether some token selected the block.
  std::vector<Expr> chosen_by(int runs) const;
  // The block of a column, one of those from i on.
  Expr has_block_of(const Expr& column, const Expr& token, std::size_t i = 0) const {
    if (i + 1 == first.size()) return has(i, token);
    return select(column < static_cast<int>(i + 1) * width(), has(i, token),
                  has_block_of(column, token, i + 1));
  }
  Expr sees(const TokenTile& tokens, const Expr& token, const Expr& column) const {
    return column < seen_end(0, tokens, token, column);
  }

 private:
  int width() const { return c.keys / static_cast<int>(first.size()); }
  Expr seen_end(std::size_t i, const TokenTile& tokens, const Expr& token) const;
  Expr seen_end(std::size_t i, const TokenTile& tokens, const Expr& token, const Expr& column) const;
};

Step::Step(const NsaKernel& c, const UnionLists::List& list, const Expr& t) : c(c), list(list), t(t) {
  const int joined = c.joined(), parts = c.parts();
  for (int i = 0; i < joined; ++i) {
    Expr n = joined > 1 ? t * joined + i : parts > 1 ? t / parts : t;
    Expr there = joined > 1 ? min(n, list.count - 1) : n;
    Expr begin = list.blocks(there) * c.block;
    first.push_back(parts > 1 ? begin + t % parts * c.keys : begin);
    end.push_back(begin + c.block);
    chosen.emplace_back();
    for (int w = 0; w < ceildiv(c.queries, word_bits); ++w) {
      Expr bits = list.chosen(there, w);
      chosen.back().push_back(joined > 1 ? select(n < list.count, bits, u32(0)) : bits);
    }
  }
}

std::vector<Expr> Step::chosen_by(int runs) const {
  const int tokens = c.queries / runs;
  std::vector<Expr> result;
  for (int run = 0; run < runs; ++run) {
    std::vector<Expr> reasons;
    for (const std::vector<Expr>& words : chosen)
      for (std::size_t w = 0; w < words.size(); ++w) {
        const int begin = std::max(run * tokens - static_cast<int>(w) * word_bits, 0),
                  end = std::min((run + 1) * tokens - static_cast<int>(w) * word_bits, word_bits);
        if (begin >= end) continue;
        const std::uint32_t bits = ~std::uint32_t{0} >> (word_bits - (end - begin)) << begin;
        reasons.push_back((words[w] & bits) != 0u);
      }
    result.push_back(any_of(reasons, reasons.size()));
  }
  return result;
}

void Step::load(const Tensor& from, Shared& tile) const {
  if (first.size() == 1) return copy(from.at(first[0]), tile);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const int begin = static_cast<int>(i) * width();
    copy(from.at(first[i]), tile.slice(range(begin, begin + width()), all));
  }
}

// Whether some token would not see all keys of its blocks.
Expr Step::is_cut(const TokenTile& tokens) const {
  if (!c.repeats && c.block % width() == 0)
    return t >= (c.joined() > 1 ? list.whole / c.joined() : list.whole * c.parts());
  std::vector<Expr> reasons;
  for (std::size_t i = 0; i < first.size(); ++i) {
    Expr behind = first[i] + width();
    reasons.push_back(behind > tokens.limit(Operand(0)));
    if (c.block % width() != 0) reasons.push_back(behind > end[i]);
  }
  return any_of(reasons, reasons.size());
}

// Whether some token did not select all blocks.
Expr Step::is_missed() const {
  std::vector<Expr> reasons;
  for (const std::vector<Expr>& words : chosen)
    for (std::size_t w = 0; w < words.size(); ++w) {
      const int tokens_of_word = std::min(word_bits, c.queries - static_cast<int>(w) * word_bits);
      reasons.push_back(words[w] != u32(~std::uint32_t{0} >> (word_bits - tokens_of_word)));
    }
  return any_of(reasons, reasons.size());
}

// One past the last column of block i that the token sees.
Expr Step::seen_end(std::size_t i, const TokenTile& tokens, const Expr& token) const {
  Expr limit = tokens.limit(token), last = c.block % width() == 0 ? limit : Expr(min(limit, end[i]));
  return select(has(i, token), last - first[i] + static_cast<int>(i) * width(), 0);
}

// The same for the block of a column, one of the blocks from i on.
Expr Step::seen_end(std::size_t i, const TokenTile& tokens, const Expr& token, const Expr& column) const {
  Expr own = seen_end(i, tokens, token);
  if (i + 1 == first.size()) return own;
  return select(column < static_cast<int>(i + 1) * width(), own, seen_end(i + 1, tokens, token, column));
}

// Where a token sees a block, it mostly sees all of it: that takes one question a row and block.
void mask_step(Fragment& scores, const Step& step, const TokenTile& tokens) {
  const NsaKernel& c = step.c;
  when(step.is_cut(tokens), [&] {
    parallel(scores, [&](Index r, Index column) {
      scores(r, column) = select(step.sees(tokens, r / c.pack, column), scores(r, column), -inf);
    });
  }).otherwise([&] {
    if (c.joined() > 1)
      when(step.is_missed(), [&] {
        parallel(scores, [&](Index r, Index column) {
          scores(r, column) = select(step.has_block_of(column, r / c.pack), scores(r, column), -inf);
        });
      });
  });
}

}  // namespace

// Rounded down and one more for each sequence before: sequences do not share a tile.
Expr NsaProgram::list_of(const SequenceRows& rows, const Index& x) const {
  return c.varlen ? rows.queries.begin / c.queries + rows.b + x : rows.b * tiles() + x;
}

void NsaProgram::run_with_lists() {
  Expr all_tiles = c.varlen ? queries / c.queries + q_begin->extent(0) : *batch * tiles();
  if (c.divides()) {
    part_count.emplace(scalar("parts", i32));
    part_tokens.emplace(scalar("part_tokens", i32));
  }
  lists.emplace(c.selected(), head_blocks(), all_tiles, c.varlen ? Expr(queries) : *batch * queries,
                part_count);
  if (c.divides()) declare_pairs();
  auto of_tile = [&](const Index& x, const Index& h, const Index& b, auto body) {
    HeadViews views = views_of(h, b);
    TokenTile tokens{c.selected(), x * c.queries, views.rows.queries.end - views.rows.queries.begin,
                     views.rows.keys.end - views.rows.keys.begin};
    if (c.varlen) {
      assert_queries(tokens.count, *longest);
      exit_if(tokens.first >= tokens.count);
    }
    body(views, tokens, list_of(views.rows, x));
  };
  if (c.divides()) lists->clear_parts();
  grid(tiles(), head_blocks(), sequences(), {.threads = 64}, [&](Index x, Index h, Index b) {
    of_tile(x, h, b, [&](const HeadViews& views, const TokenTile& tokens, const Expr& tile) {
      Expr part = c.divides() ? tokens.first / *part_tokens : Expr(Operand(0));
      lists->find(h, tile, b * queries, tokens, selection_of(views), part);
    });
  });
  if (c.divides()) pair_grids();  // the second of these beside the tiles
  grid(tiles(), head_blocks(), sequences(), [&](Index x, Index h, Index b) {
    of_tile(x, h, b, [&](const HeadViews& views, const TokenTile& tokens, const Expr& tile) {
      attend(lists->list(h, tile), views, tokens);
    });
  });
}

void NsaProgram::declare_pairs() {
  of_left_out = lists_left_out(c);
  Expr parts_of_all = *batch * *part_count;
  pairs.emplace(
      of_left_out.selected(),
      PairLists::Extents{heads, *batch * queries, parts_of_all * ceildiv(*part_tokens, c.chunk), parts_of_all,
                         ceildiv(keys, c.block)},
      PairLists::Options{.longest = longest_inverted(c), .left_out = true, .role = PairLists::Role::outputs});
}

void NsaProgram::pair_grids() const {
  Expr chunks = ceildiv(*part_tokens, c.chunk);
  auto over_chunks = [&](auto body) {
    grid(chunks, heads, *batch * *part_count, {.threads = 256}, [&](Index x, Index h, Index sequence) {
      Expr b = sequence / *part_count, begin = sequence % *part_count * *part_tokens;
      Expr count = min(queries - begin, *part_tokens), first_row = b * queries + begin;
      exit_if(x * c.chunk >= count || !lists->has_left_out(sequence % *part_count));
      const Selection selection{lists->left_out(h).slice(range(first_row, first_row + count)), {}};
      body(PairLists::Part{h, sequence, sequence * chunks, first_row, ceildiv(keys, c.block)},
           TokenTile{of_left_out.selected(), x * c.chunk, count, keys, queries - begin - count}, selection);
    });
  };
  over_chunks([&](const auto&... all_of) { pairs->count(all_of...); });
  over_chunks([&](const auto&... all_of) { pairs->write(all_of...); });
}

// Where tokens agree, those that do without a block would only wait for the others.
Expr NsaProgram::warps_together(const UnionLists::List& list) const {
  return select(list.count * agreement > c.queries * c.entries, 3, 1);
}

void NsaProgram::attend(const UnionLists::List& list, const HeadViews& views, const TokenTile& tokens) const {
  Tensor k_of = views.of_keys(*k), v_of = views.of_keys(*v);
  Shared q_tile({c.rows(), c.dim}, c.compute);
  load_queries(views.of_queries(*q), tokens.first, q_tile, c.pack);
  Fragment sum({c.rows(), c.dim_v}, f32, 0);
  OnlineSoftmax softmax(c.rows(), *scale);
  Expr steps = c.joined() > 1 ? ceildiv(list.count, c.joined()) : list.count * c.parts();
  const int groups = c.row_groups();
  pipelined(steps, {.stages = groups > 1 ? 5 : 2}, [&](Index t) {
    Step step(c, list, t);
    Shared k_tile({c.keys, c.dim}, c.compute), v_tile({c.keys, c.dim_v}, c.compute);
    step.load(k_of, k_tile);
    step.load(v_of, v_tile);
    auto meet = [&] {
      Fragment scores({c.rows(), c.keys}, f32, 0);
      gemm(q_tile, k_tile.T(), scores);
      mask_step(scores, step, tokens);
      if (c.joined() > 1)
        scale_rows(sum, softmax.update(scores));
      else
        rescale_rows(sum, softmax.update_lazily(scores, [&](Index r) { return step.has(0, r / c.pack); }));
      add_product(scores, v_tile, sum, c.compute);
    };
    if (groups > 1)
      when_rows(step.chosen_by(c.row_runs()), {.together = warps_together(list)}, meet);
    else
      meet();
  });
  softmax.normalize(sum);
  store(sum, views, tokens.first);
  if (lse) store_lse(softmax.lse(), views.vector(*lse), tokens.first, c.pack);
}

}  // namespace tegula::ops
