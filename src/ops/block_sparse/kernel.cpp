#include "ops/block_sparse/kernel.hpp"

#include "ops/block_sparse/own_queries.hpp"
#include "ops/block_sparse/sequences.hpp"
#include "ops/lists/later_first.hpp"
#include "ops/lists/sorted_lists.hpp"
#include "ops/lists/walk.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int most_last_blocks = 4;  // of a list, that are searched for steps that no query sees

// The n-th block of a list.
using ListEntry = std::function<Expr(const Expr& n)>;

// One tile of queries and the keys it meets.
struct Meeting {
  const BlockSparseKernel& c;
  Tensor keys, values;
  const Shared& queries;
  Fragment& sum;
  OnlineSoftmax& softmax;
  ScoreRange visible;
  Expr scale;
  // Lists ascend: where blocks of keys are whole, only so many at the end of a list may have keys that some
  // query does not see. Known where lists are made before.
  std::optional<Expr> tail;
  // Steps at the end that do: known where no step is met that all queries stand before.
  std::optional<Expr> masked_steps;

  // Whether step t of a list may meet such keys.
  Expr is_near_end(const Expr& t, const Expr& count, const Expr& steps) const {
    return t >= (masked_steps ? steps - *masked_steps : (count - *tail) * ceildiv(c.k_block, c.keys));
  }

  // The steps of whole blocks, without those that follow all queries, in the last blocks.
  Expr steps_of(const ListEntry& list, const Expr& count) const {
    const int of_block = ceildiv(c.k_block, c.keys);
    if (!masked_steps || (of_block == 1 && c.splits() == 1)) return of_block == 1 ? count : count * of_block;
    Var steps = count * of_block;
    for (int i = 0; i < c.last_blocks(); ++i) {
      Expr begin = list(max(count - 1 - i, 0)) * c.k_block;
      Expr met = clamp(ceildiv(visible.end() - begin, c.keys), 0, of_block);
      steps -= select(i < count, of_block - met, 0);
    }
    return steps;
  }

  // Scores, weights and values of one tile of keys; where `partial` holds, only those that `sees`.
  void add(const Shared& key_tile, const std::function<void(Shared&)>& load_values, const Expr& partial,
           const std::function<Expr(const Expr& query, const Expr& column)>& sees) {
    Fragment scores({c.rows(), c.keys}, f32, 0);
    gemm(queries, key_tile.T(), scores);
    cap_scores(scores, scale, c.softcap, c.compute);
    when(partial, [&] {
      parallel(scores,
               [&](Index r, Index t) { scores(r, t) = select(sees(r / c.pack, t), scores(r, t), -inf); });
    });
    scale_rows(sum, softmax.update(scores));
    Shared value_tile({c.keys, c.dim_v}, c.compute);
    load_values(value_tile);
    add_product(scores, value_tile, sum, c.compute);
  }

  // Blocks of keys that fill one or more tiles each.
  void add_whole(const ListEntry& list, const Expr& count) {
    const int of_block = ceildiv(c.k_block, c.keys);
    Expr steps = steps_of(list, count);
    pipelined(steps, {.stages = 2}, [&](Index t) {
      Expr block = list(of_block == 1 ? Expr(t) : t / of_block);
      Expr first = of_block == 1 ? block * c.k_block : block * c.k_block + t % of_block * c.keys;
      Expr end = block * c.k_block + c.k_block;
      Shared key_tile({c.keys, c.dim}, c.compute);
      copy(keys.at(first), key_tile);
      auto load_values = [&](Shared& tile) { copy(values.at(first), tile); };
      const bool even = c.k_block % c.keys == 0;
      Expr partial = even && tail ? is_near_end(t, count, steps) : visible.is_partial(first, c.keys);
      add(key_tile, load_values, even ? partial : partial || first + c.keys > end,
          [&](const Expr& query, const Expr& column) -> Expr {
            return first + column < min(end, visible.limit(query));
          });
    });
  }

  // A few whole blocks of keys in a tile, copied one by one.
  void add_joined(const ListEntry& list, const Expr& count) {
    const int blocks = c.tile().blocks();
    pipelined(ceildiv(count, blocks), {.stages = 2}, [&](Index t) {
      std::vector<Expr> first;
      for (int i = 0; i < blocks; ++i) first.push_back(list(min(t * blocks + i, count - 1)) * c.k_block);
      auto load = [&](const Tensor& from, Shared& tile) {
        for (int i = 0; i < blocks; ++i)
          copy(from.at(first[static_cast<std::size_t>(i)]),
               tile.slice(range(i * c.k_block, (i + 1) * c.k_block), all));
      };
      Shared key_tile({c.keys, c.dim}, c.compute);
      load(keys, key_tile);
      Expr columns = (count - t * blocks) * c.k_block;  // that blocks of the list fill
      // Lists ascend, so the last block has the largest keys.
      Expr partial = tail ? t >= max(count - *tail, 0) / blocks
                          : columns < c.keys || visible.is_partial(first.back(), c.k_block);
      add(
          key_tile, [&](Shared& tile) { load(values, tile); }, partial,
          [&](const Expr& query, const Expr& column) -> Expr {
            const std::function<Expr(int)> begin = [&](int i) -> Expr {
              Expr own = first[static_cast<std::size_t>(i)] - i * c.k_block;
              if (i + 1 == blocks) return own;
              return select(column < (i + 1) * c.k_block, own, begin(i + 1));
            };
            return column < columns && begin(0) + column < visible.limit(query);
          });
    });
  }

  // Several blocks of keys in a tile: the key of each column is looked up.
  void add_gathered(const ListEntry& list, const Expr& count) {
    const int blocks = c.tile().blocks();
    const bool full = blocks * c.k_block == c.keys;
    pipelined(ceildiv(count, blocks), {.stages = 2}, [&](Index t) {
      Shared key_of({c.keys}, i32);
      parallel(c.keys, [&](Index j) {
        Expr n = t * blocks + j / c.k_block, key = list(min(n, count - 1)) * c.k_block + j % c.k_block;
        key_of(j) = select(full ? n < count : n < count && j < blocks * c.k_block, key, no_row);
      });
      Shared key_tile({c.keys, c.dim}, c.compute);
      gather(keys, key_of, key_tile);
      auto load_values = [&](Shared& tile) { gather(values, key_of, tile); };
      // Lists ascend, so the last column has the largest key.
      Expr partial = key_of(c.keys - 1) >= visible.limit(Operand(0));
      add(key_tile, load_values, partial, [&](const Expr& query, const Expr& column) -> Expr {
        return key_of(column) < visible.limit(query);
      });
    });
  }
};

struct Program {
  const BlockSparseKernel& c;
  std::optional<Dim> group;  // of query heads, where they do not share tiles
  BlockSparseSequences sequences;
  Dim entries{"entries"};
  const Dim& heads = sequences.heads;
  std::optional<Tensor> q, k, v, out, lse, choice, lengths;
  std::optional<Expr> scale, cap;
  std::optional<SortedLists> lists;

  explicit Program(const BlockSparseKernel& instance) : c(instance), sequences(instance) {
    if (c.pack == 1) group.emplace("group");
    const Operand members = c.pack > 1 ? Operand(c.pack) : Operand(*group);
    const Extents batches = sequences.batches(), of_q = joined(batches, {sequences.queries, heads, members}),
                  of_k = joined(batches, {sequences.keys, heads});
    q.emplace(input("q", joined(of_q, {c.dim}), c.type));
    k.emplace(input("k", joined(of_k, {c.dim}), c.type));
    v.emplace(input("v", joined(of_k, {c.dim_v}), c.type));
    out.emplace(output("out", joined(of_q, {c.dim_v}), c.type));
    lse.emplace(output("lse", joined(batches, {heads, members, sequences.queries}), f32));
    const Extents rows{sequences.batch, heads, c.together ? Operand(1) : members, sequences.q_blocks};
    choice.emplace(input("choice", joined(rows, {entries}), c.mask ? boolean : i32));
    scale.emplace(scalar("scale", f32));
    if (c.softcap != ScoreCap::none) cap.emplace(scalar("cap", f32));
    if (c.counts) lengths.emplace(input("counts", rows, i32));
    sequences.declare();
  }

  void run() {
    if (c.listed && !c.ascending) make_lists();
    Expr all_heads = c.pack > 1 ? Expr(heads) : heads * *group;
    if (sequences.listed_blocks) return run_listed(all_heads);
    grid(sequences.most_blocks() * c.splits(), all_heads, sequences.batch, {.order = order()},
         [&](Index x, Index h, Index b) { block(x, h, b, {}); });
  }

  // A block for each tile that there is.
  void run_listed(const Expr& all_heads) {
    const PackedTiles& blocks = *sequences.listed_blocks;
    grid(blocks.count() * c.splits(), all_heads, 1, {.order = order()}, [&](Index x, Index h, Index) {
      Expr number = c.splits() == 1 ? Expr(x) : x / c.splits();
      const PackedTiles::Place place = blocks.place(number);
      block(c.splits() == 1 ? place.tile : place.tile * c.splits() + x % c.splits(), h, place.sequence,
            number);
    });
  }

  // Tiles that share a list run at the same time.
  Order order() const {
    if (c.causal)
      return later_first(c.varlen ? sequences.keys / max(sequences.batch, 1) : Expr(sequences.keys),
                         (c.dim + c.dim_v) * c.type.bits() / 8, c.pack > 1 ? Expr(Operand(1)) : Expr(*group));
    return c.together && c.pack == 1 ? Order::grouped(*c.together) : Order{};
  }
  ChoiceRow choice_row(const Expr& b, const Expr& kv_head, const Expr& member, const Expr& q_block) const {
    Expr length = c.counts ? clamp((*lengths)(b, kv_head, member, q_block), 0, entries) : Expr(entries);
    return {choice->slice(b, kv_head, member, q_block), length, c.mask};
  }
  // Heads of a group whose choices differ.
  Expr selectors() const { return c.pack > 1 || c.together ? Expr(Operand(1)) : Expr(*group); }
  void make_lists();
  SortedLists::List list_of(const Expr& b, const Expr& kv_head, const Expr& selector, const Expr& q_block,
                            const std::optional<Expr>& number) const;
  // `number` is that of its block of queries among those of all sequences, where they are listed.
  void block(const Expr& x, const Expr& h, const Expr& b, const std::optional<Expr>& number);
  void meet(Meeting& meeting, const ListEntry& list, const Expr& count) const;
  void meet_listed(Meeting& meeting, const SortedLists::List& list, const Expr& b) const;
  Expr masked_steps(const Expr& b) const;
};

// Where tiles of queries and of keys begin at multiples of the smaller, as many steps as the tile of queries
// is long. Without a causal mask, that in which the keys end.
Expr Program::masked_steps(const Expr& b) const {
  if (!c.causal) return select(sequences.keys_of(b) % c.keys == 0, 0, 1);
  const int steps = ceildiv(c.queries, c.keys), unit = std::min(c.queries, c.keys);
  const bool even = c.queries % unit == 0 && c.keys % unit == 0 && c.q_block % c.queries == 0;
  return even ? select(sequences.shift(b) % c.keys == 0, steps, steps + 1) : Expr(Operand(steps + 1));
}

void Program::make_lists() {
  auto row_of = [this](const Expr& b, const Expr& h, const Expr& x) -> SortedLists::Row {
    Expr queries = sequences.queries_of(b);
    Expr end = min(x * c.q_block + c.q_block, queries) + sequences.keys_of(b) - queries;
    return {choice_row(b, h / selectors(), h % selectors(), x), sequences.blocks_met(b, x, end)};
  };
  const auto of_number = [&](const Expr&, const Expr& h, const Expr& x) {
    const PackedTiles::Place place = sequences.listed_blocks->place(x);
    return row_of(place.sequence, h, place.tile);
  };
  if (sequences.listed_blocks)
    lists.emplace(Operand(1), heads * selectors(), sequences.listed_blocks->count(), entries, *c.listed,
                  of_number);
  else
    lists.emplace(sequences.batch, heads * selectors(), sequences.most_blocks(), entries, *c.listed, row_of);
  lists->record_grid();
}

SortedLists::List Program::list_of(const Expr& b, const Expr& kv_head, const Expr& selector,
                                   const Expr& q_block, const std::optional<Expr>& number) const {
  Expr head = kv_head * selectors() + selector;
  if (!c.ascending && number) return lists->list(Operand(0), head, *number);
  if (!c.ascending) return lists->list(b, head, q_block);
  const ChoiceRow row = choice_row(b, kv_head, selector, q_block);
  return {row.row, row.entries};
}

void Program::meet(Meeting& meeting, const ListEntry& list, const Expr& count) const {
  if (c.joins())
    meeting.add_joined(list, count);
  else if (c.gathers())
    meeting.add_gathered(list, count);
  else
    meeting.add_whole(list, count);
}

void Program::meet_listed(Meeting& meeting, const SortedLists::List& list, const Expr& b) const {
  if (!c.gathers()) {
    meeting.tail.emplace(
        blocks_in_question(c.causal, c.q_block, c.k_block, sequences.queries_of(b), sequences.keys_of(b)));
    const bool ends_in_block = c.causal || c.k_block > c.keys;
    if (ends_in_block && c.last_blocks() <= most_last_blocks) meeting.masked_steps.emplace(masked_steps(b));
  }
  meet(
      meeting, [&](const Expr& i) -> Expr { return list.blocks(i); }, list.count);
}

void Program::block(const Expr& x, const Expr& h, const Expr& b, const std::optional<Expr>& number) {
  sequences.assert_promise(b);
  Expr keys = sequences.keys_of(b), queries = sequences.queries_of(b);
  const OwnQueries own = own_queries(c, x, h, queries, group);
  const HeadViews of{sequences.rows(b).with_queries(own.rows()), own.kv_head,
                     c.pack > 1 ? Subscript(all) : Subscript(own.member)};
  Shared queries_tile({c.rows(), c.dim}, c.compute);
  load_queries(of.of_queries(*q), own.start(), queries_tile, c.pack);
  Fragment sum({c.rows(), c.dim_v}, f32, 0);
  OnlineSoftmax softmax(c.rows(), cap ? *cap * log2e : *scale);
  std::optional<Expr> right;
  if (c.causal) right.emplace(Operand(0));
  ScoreRange visible(own.first + keys - queries, c.queries, own.last - own.first, keys, std::nullopt, right);
  Meeting meeting{c, of.of_keys(*k), of.of_keys(*v), queries_tile, sum, softmax, visible, *scale, {}, {}};

  if (c.listed) {
    Expr selector = c.pack > 1 || c.together ? Expr(Operand(0)) : own.member;
    meet_listed(meeting, list_of(b, own.kv_head, selector, own.q_block, number), b);
  } else {
    const ChoiceRow chosen = choice_row(b, own.kv_head, own.member, own.q_block);
    Expr blocks = ceildiv(visible.end(), c.k_block);
    serial(ceildiv(blocks, c.chunk), [&](Index n) {
      Expr begin = n * c.chunk;
      Shared list({c.chunk}, i32);
      Var count = 0;
      list_blocks(chosen, begin, min(blocks, begin + c.chunk), list, count);
      meet(
          meeting, [&](const Expr& i) -> Expr { return list(i); }, count);
    });
  }
  softmax.normalize(sum);
  store_rows(sum, of.of_queries(*out), own.start(), c.pack);
  store_lse(softmax.lse(), of.vector(*lse), own.start(), c.pack);
}

}  // namespace

Kernel block_sparse_kernel(const BlockSparseKernel& instance) {
  return kernel(instance_name("block_sparse", instance), [&] { Program(instance).run(); });
}

}  // namespace tegula::ops
