#include "ops/latent/indexer_kernel.hpp"

#include <algorithm>
#include <vector>

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

SeenKeys::SeenKeys(const Expr& batch, const Expr& all_queries, const Expr& all_keys, bool has_begins,
                   bool has_ends, bool causal)
    : queries(all_queries), keys(all_keys) {
  if (has_begins) begins.emplace(input("begins", {batch, queries}, i32));
  if (has_ends) ends.emplace(input("ends", {batch, queries}, i32));
  if (causal) offset.emplace(scalar("offset", i32));
}

Expr SeenKeys::count(const Expr& b) const { return lengths ? clamp((*lengths)(b), 0, keys) : keys; }

Expr SeenKeys::begin(const Expr& b, const Expr& query) const {
  return begins ? clamp((*begins)(b, query), 0, keys) : Expr(Operand(0));
}

Expr SeenKeys::end(const Expr& b, const Expr& query) const {
  Expr all = count(b), last = ends ? min((*ends)(b, query), all) : all;
  Expr seen = offset ? min(last, query + (lengths ? all - queries : *offset) + 1) : last;
  return select(query < queries, max(seen, 0), 0);
}

namespace {

struct IndexerProgram {
  const IndexerKernel& c;
  Dim batch{"batch"}, queries{"queries"}, keys{"keys"};
  Extents rows{batch, keys};  // of keys
  Tensor q = input("q", {batch, queries, c.heads, c.dim}, c.type);
  Tensor weights = input("weights", {batch, queries, c.heads}, c.weights);
  Tensor logits = output("logits", {batch, queries, keys}, f32);
  Expr splits = scalar("parts", i32);
  std::optional<Tensor> k, scales, table;
  SeenKeys seen{batch, queries, keys, c.begins, c.ends, c.causal};

  explicit IndexerProgram(const IndexerKernel& instance) : c(instance) {
    if (c.form.paged) {
      Dim pages("pages"), width("table_width");
      rows = {pages, c.form.page > 0 ? Operand(c.form.page) : Operand(Dim("page_size"))};
      table.emplace(input("block_table", {batch, width}, i32));
    }
    if (c.form.lengths) seen.lengths.emplace(input("cache_seqlens", {batch}, i32));
    k.emplace(input("k", {rows[0], rows[1], c.dim}, c.type));
    if (c.scales) scales.emplace(input("k_scales", rows, f32));
  }

  void run() {
    const bool multiplies_by_groups = c.compute.bits() <= 16;
    grid(splits, ceildiv(queries, c.queries), batch, {.threads = multiplies_by_groups ? 256 : 0},
         [&](Index split, Index y, Index b) { block(b, y * c.queries, split); });
  }
  void block(const Expr& b, const Expr& first, const Expr& split);
  void step(const Expr& b, const Expr& first, const Expr& key, const std::vector<Shared>& own,
            const Shared& weight, const Shared& from, const Shared& to, const CacheRows& rows_of);
  void leave_out(const Expr& b, const Expr& query, const Expr& begin, const Expr& end);
};

// Keys that a query does not see: −∞.
void IndexerProgram::leave_out(const Expr& b, const Expr& query, const Expr& begin, const Expr& end) {
  Tensor row = logits.slice(b, query);
  parallel(max(end - begin, 0), [&](Index n) { row(begin + n) = -inf; });
}

void IndexerProgram::block(const Expr& b, const Expr& first, const Expr& split) {
  std::vector<Shared> own;
  Shared weight({c.queries, c.tile_heads}, f32), from({c.queries}, i32), to({c.queries}, i32);
  for (int i = 0; i < c.queries; ++i) {
    const int row = i % c.together * c.tile_heads;
    if (row == 0)
      own.emplace_back(std::initializer_list<int>{c.together * c.tile_heads, c.tile_features}, c.compute);
    copy(q.slice(b, first + i).at(0, 0), own.back().slice(range(row, row + c.tile_heads), all));
  }
  copy(weights.slice(b).at(first, 0), weight);
  if (seen.lengths)
    assert_that((*seen.lengths)(b) <= keys, cache_is_too_short);
  const CacheRows rows_of(c.form, b, seen.count(b), table);
  Var low = keys, high = 0;
  for (int i = 0; i < c.queries; ++i) {
    Expr begin = seen.begin(b, first + i), end = seen.end(b, first + i);
    from(i) = begin;
    to(i) = end;
    when(begin < end, [&] {
      low = min(low, begin);
      high = max(high, end);
    });
  }
  Expr steps = ceildiv(keys, c.keys), each = ceildiv(steps, splits), last = min(steps, (split + 1) * each);
  Expr begin = clamp(low / c.keys, split * each, last), end = clamp(ceildiv(high, c.keys), begin, last);
  pipelined(range(begin, end), {.stages = 3},
            [&](Index j) { step(b, first, j * c.keys, own, weight, from, to, rows_of); });
  for (int i = 0; i < c.queries; ++i)
    when(first + i < queries, [&] {
      leave_out(b, first + i, min(split * each * c.keys, keys), min(begin * c.keys, keys));
      leave_out(b, first + i, min(end * c.keys, keys), min(last * c.keys, keys));
    });
}

// Keys are the rows of the product, so that a thread adds up the heads that it has itself.
void IndexerProgram::step(const Expr& b, const Expr& first, const Expr& key, const std::vector<Shared>& own,
                          const Shared& weight, const Shared& from, const Shared& to,
                          const CacheRows& rows_of) {
  Shared tile({c.keys, c.tile_features}, c.compute);
  const CacheRows::Step keys_of(rows_of, key, c.keys, *k);
  keys_of.load(*k, {}, 0, tile, c.form.lengths);
  std::optional<Shared> scale;
  if (scales) {
    scale.emplace(Shared({c.keys}, f32));
    if (c.form.paged)
      parallel(*scale, [&](Index t) {
        const auto [page, row] = keys_of.place(t);
        (*scale)(t) = (*scales)(page, row);
      });
    else
      copy(scales->slice(b).at(key), *scale);
  }
  const auto store = [&](const auto& query, const Index& n, const auto& sum) {
    Expr at = key + n, value = scale ? sum() * (*scale)(n) : sum();
    when(first + query < queries && at < keys, [&] {
      Operand is_seen = at >= from(query) && at < to(query);
      if (c.form.paged) is_seen = is_seen && keys_of.is_there(n);
      logits(b, first + query, at) = select(is_seen, value, -inf);
    });
  };
  for (int i = 0; i < c.queries; i += c.together) {
    Fragment s({c.keys, c.together * c.tile_heads}, f32, 0);
    gemm(tile, own[static_cast<std::size_t>(i / c.together)].T(), s);
    if (c.together == 1) {
      parallel(s, [&](Index n, Index h) { s(n, h) = max(s(n, h), 0) * weight(i, h); });
      Fragment sum = reduce_sum(s, 1);
      parallel(sum, [&](Index n) { store(i, n, [&] { return sum(n); }); });
      continue;
    }
    Fragment splits = s.reshape({c.keys, c.together, c.tile_heads});
    parallel(splits, [&](Index n, Index x, Index h) {
      splits(n, x, h) = max(splits(n, x, h), 0) * weight(i + x, h);
    });
    Fragment sum = reduce_sum(splits, 2);
    parallel(sum, [&](Index n, Index x) { store(Expr(i + x), n, [&] { return sum(n, x); }); });
  }
}

}  // namespace

Kernel indexer_kernel(const IndexerKernel& c) {
  return kernel(instance_name("indexer_logits", c), [&] { IndexerProgram(c).run(); });
}

}  // namespace tegula::ops
