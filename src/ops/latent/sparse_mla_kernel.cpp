#include "ops/latent/sparse_mla_kernel.hpp"

#include <functional>

#include "ops/latent/rows.hpp"
#include "ops/pieces/scores.hpp"
#include "ops/pieces/softmax.hpp"
#include "ops/pieces/splits.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// Rows, and the lists that name them.
struct ListedRows {
  LatentTensor kv;
  Tensor indices;
  std::optional<Tensor> counts;
  Expr keys, entries;
};

// Of a list: the numbers of a step's rows are in `listed` from `at` on.
using Step = std::function<void(const Index& j, const Shared& listed, const Expr& at)>;

// Numbers come with their step, or for many steps together.
void each_step(const SparseMlaKernel& c, const Tensor& list, const Expr& begin, const Expr& end,
               const Step& step) {
  if (!c.numbers_ahead)
    return pipelined(range(begin, end), {.stages = 2}, [&](Index j) {
      Shared listed({c.keys}, i32);
      copy(list.at(j * c.keys), listed);
      step(j, listed, 0);
    });
  constexpr int numbers_of_part = 2048;
  const int steps_of_part = numbers_of_part / c.keys;
  pipelined(ceildiv(end - begin, steps_of_part), {.stages = 2}, [&](Index part) {
    Expr first = begin + part * steps_of_part;
    Shared listed({numbers_of_part}, i32);
    copy(list.at(first * c.keys), listed);
    pipelined(range(first, min(end, first + steps_of_part)), {.stages = 2},
              [&](Index j) { step(j, listed, (j - first) * c.keys); });
  });
}

struct MlaProgram {
  const SparseMlaKernel& c;
  Dim batch{"batch"}, queries{"queries"}, keys{"keys"}, kv_heads{"kv_heads"}, group{"group"},
      entries{"entries"};
  LatentTensor q = LatentTensor::input("q", {batch, queries, kv_heads, group}, c.dim, c.dim_v, c.type, c.off);
  ListedRows first = listed("kv", "indices", keys, entries);
  Tensor out = output("out", {batch, queries, kv_heads, group, c.dim_v}, c.type);
  Tensor lse = output("lse", {batch, queries, kv_heads, group}, f32);
  Expr scale = scalar("scale", f32);
  std::optional<Expr> offset, splits;
  std::optional<Tensor> sinks;
  std::optional<ListedRows> second;
  std::optional<SplitResults> results;

  explicit MlaProgram(const SparseMlaKernel& instance) : c(instance) {
    if (c.causal) offset.emplace(scalar("offset", i32));
    if (c.counts) first.counts.emplace(input("counts", {batch, queries, kv_heads}, i32));
    if (c.sinks) sinks.emplace(input("sinks", {kv_heads, group}, *c.sinks));
    if (c.more) {
      Dim more_keys("more_keys"), more_entries("more_entries");
      second.emplace(listed("more", "more_indices", more_keys, more_entries));
    }
    if (!c.split) return;
    splits.emplace(scalar("splits", i32));
    results.emplace(batch * queries, kv_heads * group, *splits * (c.more ? 2 : 1), c.dim_v);
  }

  ListedRows listed(const std::string& rows, const char* lists, const Expr& count, const Expr& length) const {
    return {LatentTensor::input(rows, {batch, count, kv_heads}, c.dim, c.dim_v, c.type),
            input(lists, {batch, queries, kv_heads, length}, i32),
            {},
            count,
            length};
  }
  void run();
  void attend(const ListedRows& source, const Expr& first_result);
  void block(const ListedRows& source, const Expr& b, const Expr& query, const Expr& h, const Expr& row,
             const Expr& split, const Expr& number);
  void store(const Expr& b, const Expr& query, const Expr& h, const Expr& row, const Expr& number,
             OnlineSoftmax& softmax, Fragment& acc);
  void merge();
};

void MlaProgram::run() {
  attend(first, 0);
  if (second) attend(*second, *splits);
  if (results) merge();
}

// Blocks of the heads of one query stand side by side: they read the same rows.
void MlaProgram::attend(const ListedRows& source, const Expr& first_result) {
  Expr blocks = ceildiv(group, c.rows), of_query = splits ? blocks * *splits : blocks;
  const bool wide = c.rows == 64 && c.dim_v > most_undivided;
  grid(queries * of_query, kv_heads * batch, {.threads = wide ? 256 : 0}, [&](Index x, Index z) {
    Expr split = splits ? x % of_query / blocks : Expr(Operand(0));
    block(source, z / kv_heads, x / of_query, z % kv_heads, x % blocks * c.rows, split, first_result + split);
  });
}

void MlaProgram::block(const ListedRows& source, const Expr& b, const Expr& query, const Expr& h,
                       const Expr& row, const Expr& split, const Expr& number) {
  LatentTile own(c.rows, c.dim, c.dim_v, c.padded, c.compute);
  if (c.off > 0)
    own.load_from(q.slice(b, query, h), row, c.dim_v, c.rest());
  else
    own.copy_from(q.slice(b, query, h), row);
  Fragment acc({c.rows, c.padded.of(c.dim_v)}, f32, 0);
  OnlineSoftmax softmax(c.rows, scale);
  Expr count = source.counts ? clamp((*source.counts)(b, query, h), 0, source.entries) : source.entries;
  Tensor list = source.indices.slice(b, query, h);
  const LatentTensor kv = source.kv.slice(b, all, h);
  Expr steps = ceildiv(count, c.keys), each = splits ? ceildiv(steps, *splits) : steps;
  Expr begin = splits ? split * each : Expr(Operand(0)),
       end = splits ? min(steps, (split + 1) * each) : steps;
  Expr last = offset ? min(source.keys, query + *offset + 1) : source.keys;
  const Step step = [&](const Index& j, const Shared& listed, const Expr& at) {
    // Numbers behind the end of the list, which the copy engine brings, or zeros, are those of no row.
    const auto row = [&](const Expr& n) -> Expr {
      Expr number = listed(at + n);
      return c.whole ? number : select(j * c.keys + n < count, number, -1);
    };
    LatentTile k(c.keys, c.dim, c.dim_v, c.padded, c.compute);
    k.gather_from(kv, row);
    Fragment s({c.rows, c.keys}, f32, 0);
    add_scores(own, k, s);
    parallel(s, [&](Index i, Index n) { s(i, n) = select(row(n) >= 0 && row(n) < last, s(i, n), -inf); });
    scale_rows(acc, softmax.update(s));
    add_product(s, k.values, acc, c.compute);
  };
  each_step(c, list, begin, end, step);
  store(b, query, h, row, number, softmax, acc);
}

// Elements are stored by their threads: buffers of the copy engine would take the room of a slot of rows.
void MlaProgram::store(const Expr& b, const Expr& query, const Expr& h, const Expr& row, const Expr& number,
                       OnlineSoftmax& softmax, Fragment& acc) {
  if (sinks && !results)
    softmax.add_sink(acc, [&](Index i) -> Expr { return f32((*sinks)(h, row + i)) * log2e; });
  softmax.normalize(acc);
  Fragment own_lse = softmax.lse();
  if (!results) {
    Tensor to = out.slice(b, query, h);
    parallel(acc, [&](Index i, Index d) { to(row + i, d) = acc(i, d); });
    copy(own_lse, lse.slice(b, query, h).at(row));
    return;
  }
  Expr token = b * queries + query;
  const Range tokens = range(token, token + 1), heads = range(h * group, h * group + group);
  Tensor to = results->out(tokens, heads, number), lse_to = results->lse(tokens, heads, number);
  parallel(acc, [&](Index i, Index d) { to(0, row + i, d) = acc(i, d); });
  parallel(own_lse, [&](Index i) { lse_to(row + i, 0) = own_lse(i); });
}

void MlaProgram::merge() {
  grid(kv_heads * group, batch * queries, [&](Index head, Index token) {
    Expr b = token / queries, query = token % queries, h = head / group, member = head % group;
    std::optional<Expr> sink;
    if (sinks) sink.emplace(f32((*sinks)(h, member)));
    lse(b, query, h, member) = results->merge(token, head, sink, out.slice(b, query, h, member));
  });
}

}  // namespace

Kernel sparse_mla_kernel(const SparseMlaKernel& c) {
  return kernel(instance_name("sparse_mla", c), [&] { MlaProgram(c).run(); });
}

}  // namespace tegula::ops
