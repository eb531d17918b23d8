// Block-sparse attention at the sizes of practice.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "pool.hpp"
#include "sparse_choice.hpp"
#include "tegula/ops.hpp"
#include "workloads.hpp"

namespace tegula::bench {
namespace {

// Inputs, and numbers of them as the host knows them.
class Problem {
 public:
  explicit Problem(const SparseShape& shape)
      : s(shape),
        k_begin(nelements(queries())),
        v_begin(k_begin + nelements(keys())),
        pool(bf16, v_begin + nelements(keys())),
        q(pool.take(queries(), 0)),
        k(pool.take(keys(), k_begin)),
        v(pool.take(keys(), v_begin)),
        choice(choose_blocks(s)),
        indices(choice.indices.to(Device::cuda())),
        out(unwritten(queries(), bf16)),
        lse(unwritten({1, s.heads, s.length}, f32)) {}

  void forward() const {
    ops::BlockSparseOptions options;
    options.q_block_size = static_cast<int>(s.q_block), options.k_block_size = static_cast<int>(s.k_block);
    options.causal = s.causal;
    options.indices = indices.ref(), options.out = out.ref(), options.lse = lse.ref();
    ops::block_sparse_attention(q, k, v, options);
  }

  double exact(std::int64_t token, std::int64_t head, std::int64_t feature) const {
    const std::int64_t kv_head = head / (s.heads / s.kv_heads);
    const auto at = [&](std::int64_t begin, std::int64_t heads, std::int64_t row, std::int64_t h,
                        std::int64_t d) { return double{pool.at(begin, (row * heads + h) * s.dim + d)}; };
    double sum = 0, value = 0;
    for (std::int64_t n = 0; n < s.entries(); ++n) {
      const auto block = static_cast<std::int64_t>(choice.indices.get({0, kv_head, token / s.q_block, n}));
      if (block < 0) continue;
      const std::int64_t end = (block + 1) * s.k_block;
      for (std::int64_t key = block * s.k_block; key < (s.causal ? std::min(end, token + 1) : end); ++key) {
        double score = 0;
        for (std::int64_t d = 0; d < s.dim; ++d)
          score += at(0, s.heads, token, head, d) * at(k_begin, s.kv_heads, key, kv_head, d);
        const double weight = std::exp(score / std::sqrt(static_cast<double>(s.dim)));
        sum += weight, value += weight * at(v_begin, s.kv_heads, key, kv_head, feature);
      }
    }
    return sum > 0 ? value / sum : 0;  // of a query that sees no key
  }

  double error() const {
    double worst = 0;
    for (const std::int64_t token : {std::int64_t{0}, s.length / 3, s.length - 1}) {
      const std::int64_t head = token % s.heads, feature = token * 31 % s.dim;
      const Tensor row = out.select(0, 0).select(0, token).select(0, head);
      const double result = row.slice(0, feature, feature + 1).values<double>()[0];
      worst = worse(worst, std::abs(result - exact(token, head, feature)));
    }
    return worst;
  }

 private:
  Shape queries() const { return {1, s.length, s.heads, s.dim}; }
  Shape keys() const { return {1, s.length, s.kv_heads, s.dim}; }

  SparseShape s;
  std::int64_t k_begin, v_begin;
  Pool pool;
  Tensor q, k, v;

 public:
  const SparseChoice choice;

 private:
  Tensor indices, out, lse;
};

Workload sparse_workload(const SparseShape& s) {
  Workload workload;
  workload.name = fmt::format("block sparse bf16 {}x{}x{}x{} {}x{} 1 of {}{}{}", s.length, s.heads,
                              s.kv_heads, s.dim, s.q_block, s.k_block, s.period, s.causal ? " causal" : "",
                              s.drift == Drift::slow ? " drifting" : "");
  workload.prepare = [=] {
    const auto problem = std::make_shared<Problem>(s);
    const double flops_of_pair = 4.0 * static_cast<double>(s.heads / s.kv_heads * s.dim);
    Workload::Ready ready;
    ready.flops = problem->choice.pairs * flops_of_pair;
    ready.nominal = problem->choice.nominal * flops_of_pair;
    ready.facts = {{"overlap", problem->choice.overlap}};
    ready.call = [=] { problem->forward(); };
    ready.error = [=] { return problem->error(); };
    return ready;
  };
  return workload;
}

// Other blocks, features and lengths than those of the rows above.
void add_beside(std::vector<Workload>& all) {
  const SparseShape usual{.length = 16384, .heads = 16, .kv_heads = 4, .q_block = 64, .k_block = 64};
  for (const auto& [q_block, k_block] : {std::pair(64, 64), std::pair(48, 80), std::pair(32, 32),
                                         std::pair(16, 16), std::pair(96, 96), std::pair(1, 16)}) {
    SparseShape shape = usual;
    shape.q_block = q_block, shape.k_block = k_block;
    all.push_back(sparse_workload(shape));
  }
  SparseShape odd = usual, wide = usual;
  odd.length = 16383, wide.q_block = 1, wide.dim = 192;
  all.push_back(sparse_workload(odd));
  all.push_back(sparse_workload(wide));
}

}  // namespace

std::vector<Workload> sparse_workloads() {
  std::vector<Workload> all;
  for (const bool causal : {false, true}) {
    for (const std::int64_t length : {49152, 8192, 131072}) {
      for (const auto& [q_block, k_block] :
           {std::pair(384, 384), std::pair(128, 128), std::pair(64, 64), std::pair(16, 64), std::pair(8, 64),
            std::pair(128, 1), std::pair(64, 1), std::pair(1, 64)}) {
        SparseShape shape{.length = length, .q_block = q_block, .k_block = k_block, .causal = causal};
        all.push_back(sparse_workload(shape));
        if (q_block > 1) continue;
        shape.drift = Drift::slow;
        all.push_back(sparse_workload(shape));
      }
    }
  }
  add_beside(all);
  return all;
}

}  // namespace tegula::bench
