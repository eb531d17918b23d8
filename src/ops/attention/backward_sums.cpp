// What the gradients of attention add up before and behind the products: delta, parts of sums, sinks.
#include "ops/attention/backward_program.hpp"
#include "ops/pieces/softmax.hpp"
#include "ops/pieces/split_sums.hpp"

namespace tegula::ops::backward {

constexpr int sink_rows = 1024;  // of a step of the sum over queries

void BackwardProgram::delta_grid() {
  Expr batches = c.varlen ? Expr(Operand(1)) : Expr(*batch);
  grid(ceildiv(*queries, delta_rows), heads * members(), batches, [&](Index x, Index h, Index b) {
    Expr kv_head = h / members(), member = h % members();
    auto tokens = [&](const Tensor& t) {
      return c.varlen ? t.slice(all, kv_head, member) : t.slice(b, all, kv_head, member);
    };
    auto vector = [&](const Tensor& t) {
      return c.varlen ? t.slice(kv_head, member) : t.slice(b, kv_head, member);
    };
    HeadRows rows{tokens(*dout), tokens(*out), vector(*lse), vector(*delta),
                  vector(*base), {},           c.dim_v,      *large};
    if (dlse) rows.dlse.emplace(vector(*dlse));
    write_delta(rows, x * delta_rows);
  });
}

// The later grids work on rows of more features.
void BackwardProgram::copy_rows() {
  const auto copied = [&](std::optional<Tensor>& tensor, const char* name, int features) {
    const Tensor rows = with_features(name, *tensor, features);
    copy_features(*tensor, rows, features, !c.varlen);
    tensor.emplace(rows);
  };
  copied(q, "q_rows", c.features());
  copied(k, "k_rows", c.features());
  copied(v, "v_rows", c.features_v());
  copied(dout, "dout_rows", c.features_v());
  dq.emplace(with_features("dq_rows", *dq, c.features()));
  dk.emplace(with_features("dk_rows", *dk, c.features()));
  dv.emplace(with_features("dv_rows", *dv, c.features_v()));
}

// In the order of the shares.
void BackwardProgram::sum_shares() {
  grid(ceildiv(*queries, delta_rows), heads * members(), *batch, [&](Index x, Index h, Index b) {
    Expr kv_head = h / members(), member = h % members(), row = x * delta_rows;
    Fragment rows("rows", {delta_rows, c.features()}, f32, 0);
    add_splits(rows, c.shares, [&](int part) { return sum->slice(part).slice(b, kv_head, member).at(row); });
    parallel(rows, [&](Index i, Index j) { rows(i, j) *= gradient().factor(); });
    copy(rows, dq->slice(b, all, kv_head, member).at(row));
  });
}

void BackwardProgram::sum_grid() {
  if (c.shares) return sum_shares();
  Expr batches = c.varlen ? Expr(Operand(1)) : Expr(*batch);
  grid(ceildiv(*queries, delta_rows), heads * members(), batches, [&](Index x, Index h, Index b) {
    Expr kv_head = h / members(), member = h % members();
    Tensor from = c.varlen ? sum->slice(kv_head, member) : sum->slice(b, kv_head, member);
    Tensor to = c.varlen ? dq->slice(all, kv_head, member) : dq->slice(b, all, kv_head, member);
    Expr row = x * delta_rows;
    std::optional<Expr> exists;
    if (starts_uncleared()) {
      // The first block of keys that a tile of queries could see meets it, or none does.
      Expr first = first_seen(row / c.queries * c.queries, *queries, *keys) * c.keys;
      Range met = seen_from(first, *queries, *keys).tiles(c.queries);
      exists.emplace(*keys > first && row / c.queries >= met.begin && row / c.queries < met.end);
    }
    finish_sum(from, to, row, c.features(), gradient().factor(), exists);
  });
}

// In the order of the splits. Threads hold half as many rows of more than 256 features.
void BackwardProgram::sum_splits(const Tensor& sums, const Tensor& to, int features) {
  constexpr int most_features = 256;
  const int rows = features > most_features ? delta_rows / 2 : delta_rows;
  Expr batches = c.varlen ? Expr(Operand(1)) : Expr(*batch);
  grid(ceildiv(*keys, rows), heads, batches, [&](Index x, Index h, Index b) {
    auto tokens = [&](const Tensor& t) { return c.varlen ? t.slice(all, h) : t.slice(b, all, h); };
    Fragment sum("sum", {rows, features}, f32, 0);
    add_splits(sum, c.splits, [&](int split) { return tokens(sums.slice(split)).at(x * rows); });
    copy(sum, tokens(to).at(x * rows));
  });
}

// A sink's share of a row's sum is exp(sink − lse), and its gradient −share · delta.
void BackwardProgram::sink_grid() {
  grid(heads, members(), [&](Index kv_head, Index member) {
    Expr sink = (*sinks)(kv_head, member);
    Fragment sums("sums", {sink_rows}, f32, 0);
    serial(c.varlen ? Expr(Operand(1)) : Expr(*batch), [&](Index b) {
      auto vector = [&](const Tensor& t) {
        return c.varlen ? t.slice(kv_head, member) : t.slice(b, kv_head, member);
      };
      Tensor lse_of = vector(*lse), delta_of = vector(*delta);
      serial(ceildiv(*queries, sink_rows), [&](Index n) {
        Fragment row_lse = load(lse_of.at(n * sink_rows), {sink_rows}),
                 row_delta = load(delta_of.at(n * sink_rows), {sink_rows});
        parallel(sums, [&](Index i) {
          Expr share = select(sink == inf, 1, exp2((sink - row_lse(i)) * log2e));
          Expr counts = n * sink_rows + i < *queries && sink != -inf;
          sums(i) -= select(counts, share * row_delta(i), 0);
        });
      });
    });
    (*dsinks)(kv_head, member) = reduce_sum(sums).scalar();
  });
}

}  // namespace tegula::ops::backward
