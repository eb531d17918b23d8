// Gradients of dense and of block-sparse attention at the sizes of practice.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "pool.hpp"
#include "tegula/ops.hpp"
#include "workloads.hpp"

namespace tegula::bench {
namespace {

struct BackwardShape {
  std::int64_t batch, length, heads, group, dim;
  bool causal = false;
  int q_block = 0, k_block = 0;  // 0: dense
  double kept = 1;
  std::int64_t own_dim_v = 0;  // features of values, where they are others

  std::int64_t dim_v() const { return own_dim_v > 0 ? own_dim_v : dim; }
  Shape queries() const { return {batch, length, heads, dim}; }
  Shape keys() const { return {batch, length, heads / group, dim}; }
  Shape values() const { return {batch, length, heads / group, dim_v()}; }
  Shape results() const { return {batch, length, heads, dim_v()}; }
  bool dense() const { return q_block == 0; }
  std::int64_t rows() const { return (length + q_block - 1) / q_block; }
  std::int64_t blocks() const { return (length + k_block - 1) / k_block; }
};

// A sum that is compared with a result: how far the result is off, in units of what its terms make together.
struct Sum {
  double value = 0, squares = 0;
  void add(double term) { value += term, squares += term * term; }
  double error(double result) const { return std::abs(result - value) / std::max(std::sqrt(squares), 1e-30); }
};

class Problem {
 public:
  explicit Problem(const BackwardShape& shape)
      : s(shape),
        k_begin(behind(0, s.queries())),
        v_begin(behind(k_begin, s.keys())),
        dout_begin(behind(v_begin, s.values())),
        pool(bf16, behind(dout_begin, s.results())),
        q(pool.take(s.queries(), 0)),
        k(pool.take(s.keys(), k_begin)),
        v(pool.take(s.values(), v_begin)),
        dout(pool.take(s.results(), dout_begin)) {
    if (!s.dense()) choose();
    const ops::AttentionResult forward =
        s.dense() ? ops::attention(q, k, v, dense()) : ops::block_sparse_attention(q, k, v, sparse());
    out = forward.out, lse = forward.lse;
    dq = unwritten(s.queries(), bf16);
    dk = unwritten(s.keys(), bf16);
    dv = unwritten(s.values(), bf16);
  }

  ops::AttentionOptions dense() const { return {.causal = s.causal}; }
  ops::BlockSparseOptions sparse() const {
    return {
        .q_block_size = s.q_block, .k_block_size = s.k_block, .indices = chosen.ref(), .causal = s.causal};
  }

  void run(bool deterministic) const {
    if (s.dense())
      ops::attention_backward(
          dout, q, k, v, out, lse, dense(),
          {.dq = dq.ref(), .dk = dk.ref(), .dv = dv.ref(), .deterministic = deterministic});
    else
      ops::block_sparse_attention_backward(
          dout, q, k, v, out, lse, sparse(),
          {.dq = dq.ref(), .dk = dk.ref(), .dv = dv.ref(), .deterministic = deterministic});
  }

  double error() const;

 private:
  // Every row of blocks as many, at random; the same for all heads of a group.
  void choose() {
    const std::int64_t blocks = s.blocks(), rows = s.rows(), heads = s.heads / s.group;
    entries = std::max<std::int64_t>(1, std::llround(s.kept * static_cast<double>(blocks)));
    std::mt19937_64 random(7);
    std::vector<std::int32_t> list(static_cast<std::size_t>(s.batch * heads * rows * entries)), all(blocks);
    for (std::size_t row = 0; row * entries < list.size(); ++row) {
      for (std::int64_t i = 0; i < blocks; ++i)
        all[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
      for (std::int64_t i = 0; i < entries; ++i) {
        std::swap(all[i],
                  all[i + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(blocks - i))]);
        list[row * entries + static_cast<std::size_t>(i)] = all[i];
      }
    }
    Tensor host = Tensor::empty({s.batch, heads, rows, entries}, i32);
    std::copy(list.begin(), list.end(), static_cast<std::int32_t*>(host.data()));
    numbers = std::move(list);
    chosen = host.to(Device::cuda());
  }

  bool sees(std::int64_t kv_head, std::int64_t row, std::int64_t key) const {
    if (s.causal && key > row) return false;
    if (s.dense()) return true;
    const auto begin = numbers.begin() + (kv_head * s.rows() + row / s.q_block) * entries;
    return std::find(begin, begin + entries, key / s.k_block) != begin + entries;
  }

  std::vector<double> row(std::int64_t begin, std::int64_t heads, std::int64_t features, std::int64_t token,
                          std::int64_t head) const {
    std::vector<double> result(static_cast<std::size_t>(features));
    for (std::int64_t d = 0; d < features; ++d)
      result[static_cast<std::size_t>(d)] = pool.at(begin, (token * heads + head) * features + d);
    return result;
  }
  std::vector<double> q_row(std::int64_t token, std::int64_t head) const {
    return row(0, s.heads, s.dim, token, head);
  }
  std::vector<double> k_row(std::int64_t token, std::int64_t kv_head) const {
    return row(k_begin, s.heads / s.group, s.dim, token, kv_head);
  }
  std::vector<double> v_row(std::int64_t token, std::int64_t kv_head) const {
    return row(v_begin, s.heads / s.group, s.dim_v(), token, kv_head);
  }
  std::vector<double> dout_row(std::int64_t token, std::int64_t head) const {
    return row(dout_begin, s.heads, s.dim_v(), token, head);
  }

  struct Pair {
    double weight, gradient;
  };
  Pair pair(const std::vector<double>& q_of, const std::vector<double>& dout_of,
            const std::vector<double>& k_of, const std::vector<double>& v_of, double row_lse,
            double delta) const {
    const double score = std::inner_product(q_of.begin(), q_of.end(), k_of.begin(), 0.0),
                 product = std::inner_product(dout_of.begin(), dout_of.end(), v_of.begin(), 0.0);
    const double scale = 1 / std::sqrt(static_cast<double>(s.dim)),
                 weight = std::exp(score * scale - row_lse);
    return {weight, weight * (product - delta) * scale};
  }

  double of_query(std::int64_t row_at, std::int64_t head) const;
  double of_key(std::int64_t key, std::int64_t kv_head) const;
  double delta_of(std::int64_t row_at, std::int64_t head, const std::vector<double>& out_of) const {
    double sum = 0;
    for (std::int64_t d = 0; d < s.dim_v(); ++d)
      sum += double{pool.at(dout_begin, (row_at * s.heads + head) * s.dim_v() + d)} *
             out_of[static_cast<std::size_t>(row_at * s.dim_v() + d)];
    return sum;
  }
  std::vector<double> out_of(std::int64_t head) const {
    return out.select(0, 0).select(1, head).values<double>();
  }
  std::vector<double> lse_of(std::int64_t head) const {
    return lse.select(0, 0).select(0, head).values<double>();
  }

  BackwardShape s;
  std::int64_t k_begin, v_begin, dout_begin, entries = 0;
  Pool pool;
  std::vector<std::int32_t> numbers;

 public:
  Tensor q, k, v, dout, out, lse, dq, dk, dv, chosen;
};

double element(const Tensor& t, std::int64_t token, std::int64_t head, std::int64_t feature) {
  return t.select(0, 0).select(0, token).select(0, head).slice(0, feature, feature + 1).values<double>()[0];
}

double Problem::of_query(std::int64_t row_at, std::int64_t head) const {
  const std::int64_t kv_head = head / s.group, feature = (row_at * 31) % s.dim;
  const double delta = delta_of(row_at, head, out_of(head)),
               row_lse = lse_of(head)[static_cast<std::size_t>(row_at)];
  const std::vector<double> q_of = q_row(row_at, head), dout_of = dout_row(row_at, head);
  Sum sum;
  for (std::int64_t key = 0; key < s.length; ++key) {
    if (!sees(kv_head, row_at, key)) continue;
    const std::vector<double> k_of = k_row(key, kv_head);
    const Pair own = pair(q_of, dout_of, k_of, v_row(key, kv_head), row_lse, delta);
    sum.add(own.gradient * k_of[static_cast<std::size_t>(feature)]);
  }
  return sum.error(element(dq, row_at, head, feature));
}

double Problem::of_key(std::int64_t key, std::int64_t kv_head) const {
  const std::int64_t feature = (key * 17) % s.dim, feature_v = (key * 17) % s.dim_v();
  const std::vector<double> k_of = k_row(key, kv_head), v_of = v_row(key, kv_head);
  Sum of_k, of_v;
  for (std::int64_t head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head) {
    const std::vector<double> results = out_of(head), lses = lse_of(head);
    for (std::int64_t i = 0; i < s.length; ++i) {
      if (!sees(kv_head, i, key)) continue;
      const std::vector<double> q_of = q_row(i, head), dout_of = dout_row(i, head);
      const Pair own =
          pair(q_of, dout_of, k_of, v_of, lses[static_cast<std::size_t>(i)], delta_of(i, head, results));
      of_k.add(own.gradient * q_of[static_cast<std::size_t>(feature)]);
      of_v.add(own.weight * dout_of[static_cast<std::size_t>(feature_v)]);
    }
  }
  return worse(of_k.error(element(dk, key, kv_head, feature)),
               of_v.error(element(dv, key, kv_head, feature_v)));
}

double Problem::error() const {
  const double of_queries = worse(of_query(s.length / 3, s.heads / 2), of_query(s.length - 1, 0));
  return worse(of_queries, of_key(s.length / 5, (s.heads / s.group) / 2));
}

Workload backward_workload(const BackwardShape& s, bool deterministic) {
  const std::string features =
      s.own_dim_v > 0 ? fmt::format("{}/{}", s.dim, s.own_dim_v) : fmt::format("{}", s.dim);
  const std::string shape = fmt::format("{}x{}x{}x{}", s.batch, s.length, s.heads, features);
  const std::string grouped = s.group > 1 ? fmt::format("dense group {}", s.group) : "dense";
  const std::string what = s.dense() ? grouped : fmt::format("{}x{} group {}", s.q_block, s.k_block, s.group);
  Workload workload;
  workload.name = fmt::format("backward bf16 {} {} {}{}", shape, what, s.causal ? "causal" : "full",
                              deterministic ? "" : " any order");
  workload.flops = 2.0 * static_cast<double>(s.batch * s.heads * (3 * s.dim + 2 * s.dim_v())) *
                   static_cast<double>(s.length * s.length) * s.kept * (s.causal ? 0.5 : 1);
  workload.prepare = [=] {
    const auto problem = std::make_shared<Problem>(s);
    return Workload::Ready{[=] { problem->run(deterministic); }, [=] { return problem->error(); }};
  };
  return workload;
}

// Other blocks and features of block-sparse gradients than those of the rows above.
void add_sparse_beside(std::vector<Workload>& all) {
  const auto add = [&](std::int64_t length, std::int64_t dim, int q_block, int k_block) {
    all.push_back(backward_workload({.batch = 1,
                                     .length = length,
                                     .heads = 16,
                                     .group = 4,
                                     .dim = dim,
                                     .q_block = q_block,
                                     .k_block = k_block,
                                     .kept = 0.1},
                                    true));
  };
  for (const auto& [q_block, k_block] :
       {std::pair(64, 64), std::pair(48, 80), std::pair(32, 32), std::pair(16, 16), std::pair(96, 96),
        std::pair(1, 16), std::pair(1, 64)})
    add(16384, 128, q_block, k_block);
  add(16383, 128, 64, 64);
  add(8192, 128, 128, 1);
  add(16384, 192, 1, 64);
}

// Other features, lengths and groups than those of the rows above.
void add_beside(std::vector<Workload>& all) {
  const auto add = [&](const BackwardShape& s) { all.push_back(backward_workload(s, true)); };
  for (const bool causal : {false, true}) {
    for (const std::int64_t dim : {160, 192, 256, 512})
      add({.batch = 2, .length = 4096, .heads = 16, .group = 4, .dim = dim, .causal = causal});
    add({.batch = 1,
         .length = 8192,
         .heads = 64,
         .group = 1,
         .dim = 192,
         .causal = causal,
         .own_dim_v = 128});
  }
  add({.batch = 1, .length = 8192, .heads = 32, .group = 16, .dim = 256, .causal = true});
  for (const std::int64_t length : {4095, 4096, 4097})
    add({.batch = 2, .length = length, .heads = 16, .group = 4, .dim = 128, .causal = true});
  for (const std::int64_t group : {2, 8, 16})
    add({.batch = 2, .length = 4096, .heads = 16, .group = group, .dim = 128, .causal = true});
  add({.batch = 2, .length = 4096, .heads = 32, .group = 32, .dim = 128, .causal = true});
  add({.batch = 64, .length = 257, .heads = 16, .group = 4, .dim = 128, .causal = true});
  add({.batch = 128, .length = 64, .heads = 16, .group = 4, .dim = 128, .causal = true});
}

}  // namespace

std::vector<Workload> backward_workloads() {
  std::vector<Workload> all;
  const auto add = [&](const BackwardShape& s) {
    all.push_back(backward_workload(s, true));
    // Other blocks take the same two passes in any order.
    if (s.dense() || (s.group == 1 && s.k_block == 128)) all.push_back(backward_workload(s, false));
  };
  for (const bool causal : {false, true}) {
    for (const std::int64_t length : {2048, 4096, 8192, 16384})
      add({.batch = 16384 / length, .length = length, .heads = 16, .group = 1, .dim = 128, .causal = causal});
    add({.batch = 2, .length = 8192, .heads = 32, .group = 1, .dim = 64, .causal = causal});
  }
  const auto add_sparse = [&](std::int64_t length, std::int64_t heads, std::int64_t group, int q_block,
                              int k_block, bool causal) {
    add({.batch = 1,
         .length = length,
         .heads = heads,
         .group = group,
         .dim = 128,
         .causal = causal,
         .q_block = q_block,
         .k_block = k_block,
         .kept = 0.1});
  };
  for (const int block : {64, 128})
    for (const std::int64_t group : {8, 1}) {
      for (const std::int64_t length : {8192, 49152, 131072}) {
        add_sparse(length, 64, group, block, block, false);
        add_sparse(length, 64, group, block, block, true);
      }
      for (const std::int64_t length : {8192, 32768}) add_sparse(length, 16, group, block, block, false);
    }
  add_sparse(32768, 16, 8, 1, 64, false);
  for (const std::int64_t dim : {192, 256})
    all.push_back(backward_workload({.batch = 1,
                                     .length = 8192,
                                     .heads = 16,
                                     .group = 4,
                                     .dim = dim,
                                     .q_block = 64,
                                     .k_block = 64,
                                     .kept = 0.5},
                                    true));
  add_beside(all);
  add_sparse_beside(all);
  return all;
}

}  // namespace tegula::bench
