#include "ops/nsa_compressed/compressed_backward.hpp"

#include "ops/pieces/gradient.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/split_sums.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Backward : CompressedProgram {
  const CompressedBackwardKernel& instance;
  Tensor v = input("v", of_entries(c.dim_v), c.type), dout = input("dout", of_queries(c.dim_v), c.type),
         out = input("out", of_queries(c.dim_v), c.type), lse = input("lse", vector(), f32),
         dq = output("dq", of_queries(c.dim), c.type), dk = output("dk", of_entries(c.dim), c.type),
         dv = output("dv", of_entries(c.dim_v), c.type), delta = workspace("delta", padded({}), f32),
         base = workspace("base", padded({}), f32);
  std::optional<Tensor> dlse, sum, dk_splits, dv_splits;
  LargeScores large;

  explicit Backward(const CompressedBackwardKernel& kernel)
      : CompressedProgram(kernel.heads), instance(kernel) {
    if (kernel.dlse) dlse.emplace(input("dlse", vector(), f32));
    if (kernel.one_pass) sum.emplace(workspace("sum", padded({c.features()}), f32));
    if (kernel.splits == 1) return;
    dk_splits.emplace(workspace("dk_parts", joined({kernel.splits}, of_entries(c.features())), f32));
    dv_splits.emplace(workspace("dv_parts", joined({kernel.splits}, of_entries(c.features_v())), f32));
  }

  // Rows that begin at multiples of 16 bytes, for the copy engine, whatever the length.
  Extents padded(const Extents& more) const {
    Extents result = vector();
    result.back() = ceildiv(queries, delta_rows) * delta_rows;
    return joined(result, more);
  }
  Tensor padded_vector_of(const Tensor& t, const CompressedSequence& s, const Expr& head) const {
    return c.packed ? vector_of(t, s, head)
                    : t.slice(s.batch, head, c.pack > 1 ? Subscript(all) : Subscript(0));
  }

  ScoreGradient gradient() const { return {scale, {}, large}; }
  GradientTiles tiles() const {
    return {.compute = c.compute,
            .dim = c.features(),
            .dim_v = c.features_v(),
            .pack = c.pack,
            .queries = c.queries,
            .keys = c.keys};
  }

  void run() {
    delta_grid();
    if (!instance.one_pass)
      grid(ceildiv(longest, c.queries), packs, sequences(), {.order = later_queries_first()},
           [&](Index x, Index h, Index b) { query_block(x * c.queries, h, sequence(b)); });
    // More queries see the first entries.
    GridOptions options;
    options.order = Order::heavy_first([](Index x, Index, Index) -> Expr { return -x; });
    Expr most_entries = c.packed ? longest / stride + 1 : Expr(entries);
    grid(ceildiv(most_entries, c.keys), kv_heads * instance.splits, sequences(), options,
         [&](Index x, Index h, Index b) {
           entry_block(x, h / instance.splits, h % instance.splits, sequence(b));
         });
    if (instance.one_pass) sum_grid();
    if (instance.splits > 1)
      sum_splits(*dk_splits, dk, c.features()), sum_splits(*dv_splits, dv, c.features_v());
  }

  void delta_grid() {
    grid(ceildiv(queries, delta_rows), packs * c.pack, batch, [&](Index x, Index h, Index b) {
      Expr head = h / c.pack, member = h % c.pack;
      auto tokens_of = [&](const Tensor& t) { return t.slice(b, all, head, member); };
      auto vector_of_head = [&](const Tensor& t) { return t.slice(b, head, member); };
      HeadRows rows{tokens_of(dout),
                    tokens_of(out),
                    vector_of_head(lse),
                    vector_of_head(delta),
                    vector_of_head(base),
                    {},
                    c.dim_v,
                    large};
      if (dlse) rows.dlse.emplace(vector_of_head(*dlse));
      write_delta(rows, x * delta_rows);
    });
  }

  void query_block(const Expr& first, const Expr& head, const CompressedSequence& s) {
    const EntrySight sight_of = sight_from(first, s);
    QueryGradient tile(tiles(), gradient(), queries_of(q, s, head), first);
    QueryGradient::Branch branch(tiles(), queries_of(dout, s, head), padded_vector_of(base, s, head),
                                 padded_vector_of(delta, s, head), first);
    const Tensor k_of = entries_of(k, s, head / packs_of_group()),
                 v_of = entries_of(v, s, head / packs_of_group());
    Expr least = sight_of.limit(first), most = sight_of.limit(first + c.queries - 1);
    pipelined(ceildiv(most, c.keys), {.stages = 2}, [&](Index j) {
      Shared k_tile({c.keys, c.features()}, c.compute), v_tile({c.keys, c.features_v()}, c.compute);
      copy(k_of.at(j * c.keys), k_tile);
      copy(v_of.at(j * c.keys), v_tile);
      tile.add(branch, k_tile, v_tile,
               {(j + 1) * c.keys > least, [&](const Expr& r, const Expr& n, const Expr& weight) {
                  return select(sight_of.sees(first + r / c.pack, j * c.keys + n), weight, 0);
                }});
    });
    tile.store(queries_of(dq, s, head), first);
  }

  // What the heads of a split of a group give tile x of the entries.
  void entry_block(const Expr& x, const Expr& kv_head, const Expr& split, const CompressedSequence& s) {
    Expr first = x * c.keys;
    if (c.packed) exit_if(first >= s.entries.end - s.entries.begin);
    KeyGradient tile(tiles(), gradient());
    tile.load(entries_of(k, s, kv_head), entries_of(v, s, kv_head), first);
    Expr each = ceildiv(packs_of_group(), instance.splits), begin = split * each;
    serial(range(begin, min(begin + each, packs_of_group())),
           [&](Index of_group) { add_head(tile, x, kv_head * packs_of_group() + of_group, s); });
    const auto results = [&](const Tensor& t, const std::optional<Tensor>& splits) {
      return entries_of(splits ? splits->slice(split) : t, s, kv_head);
    };
    tile.store(results(dk, dk_splits), results(dv, dv_splits), first);
  }

  // From the last queries down: all tiles of entries meet them at the same time, so that none waits long for
  // its turn.
  void add_head(KeyGradient& tile, const Expr& x, const Expr& head, const CompressedSequence& s) {
    const EntrySight sight_of = sight(s);
    Expr first = x * c.keys, begin = sight_of.first_query(first) / c.queries,
         end = ceildiv(sight_of.queries, c.queries);
    pipelined(range(begin, end), {.stages = 2}, [&](Index j) {
      Expr row = (begin + end - 1 - j) * c.queries;
      Shared q_tile({c.rows(), c.features()}, c.compute), dout_tile({c.rows(), c.features_v()}, c.compute);
      Shared base_of({c.rows()}, f32), delta_of({c.rows()}, f32);
      load_queries(queries_of(q, s, head), row, q_tile, c.pack);
      load_queries(queries_of(dout, s, head), row, dout_tile, c.pack);
      load_vector(padded_vector_of(base, s, head), row, base_of, c.pack);
      load_vector(padded_vector_of(delta, s, head), row, delta_of, c.pack);
      KeyGradient::Receiver receiver;
      if (sum)
        receiver = [&](const Fragment& contribution) {
          accumulate(sum->slice(s.batch, head, 0).at(row), contribution,
                     {.order = x, .consecutive = true, .overwrite = true});
        };
      // Queries after the last are zeros, whose weights only keys that nothing sees have not.
      tile.add(q_tile, dout_tile, base_of, delta_of,
               {sight_of.limit(row) < first + c.keys || row + c.queries > sight_of.queries,
                [&](const Expr& n, const Expr& t, const Expr& weight) {
                  Expr query = row + t / c.pack;
                  return select(sight_of.sees(query, first + n) && query < sight_of.queries, weight, 0);
                }},
               receiver);
    });
  }

  // The first tile of entries meets all queries that a later one does, and begins their sums.
  void sum_grid() {
    grid(ceildiv(queries, delta_rows), packs, batch, [&](Index x, Index h, Index b) {
      Expr begin = sight(sequence(b)).first_query(0) / c.queries,
           exists = entries > 0 && x * delta_rows / c.queries >= begin;
      finish_sum(sum->slice(b, h, 0), dq.slice(b, all, h, 0), x * delta_rows, c.features(),
                 gradient().factor(), exists);
    });
  }

  // In the order of the splits.
  void sum_splits(const Tensor& sums, const Tensor& to, int features) {
    grid(ceildiv(entries, delta_rows), kv_heads, batch, [&](Index x, Index h, Index b) {
      Fragment total({delta_rows, features}, f32, 0);
      add_splits(total, instance.splits,
                 [&](int split) { return sums.slice(split, b, all, h).at(x * delta_rows); });
      copy(total, to.slice(b, all, h).at(x * delta_rows));
    });
  }
};

}  // namespace

Kernel compressed_backward_program(const CompressedBackwardKernel& c) {
  return kernel(instance_name("nsa_compressed_attention_backward", c), [&] { Backward(c).run(); });
}

}  // namespace tegula::ops
