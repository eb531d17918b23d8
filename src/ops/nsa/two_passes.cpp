// The two passes of the gradients. Over queries: dq, and the gradient of a scale for every selection. Over
// keys: the lists inverted, dk and dv.
#include <memory>
#include <optional>

#include "ops/lists/union.hpp"
#include "ops/nsa/backward.hpp"
#include "ops/nsa/scale_gradient.hpp"
#include "ops/pieces/key_pass.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/views.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// The tensors of one result: the selected blocks, or the window.
struct NsaBranch {
  std::optional<Tensor> dout, out, lse, dlse, delta, base;
};

class NsaBackwardProgram {
 public:
  explicit NsaBackwardProgram(const NsaBackwardKernel& instance);
  void run();

 private:
  Operand members() const { return f.pack > 1 ? Operand(f.pack) : Operand(*group); }
  Operand selectors() const { return c.per_query_head ? members() : Operand(1); }
  Expr sequences() const { return f.varlen ? q_begin->extent(0) - 1 : Expr(*batch); }
  ScoreGradient gradient() const { return {*scale, std::nullopt, *large}; }
  // No longer than promised, so that all grids count the same tokens.
  SequenceRows rows_of(const Expr& b) const {
    if (!f.varlen) return {b, queries, keys};
    SequenceRows rows(b, *q_begin, *k_begin);
    Expr q_end = min(rows.queries.end, Expr(rows.queries.begin) + *longest_q),
         k_end = min(rows.keys.end, Expr(rows.keys.begin) + *longest_k);
    return SequenceRows(b, range(rows.queries.begin, q_end), range(rows.keys.begin, k_end), true);
  }
  // Call this in a block that no other block waits for or reads from.
  void assert_promise(const Expr& b) const {
    if (!f.varlen) return;
    assert_queries((*q_begin)(b + 1) - (*q_begin)(b), *longest_q);
    assert_keys((*k_begin)(b + 1) - (*k_begin)(b), *longest_k);
  }
  Selection selection_of(const SequenceRows& rows, const Expr& kv_head, const Expr& selector) const;

  void declare_window(const Extents& of_out, const Extents& vector);
  void delta_grid();
  InverseLists inverted_lists() const;
  void query_block(const Index& x, const Index& h, const Index& b);
  // A tile of queries, of one head or of those of a group.
  struct QueryRows {
    HeadViews of;
    QueryGradient sums;
    QueryGradient::Branch branch;

    QueryRows(const NsaBackwardProgram& p, const HeadViews& views, const Expr& first)
        : of(views),
          sums(p.c.query_tiles(), p.gradient(), views.of_queries(*p.q), first),
          branch(p.branch_of(p.own, views, first)) {}
  };
  QueryGradient::Branch branch_of(const NsaBranch& branch, const HeadViews& of, const Expr& first) const {
    return {c.query_tiles(), of.of_queries(*branch.dout), of.vector(*branch.base), of.vector(*branch.delta),
            first};
  }
  void meet_blocks(QueryRows& rows, const TokenTile& tokens, UnionList& chosen,
                   std::optional<ScaleGradient>& scales) const;
  ScoreGradient::Mask key_mask(const BlockTile& tile, const TokenTile& tokens, UnionList& chosen) const;
  void add_window(QueryGradient& sums, const HeadViews& of, const TokenTile& tokens) const;
  void key_block(const Index& x, const Index& h, const Index& b);
  QueryTensors queries_of(const NsaBranch& branch, const HeadViews& of) const {
    return {of.of_queries(*q), of.of_queries(*branch.dout), of.vector(*branch.base),
            of.vector(*branch.delta)};
  }
  MaskOfStep query_mask(const Selection& selection, const Expr& first_key, const Expr& number,
                        const Expr& shift) const;
  void add_window(KeyGradient& sums, const HeadViews& of, const Expr& first, const Expr& end,
                  const Expr& shift) const;

  const NsaBackwardKernel& c;
  const NsaKernel& f;
  std::optional<Dim> batch, group;  // group: of query heads, where they do not share tiles
  Dim queries{"tokens"}, keys{"keys"}, heads{"kv_heads"}, entries{"entries"};
  std::optional<Tensor> q, k, v, dq, dk, dv, choice, lengths, dscale, q_begin, k_begin;
  NsaBranch own, beside;
  std::optional<LargeScores> large;  // of both
  std::optional<Expr> scale, left, longest_q, longest_k;
  std::optional<InverseLists> inverse;
};

NsaBackwardProgram::NsaBackwardProgram(const NsaBackwardKernel& instance) : c(instance), f(c.forward) {
  if (f.pack == 1) group.emplace("group");
  if (!f.varlen) batch.emplace("batch");
  const Extents batches = f.varlen ? Extents{} : Extents{*batch};
  const Extents of_q = joined(batches, {queries, heads, members()}), of_k = joined(batches, {keys, heads}),
                vector = joined(batches, {heads, members(), queries}),
                rows = joined(batches, {queries, heads, selectors()});
  own.dout.emplace(input("dout", joined(of_q, {f.dim_v}), f.type));
  q.emplace(input("q", joined(of_q, {f.dim}), f.type));
  k.emplace(input("k", joined(of_k, {f.dim}), f.type));
  v.emplace(input("v", joined(of_k, {f.dim_v}), f.type));
  own.out.emplace(input("out", joined(of_q, {f.dim_v}), f.type));
  own.lse.emplace(input("lse", vector, f32));
  dq.emplace(output("dq", joined(of_q, {f.dim}), f.type));
  dk.emplace(output("dk", joined(of_k, {f.dim}), f.type));
  dv.emplace(output("dv", joined(of_k, {f.dim_v}), f.type));
  choice.emplace(input("choice", joined(rows, {entries}), i32));
  scale.emplace(scalar("scale", f32));
  require(entries <= f.entries, "a row has no more entries than the instance");
  if (f.counts) lengths.emplace(input("counts", rows, i32));
  if (c.dlse) own.dlse.emplace(input("dlse", vector, f32));
  own.delta.emplace(workspace("delta", vector, f32));
  own.base.emplace(workspace("base", vector, f32));
  large.emplace();
  if (c.window) declare_window(joined(of_q, {f.dim_v}), vector);
  if (c.dscale) dscale.emplace(output("dscale", joined(rows, {entries}), f32));
  if (!f.varlen) return;
  Dim fences("fences");
  q_begin.emplace(input("q_begin", {fences}, i32));
  k_begin.emplace(input("k_begin", {fences}, i32));
  longest_q.emplace(scalar("longest_q", i32));
  longest_k.emplace(scalar("longest_k", i32));
}

void NsaBackwardProgram::declare_window(const Extents& of_out, const Extents& vector) {
  beside.dout.emplace(input("window_dout", of_out, f.type));
  beside.out.emplace(input("window_out", of_out, f.type));
  beside.lse.emplace(input("window_lse", vector, f32));
  left.emplace(scalar("left", i32));
  if (c.window_dlse) beside.dlse.emplace(input("window_dlse", vector, f32));
  beside.delta.emplace(workspace("window_delta", vector, f32));
  beside.base.emplace(workspace("window_base", vector, f32));
}

void NsaBackwardProgram::run() {
  inverse.emplace(inverted_lists());
  inverse->record_count();
  inverse->record_begins();
  delta_grid();  // beside the one before
  inverse->record_rows();
  Expr most_queries = f.varlen ? *longest_q : Expr(queries), most_keys = f.varlen ? *longest_k : Expr(keys);
  grid(ceildiv(most_queries, f.queries), f.pack > 1 || c.heads_one_by_one() ? Expr(heads) : heads * *group,
       sequences(), [&](Index x, Index h, Index b) { query_block(x, h, b); });
  const int tiles = ceildiv(f.block, c.keys);
  grid(ceildiv(most_keys, f.block) * tiles, heads, sequences(),
       [&](Index x, Index h, Index b) { key_block(x, h, b); });
}

void NsaBackwardProgram::delta_grid() {
  Expr batches = f.varlen ? Expr(Operand(1)) : Expr(*batch);
  grid(ceildiv(queries, delta_rows), heads * members(), batches, [&](Index x, Index h, Index b) {
    const HeadViews of{SequenceRows(b, range(0, queries), range(0, keys), f.varlen), h / members(),
                       Subscript(h % members())};
    const auto write = [&](const NsaBranch& branch) {
      HeadRows rows{of.of_queries(*branch.dout),
                    of.of_queries(*branch.out),
                    of.vector(*branch.lse),
                    of.vector(*branch.delta),
                    of.vector(*branch.base),
                    {},
                    f.dim_v,
                    *large};
      if (branch.dlse) rows.dlse.emplace(of.vector(*branch.dlse));
      write_delta(rows, x * delta_rows);
    };
    write(own);
    if (c.window) write(beside);
  });
}

Selection NsaBackwardProgram::selection_of(const SequenceRows& rows, const Expr& kv_head,
                                           const Expr& selector) const {
  return selection_of_head({rows, kv_head, Subscript(selector)}, *choice, lengths);
}

ScoreGradient::Mask NsaBackwardProgram::key_mask(const BlockTile& tile, const TokenTile& tokens,
                                                 UnionList& chosen) const {
  std::optional<Expr> partial;
  if (!f.has_times() && !tile.row_of)
    partial.emplace(tile.ragged() || tile.first + f.keys > tokens.limit(Operand(0)));
  return {partial, [=, this, &chosen](const Expr& r, const Expr& t, const Expr& weight) {
            Expr token = r / f.pack, key = tile.row(t);
            Expr sees = tile.counts(key) && key < tokens.limit(token);
            if (!f.has_times()) return select(sees, weight, 0);
            Expr times = chosen.times(tile.place(t), token);
            return select(sees && times > 0, f.repeats ? weight * f32(times) : weight, 0);
          }};
}

void NsaBackwardProgram::query_block(const Index& x, const Index& h, const Index& b) {
  const bool whole_group = f.pack > 1 || c.heads_one_by_one();
  Expr kv_head = whole_group ? Expr(h) : h / *group, member = whole_group ? Expr(Operand(0)) : h % *group;
  HeadViews of{rows_of(b), kv_head, f.pack > 1 ? Subscript(all) : Subscript(member)};
  TokenTile tokens{f.selected(), x * f.queries, of.of_queries(*q).extent(0), of.of_keys(*k).extent(0)};
  assert_promise(b);
  if (f.varlen) exit_if(tokens.first >= tokens.count);
  std::optional<QueryRows> own_rows;
  if (!c.heads_one_by_one()) own_rows.emplace(*this, of, tokens.first);
  Expr selector = c.per_query_head ? member : Expr(Operand(0));
  Selection selection = selection_of(of.rows, kv_head, selector);
  UnionList chosen(tokens, selection);
  std::optional<ScaleGradient> scales;
  if (c.dscale) scales.emplace(f, chosen);
  if (own_rows)
    meet_blocks(*own_rows, tokens, chosen, scales);
  else
    serial(*group, [&](Index member) {
      QueryRows rows(*this, {of.rows, kv_head, Subscript(member)}, tokens.first);
      meet_blocks(rows, tokens, chosen, scales);
    });
  if (!c.dscale) return;
  HeadViews rows{of.rows, kv_head, Subscript(selector)};
  scales->write(tokens, selection, rows.of_queries(*dscale), gradient().factor());
}

void NsaBackwardProgram::meet_blocks(QueryRows& rows, const TokenTile& tokens, UnionList& chosen,
                                     std::optional<ScaleGradient>& scales) const {
  Tensor k_of = rows.of.of_keys(*k), v_of = rows.of.of_keys(*v);
  walk_blocks(
      f.tiles(), [&](const Expr& n) { return chosen.block(n); }, chosen.count(),
      [&](const BlockTile& tile) {
        Shared k_tile({f.keys, f.dim}, f.compute), v_tile({f.keys, f.dim_v}, f.compute);
        tile.load(k_of, k_tile);
        tile.load(v_of, v_tile);
        QueryGradient::Observer observer;
        if (c.dscale)
          observer = [&](const Fragment& scores, const Fragment& gradients) {
            scales->add(tile, scores, gradients);
          };
        rows.sums.add(rows.branch, k_tile, v_tile, key_mask(tile, tokens, chosen), observer);
      });
  if (c.window) add_window(rows.sums, rows.of, tokens);
  rows.sums.store(rows.of.of_queries(*dq), tokens.first);
}

void NsaBackwardProgram::add_window(QueryGradient& sums, const HeadViews& of, const TokenTile& tokens) const {
  const QueryGradient::Branch branch = branch_of(beside, of, tokens.first);
  Tensor k_of = of.of_keys(*k), v_of = of.of_keys(*v);
  ScoreRange visible(tokens.position(Operand(0)), f.queries, tokens.count - tokens.first, tokens.keys, *left,
                     Expr(Operand(0)));
  pipelined(visible.tiles(f.keys), {.stages = 2}, [&](Index j) {
    Shared k_tile({f.keys, f.dim}, f.compute), v_tile({f.keys, f.dim_v}, f.compute);
    copy(k_of.at(j * f.keys), k_tile);
    copy(v_of.at(j * f.keys), v_tile);
    sums.add(branch, k_tile, v_tile,
             {visible.is_partial(j * f.keys, f.keys), [&](const Expr& r, const Expr& t, const Expr& weight) {
                return select(visible.sees(r / f.pack, j * f.keys + t), weight, 0);
              }});
  });
}

InverseLists NsaBackwardProgram::inverted_lists() const {
  const int rows = c.chunk;
  Expr width = entries + (f.diagonal ? 1 : 0);
  Expr fences = f.varlen ? q_begin->extent(0) : Expr(*batch);
  const InverseExtents extents{rows,
                               heads * selectors(),
                               sequences(),
                               f.varlen ? *longest_q : Expr(queries),
                               ceildiv(f.varlen ? *longest_k : Expr(keys), f.block),
                               f.varlen ? queries / rows + fences : *batch * ceildiv(queries, rows),
                               f.varlen ? keys / f.block + fences : *batch * ceildiv(keys, f.block),
                               f.varlen ? queries * width : *batch * queries * width};
  return {1, extents, [=, this](const Expr& h, const Expr& b) -> InverseOwner {
            SequenceRows of = rows_of(b);
            Expr q_first = f.varlen ? Expr(of.queries.begin) : b * queries;
            Expr count = of.queries.end - of.queries.begin, keys_of = of.keys.end - of.keys.begin;
            Expr blocks = ceildiv(keys_of, f.block);
            Selection selection = selection_of(of, h / selectors(), h % selectors());
            auto each = [=, this](const Expr& row, const InverseOwner::Visit& visit) {
              Expr position = row + keys_of - count;
              Expr last = f.causal ? floordiv(position, f.block) : blocks - 1;
              serial(selection.length(row), [&](Index n) {
                Expr block = selection.choice(row, n);
                visit(select(block <= last, block, -1));
              });
              if (f.diagonal) visit(select(position >= 0, position / f.block, -1));
            };
            // Rounded down and one more for each sequence before: sequences do not meet.
            return {count,
                    blocks,
                    f.varlen ? of.queries.begin / rows + b : b * ceildiv(queries, rows),
                    f.varlen ? of.keys.begin / f.block + b : b * ceildiv(keys, f.block),
                    q_first * width,
                    each,
                    blocks};
          }};
}

MaskOfStep NsaBackwardProgram::query_mask(const Selection& selection, const Expr& first_key,
                                          const Expr& number, const Expr& shift) const {
  const bool always = f.repeats || c.queries > 1;
  return [=, this](const BlockTile& step) -> ScoreGradient::Mask {
    std::optional<Expr> partial;
    if (!always) partial.emplace(f.causal ? first_key + (c.keys - 1) > step.first + shift : Expr(false));
    auto sees = [=, this](const Expr& r, const Expr& query) {
      return f.causal ? step.counts(query) && first_key + r - shift <= query : step.counts(query);
    };
    if (!f.repeats)
      return {partial, [=, this](const Expr& r, const Expr& column, const Expr& weight) {
                return select(sees(r, step.row(column / f.pack)), weight, 0);
              }};
    auto times = std::make_shared<Shared>(std::initializer_list<int>{c.queries}, f32);
    parallel(*times, [&](Index n) {
      Expr query = step.row(n);
      Var sum = 0;
      when(step.counts(query), [&] {
        serial(selection.length(query),
               [&](Index e) { sum += select(selection.choice(query, e) == number, 1, 0); });
        if (f.diagonal) sum += select((query + shift) / f.block == number && query + shift >= 0, 1, 0);
      });
      (*times)(n) = f32(sum);
    });
    return {partial, [=, this](const Expr& r, const Expr& column, const Expr& weight) {
              Expr query = column / f.pack;
              return select(sees(r, step.row(query)), weight * (*times)(query), 0);
            }};
  };
}

void NsaBackwardProgram::key_block(const Index& x, const Index& h, const Index& b) {
  const int tiles = ceildiv(f.block, c.keys);
  Expr number = tiles == 1 ? Expr(x) : x / tiles;
  Expr first = tiles == 1 ? number * f.block : number * f.block + x % tiles * c.keys;
  SequenceRows rows = rows_of(b);
  Expr keys_of = rows.keys.end - rows.keys.begin, count = rows.queries.end - rows.queries.begin;
  Expr end = min(number * f.block + f.block, keys_of), shift = keys_of - count;
  assert_promise(b);
  exit_if(first >= end);
  // No later row is read or written.
  HeadViews of_keys{rows.with_keys(end), h, all};
  KeyGradient sums(c.key_tiles(), gradient());
  sums.load(of_keys.of_keys(*k), of_keys.of_keys(*v), first);
  auto add_members = [&](const Subscript& member, const Expr& selector) {
    HeadViews of{rows, h, member};
    InverseLists::List list = inverse->list(h * selectors() + selector, b, number);
    add_list(sums, c.key_tiles(), list, {1, c.queries}, queries_of(own, of),
             query_mask(selection_of(rows, h, selector), first, number, shift));
    if (c.window) add_window(sums, of, first, end, shift);
  };
  if (f.pack > 1)
    add_members(Subscript(all), Expr(Operand(0)));
  else
    serial(*group, [&](Index member) {
      add_members(Subscript(member), c.per_query_head ? Expr(member) : Expr(Operand(0)));
    });
  sums.store(of_keys.of_keys(*dk), of_keys.of_keys(*dv), first);
}

void NsaBackwardProgram::add_window(KeyGradient& sums, const HeadViews& of, const Expr& first,
                                    const Expr& end, const Expr& shift) const {
  // Seen from a key, the window is the other way round.
  ScoreRange visible(first - shift, c.keys, end - first, of.of_queries(*q).extent(0), Expr(Operand(0)),
                     *left);
  pipelined(visible.tiles(c.queries), {.stages = 2}, [&](Index j) {
    Expr row = j * c.queries;
    QueryTile tile(c.key_tiles());
    tile.load(queries_of(beside, of), row, f.pack);
    sums.add(tile.q, tile.dout, tile.base, tile.delta,
             {visible.is_partial(row, c.queries), [&](const Expr& r, const Expr& column, const Expr& weight) {
                return select(visible.sees(r, row + column / f.pack), weight, 0);
              }});
  });
}

}  // namespace

Kernel nsa_backward_kernel(const NsaBackwardKernel& instance) {
  return kernel(instance_name("nsa", instance), [&] { NsaBackwardProgram(instance).run(); });
}

}  // namespace tegula::ops
