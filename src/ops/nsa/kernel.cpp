#include "ops/nsa/kernel.hpp"

#include <optional>

#include "ops/lists/pair_lists.hpp"
#include "ops/lists/union_steps.hpp"
#include "ops/lists/walk.hpp"
#include "ops/nsa/gates.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

class NsaProgram {
 public:
  explicit NsaProgram(const NsaKernel& instance);
  void run();

 private:
  Expr sequences() const { return c.varlen ? q_begin->extent(0) - 1 : Expr(*batch); }
  Expr tiles() const { return ceildiv(c.varlen ? *longest : Expr(queries), c.queries); }
  Expr head_blocks() const { return c.pack > 1 ? Expr(heads) : heads * *group; }
  HeadViews views_of(const Index& h, const Index& b) const;
  Selection selection_of(const HeadViews& views) const;

  // A block of the CPU joins the lists of its tile itself.
  void block(const Index& x, const Index& h, const Index& b) const;
  void mask(Fragment& scores, const BlockTile& keys_of, const TokenTile& tokens, UnionList& chosen) const;

  // The sums of a tile, divided by those of the weights, to out.
  void store(Fragment& sum, const HeadViews& views, const Expr& first) const;
  Fragment weights_of(int branch, const HeadViews& views, const Expr& first) const;
  void add_branches(Fragment& sum, const HeadViews& views, const Expr& first) const;

  int stages() const { return c.row_groups() > 1 ? 5 : 2; }  // of loops over blocks and branches

  // On a GPU the lists are joined before.
  void run_with_lists();
  Expr list_of(const SequenceRows& rows, const Index& x) const;
  Expr warps_together(const UnionLists::List& list) const;
  void attend(const UnionLists::List& list, const HeadViews& views, const TokenTile& tokens) const;

  // The pairs of what few tokens of a tile selected, sorted by blocks in each segment of the tokens: for
  // nsa_inverted_kernel.
  void declare_pairs();
  void pair_grids() const;

  const NsaKernel& c;
  std::optional<Dim> batch, group;
  Dim queries{"tokens"}, keys{"keys"}, heads{"kv_heads"}, entries{"entries"};
  std::optional<lang::Tensor> q, k, v, out, lse, choice, lengths, q_begin, k_begin, compressed, selected,
      window, gates;
  std::optional<lang::Expr> scale, longest, segment_count, segment_tokens;
  std::optional<UnionLists> lists;
  NsaKernel of_left_out;  // whose rows are what is left of those of `c`
  std::optional<PairLists> pairs;
};

NsaProgram::NsaProgram(const NsaKernel& instance) : c(instance) {
  if (c.pack == 1) group.emplace("group");
  if (!c.varlen) batch.emplace("batch");
  const Operand members = c.pack > 1 ? Operand(c.members) : Operand(*group);
  const Extents batches = c.varlen ? Extents{} : Extents{*batch};
  const Extents of_q = joined(batches, {queries, heads, members}), of_k = joined(batches, {keys, heads});
  q.emplace(input("q", joined(of_q, {c.dim}), c.type));
  k.emplace(input("k", joined(of_k, {c.dim}), c.type));
  v.emplace(input("v", joined(of_k, {c.dim_v}), c.type));
  out.emplace(output("out", joined(of_q, {c.dim_v}), c.type));
  if (c.branches == 0 || c.keeps) lse.emplace(output("lse", joined(batches, {heads, members, queries}), f32));
  choice.emplace(input("choice", joined(of_q, {entries}), i32));
  scale.emplace(scalar("scale", f32));
  require(entries <= c.entries, "a row has no more entries than the instance");
  if (c.branches > 0) {
    compressed.emplace(input("compressed", joined(of_q, {c.dim_v}), c.type));
    if (c.branches > 2) window.emplace(input("window", joined(of_q, {c.dim_v}), c.type));
    gates.emplace(input("gates", joined(of_q, {c.branches}), c.gates));
    if (c.keeps) selected.emplace(output("selected", joined(of_q, {c.dim_v}), c.type));
  }
  if (c.counts) lengths.emplace(input("counts", of_q, i32));
  if (!c.varlen) return;
  Dim fences("fences");
  q_begin.emplace(input("q_begin", {fences}, i32));
  k_begin.emplace(input("k_begin", {fences}, i32));
  longest.emplace(scalar("longest", i32));
}

void NsaProgram::run() {
  if (c.lists) return run_with_lists();
  grid(tiles(), head_blocks(), sequences(), [&](Index x, Index h, Index b) { block(x, h, b); });
}

HeadViews NsaProgram::views_of(const Index& h, const Index& b) const {
  return {c.varlen ? SequenceRows(b, *q_begin, *k_begin) : SequenceRows(b, queries, keys),
          c.pack > 1 ? Expr(h) : h / *group, c.pack > 1 ? Subscript(all) : Subscript(h % *group)};
}

Selection NsaProgram::selection_of(const HeadViews& views) const {
  const Subscript member = c.pack > 1 ? Subscript(0) : views.member;
  return selection_of_head({views.rows, views.kv_head, member}, *choice, lengths);
}

// Scores of keys that the query does not see become −∞; a key seen n times gets n times the weight.
void NsaProgram::mask(Fragment& scores, const BlockTile& keys_of, const TokenTile& tokens,
                      UnionList& chosen) const {
  auto apply = [&] {
    parallel(scores, [&](Index r, Index t) {
      Expr token = r / c.pack, key = keys_of.row(t);
      Expr sees = keys_of.counts(key) && key < tokens.limit(token);
      if (!c.has_times()) {
        scores(r, t) = select(sees, scores(r, t), -inf);
      } else {
        Expr times = chosen.times(keys_of.place(t), token);
        Expr score = c.repeats ? scores(r, t) + log2(f32(times)) / *scale : Expr(scores(r, t));
        scores(r, t) = select(sees && times > 0, score, -inf);
      }
    });
  };
  if (c.has_times() || keys_of.row_of)
    apply();
  else
    when(keys_of.ragged() || keys_of.first + c.keys > tokens.limit(Operand(0)), apply);
}

void NsaProgram::block(const Index& x, const Index& h, const Index& b) const {
  HeadViews views = views_of(h, b);
  Tensor q_of = views.of_queries(*q), k_of = views.of_keys(*k), v_of = views.of_keys(*v);
  TokenTile tokens{c.selected(), x * c.queries, q_of.extent(0), k_of.extent(0)};
  if (c.varlen) {
    assert_queries(tokens.count, *longest);
    exit_if(tokens.first >= tokens.count);
  }
  Shared q_tile({c.rows(), c.dim}, c.compute);
  load_queries(q_of, tokens.first, q_tile, c.pack);
  Fragment sum({c.rows(), c.dim_v}, f32, 0);
  OnlineSoftmax softmax(c.rows(), *scale);
  UnionList chosen(tokens, selection_of(views));
  walk_blocks(
      c.tiles(), [&](const Expr& n) { return chosen.block(n); }, chosen.count(),
      [&](const BlockTile& tile) {
        Shared k_tile({c.keys, c.dim}, c.compute), v_tile({c.keys, c.dim_v}, c.compute);
        tile.load(k_of, k_tile);
        Fragment scores({c.rows(), c.keys}, f32, 0);
        gemm(q_tile, k_tile.T(), scores);
        mask(scores, tile, tokens, chosen);
        scale_rows(sum, softmax.update(scores));
        tile.load(v_of, v_tile);
        add_product(scores, v_tile, sum, c.compute);
      });
  softmax.normalize(sum);
  store(sum, views, tokens.first);
  if (lse) store_lse(softmax.lse(), views.vector(*lse), tokens.first, c.pack);
}

void NsaProgram::store(Fragment& sum, const HeadViews& views, const Expr& first) const {
  if (selected) store_rows(sum, views.of_queries(*selected), first, c.pack);
  if (c.branches > 0) add_branches(sum, views, first);
  store_rows(sum, views.of_queries(*out), first, c.pack);
}

// What a branch counts for each row of a tile.
Fragment NsaProgram::weights_of(int branch, const HeadViews& views, const Expr& first) const {
  const Tensor from = views.of_queries(*gates);
  Fragment result({c.rows()}, f32);
  if (c.pack == 1)
    copy(from.slice(all, branch).at(first), result);
  else
    copy(from.slice(all, all, branch).at(first), result.reshape({c.queries, c.pack}));
  weigh_gates(result);
  return result;
}

// The other branches' rows come as keys and values do, so that they are there when the last block has been
// added: for one group of rows after the other, in tiles as large as those of a block.
void NsaProgram::add_branches(Fragment& sum, const HeadViews& views, const Expr& first) const {
  const Fragment own = weights_of(1, views, first), of_compressed = weights_of(0, views, first);
  std::optional<Fragment> of_window;
  if (window) of_window.emplace(weights_of(2, views, first));
  parallel(sum, [&](Index r, Index j) { sum(r, j) *= own(r); });
  const int groups = c.row_groups(), rows = c.rows() / groups;
  pipelined(groups, {.stages = stages()}, [&](Index n) {
    Expr from = first + n * (c.queries / groups);
    Shared compressed_tile({rows, c.dim_v}, c.type);
    load_queries(views.of_queries(*compressed), from, compressed_tile, c.pack);
    std::optional<Shared> window_tile;
    if (window) {
      window_tile.emplace(std::initializer_list<int>{rows, c.dim_v}, c.type);
      load_queries(views.of_queries(*window), from, *window_tile, c.pack);
    }
    parallel(sum, [&](Index r, Index j) {
      when(r / rows == n, [&] {
        sum(r, j) += of_compressed(r) * compressed_tile(r % rows, j);
        if (window) sum(r, j) += (*of_window)(r) * (*window_tile)(r % rows, j);
      });
    });
  });
}

// Tokens agree if a tile has at most 1 / agreement as many blocks as its tokens selected.
constexpr int agreement = 4;

// Rounded down and one more for each sequence before: sequences do not share a tile.
Expr NsaProgram::list_of(const SequenceRows& rows, const Index& x) const {
  return c.varlen ? rows.queries.begin / c.queries + rows.b + x : rows.b * tiles() + x;
}

void NsaProgram::run_with_lists() {
  Expr all_tiles = c.varlen ? queries / c.queries + q_begin->extent(0) : *batch * tiles();
  if (c.divides()) {
    segment_count.emplace(scalar("parts", i32));
    segment_tokens.emplace(scalar("part_tokens", i32));
  }
  lists.emplace(c.selected(), head_blocks(), all_tiles, c.varlen ? Expr(queries) : *batch * queries,
                segment_count);
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
  if (c.divides()) lists->clear_segments();
  grid(tiles(), head_blocks(), sequences(), {.threads = 64}, [&](Index x, Index h, Index b) {
    of_tile(x, h, b, [&](const HeadViews& views, const TokenTile& tokens, const Expr& tile) {
      Expr segment = c.divides() ? tokens.first / *segment_tokens : Expr(Operand(0));
      lists->find(h, tile, b * queries, tokens, selection_of(views), segment);
    });
  });
  if (c.divides()) pair_grids();  // the second of these beside the tiles
  Order order;
  // Later tokens have more blocks to differ in; a head's keys stay in the cache.
  if (c.causal) order = Order::heavy_first([](Index x, Index, Index) -> Expr { return x; }, Operand(1));
  grid(tiles(), head_blocks(), sequences(), {.order = order}, [&](Index x, Index h, Index b) {
    of_tile(x, h, b, [&](const HeadViews& views, const TokenTile& tokens, const Expr& tile) {
      attend(lists->list(h, tile), views, tokens);
    });
  });
}

void NsaProgram::declare_pairs() {
  of_left_out = lists_left_out(c);
  Expr segments_of_all = *batch * *segment_count;
  pairs.emplace(
      of_left_out.selected(),
      PairLists::Extents{heads, *batch * queries, segments_of_all * ceildiv(*segment_tokens, c.chunk),
                         segments_of_all, ceildiv(keys, c.block)},
      PairLists::Options{.longest = longest_inverted(c), .left_out = true, .role = PairLists::Role::outputs});
}

void NsaProgram::pair_grids() const {
  Expr chunks = ceildiv(*segment_tokens, c.chunk);
  auto over_chunks = [&](auto body) {
    grid(chunks, heads, *batch * *segment_count, {.threads = 256}, [&](Index x, Index h, Index sequence) {
      Expr b = sequence / *segment_count, begin = sequence % *segment_count * *segment_tokens;
      Expr count = min(queries - begin, *segment_tokens), first_row = b * queries + begin;
      exit_if(x * c.chunk >= count || !lists->has_left_out(sequence % *segment_count));
      const Selection selection{lists->left_out(h).slice(range(first_row, first_row + count)), {}};
      body(PairLists::Owner{h, sequence, sequence * chunks, first_row, ceildiv(keys, c.block)},
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
  Expr steps = c.joined() > 1 ? ceildiv(list.count, c.joined()) : list.count * c.tiles_of_block();
  const int groups = c.row_groups();
  pipelined(steps, {.stages = stages()}, [&](Index t) {
    const UnionStep step(c.selected(), c.keys, c.joined(), list, t);
    Shared k_tile({c.keys, c.dim}, c.compute), v_tile({c.keys, c.dim_v}, c.compute);
    step.load(k_of, k_tile);
    step.load(v_of, v_tile);
    auto meet = [&] {
      Fragment scores({c.rows(), c.keys}, f32, 0);
      gemm(q_tile, k_tile.T(), scores);
      step.mask(scores, tokens, c.pack);
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

}  // namespace

Kernel nsa_kernel(const NsaKernel& instance) {
  return kernel(instance_name("nsa", instance), [&] { NsaProgram(instance).run(); });
}

}  // namespace tegula::ops
