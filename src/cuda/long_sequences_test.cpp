// On a GPU: long sequences, forward and gradients, against the formula in double precision, which takes the
// queries in chunks, on all processors of the host. Results are judged chunk by chunk, so that no error hides
// in a large sum.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <thread>

#include "cuda/driver.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {
namespace long_sequences_test {

constexpr std::chrono::seconds most_time{240};  // of a row, on a host of two processors
constexpr std::int64_t tokens = 5003, kv_heads = 2, dim = 128, chunk = 64;
constexpr double most_error = 1e-2;  // of a chunk, relative to it or to the usual one; bf16 rounds by 2^-9

struct Row {
  const char* name;
  int q_block, k_block;  // q_block 0: selected by tokens
  std::int64_t group, entries;
  bool causal;
};

using Numbers = std::vector<double>;  // [tokens, heads, dim]

struct Problem {
  Row row;
  Numbers q, k, v, dout;
  std::vector<std::int32_t> lists;  // [kv_heads, rows, entries]

  std::int64_t heads() const { return row.group * kv_heads; }
  // Each block once, ascending.
  std::vector<std::int32_t> blocks_of(std::int64_t query, std::int64_t kv_head) const {
    const std::int64_t block = std::max(row.q_block, 1), rows = (tokens + block - 1) / block,
                       begin = (kv_head * rows + query / block) * row.entries;
    std::vector<std::int32_t> result(lists.begin() + begin, lists.begin() + begin + row.entries);
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }
};

struct OfQueries {
  Numbers out, lse, dq;  // lse [heads, tokens]
};
struct OfKeys {
  Numbers dk, dv;
};

double dot(const double* a, const double* b) {
  std::array<double, 8> sums{};
  for (std::int64_t d = 0; d < dim; d += 8)
    for (std::size_t lane = 0; lane < 8; ++lane)
      sums[lane] += a[d + static_cast<std::int64_t>(lane)] * b[d + static_cast<std::int64_t>(lane)];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

void add(double factor, const double* x, double* to) {
  for (std::int64_t d = 0; d < dim; ++d) to[d] += factor * x[d];
}

void one_query(const Problem& p, std::int64_t query, std::int64_t head, OfQueries& all, OfKeys& own) {
  const std::int64_t kv_head = head / p.row.group, at = (query * p.heads() + head) * dim;
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  std::vector<std::int64_t> keys;
  for (const std::int64_t block : p.blocks_of(query, kv_head))
    for (std::int64_t j = block * p.row.k_block; block >= 0 && j < (block + 1) * p.row.k_block; ++j)
      if (j < tokens && (!p.row.causal || j <= query)) keys.push_back((j * kv_heads + kv_head) * dim);
  Numbers weights;
  double most = -INFINITY, sum = 0;
  for (const std::int64_t key : keys) {
    weights.push_back(scale * dot(&p.q[at], &p.k[key]));
    most = std::max(most, weights.back());
  }
  for (double& w : weights) sum += w = std::exp(w - most);
  for (std::size_t i = 0; i < keys.size(); ++i) add(weights[i] /= sum, &p.v[keys[i]], &all.out[at]);
  all.lse[head * tokens + query] = keys.empty() ? -INFINITY : most + std::log(sum);
  const double delta = dot(&p.dout[at], &all.out[at]);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double gradient = scale * weights[i] * (dot(&p.dout[at], &p.v[keys[i]]) - delta);
    add(gradient, &p.k[keys[i]], &all.dq[at]);
    add(gradient, &p.q[at], &own.dk[keys[i]]);
    add(weights[i], &p.dout[at], &own.dv[keys[i]]);
  }
}

// Threads take chunks of queries in turn, each with sums of its own for the keys.
std::pair<OfQueries, OfKeys> by_formula(const Problem& p) {
  OfQueries all{Numbers(p.q.size()), Numbers(tokens * p.heads()), Numbers(p.q.size())};
  const std::int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<OfKeys> own(static_cast<std::size_t>(threads), {Numbers(p.k.size()), Numbers(p.k.size())});
  std::vector<std::thread> team;
  for (std::int64_t t = 0; t < threads; ++t)
    team.emplace_back([&, t] {
      for (std::int64_t begin = t * chunk; begin < tokens; begin += threads * chunk)
        for (std::int64_t query = begin; query < std::min(tokens, begin + chunk); ++query)
          for (std::int64_t head = 0; head < p.heads(); ++head)
            one_query(p, query, head, all, own[static_cast<std::size_t>(t)]);
    });
  for (std::thread& thread : team) thread.join();
  for (std::size_t t = 1; t < own.size(); ++t)
    for (std::size_t i = 0; i < p.k.size(); ++i) own[0].dk[i] += own[t].dk[i], own[0].dv[i] += own[t].dv[i];
  return {std::move(all), std::move(own[0])};
}

// Chunks of as many elements as `chunk` tokens of one key head have.
void expect_close(const char* what, const Tensor& result, const Numbers& exact) {
  const std::vector<double> values = result.values<double>();
  ASSERT_EQ(values.size(), exact.size()) << what;
  const auto square = [](double x) { return std::isfinite(x) ? x * x : 0; };
  double whole = 0;
  for (const double x : exact) whole += square(x);
  const double usual = whole * chunk * dim / static_cast<double>(exact.size());
  for (std::size_t begin = 0; begin < exact.size(); begin += chunk * dim) {
    double difference = 0, size = 0;
    for (std::size_t i = begin; i < std::min(exact.size(), begin + chunk * dim); ++i) {
      size += square(exact[i]);
      if (values[i] != exact[i]) difference += std::pow(values[i] - exact[i], 2);
    }
    ASSERT_LE(std::sqrt(difference), most_error * std::sqrt(std::max(size, usual)))
        << what << ", elements from " << begin;
  }
}

Problem random_problem(const Row& row, std::vector<Tensor>& there) {
  Problem p{row, {}, {}, {}, {}, {}};
  const auto random = [&](std::int64_t heads, std::uint64_t seed) {
    const Tensor values = Tensor::random_normal({1, tokens, heads, dim}, bf16, seed);
    there.push_back(values.to(Device::cuda()));
    return values.values<double>();
  };
  p.q = random(p.heads(), 1), p.k = random(kv_heads, 2), p.v = random(kv_heads, 3),
  p.dout = random(p.heads(), 4);
  const std::int64_t block = std::max(row.q_block, 1), rows = (tokens + block - 1) / block;
  const Tensor lists = Tensor::random_integers({1, kv_heads, rows, row.entries}, i32, 5, -1,
                                               (tokens + row.k_block - 1) / row.k_block);
  p.lists = lists.values<std::int32_t>();
  there.push_back(lists.to(Device::cuda()));
  return p;
}

class LongSequences : public ::testing::TestWithParam<Row> {};

TEST_P(LongSequences, AgreeWithTheFormula) {
  if (!cuda::is_driver_usable()) GTEST_SKIP() << "this machine has no CUDA device";
  const Row& row = GetParam();
  const Watchdog watchdog(row.name, most_time);
  std::vector<Tensor> in;  // q, k, v, dout, lists
  const Problem problem = random_problem(row, in);
  Tensor out, lse, dq, dk, dv;
  if (row.q_block == 0) {
    const NsaSelectedOptions options{.block_size = row.k_block, .causal = row.causal};
    const TensorRef lists = in[4].ref().transpose(1, 2);
    const NsaSelectedResult forward = nsa_selected_attention(in[0], in[1], in[2], lists, options);
    const NsaSelectedGradients gradients =
        nsa_selected_attention_backward(in[3], in[0], in[1], in[2], lists, forward.out, forward.lse, options);
    out = forward.out, lse = forward.lse, dq = gradients.dq, dk = gradients.dk, dv = gradients.dv;
  } else {
    const BlockSparseOptions options{
        .q_block_size = row.q_block, .k_block_size = row.k_block, .indices = in[4], .causal = row.causal};
    const AttentionResult forward = block_sparse_attention(in[0], in[1], in[2], options);
    const BlockSparseGradients gradients =
        block_sparse_attention_backward(in[3], in[0], in[1], in[2], forward.out, forward.lse, options);
    out = forward.out, lse = forward.lse, dq = gradients.dq, dk = gradients.dk, dv = gradients.dv;
  }
  const auto [of_queries, of_keys] = by_formula(problem);
  expect_close("out", out, of_queries.out);
  expect_close("lse", lse, of_queries.lse);
  expect_close("dq", dq, of_queries.dq);
  expect_close("dk", dk, of_keys.dk);
  expect_close("dv", dv, of_keys.dv);
}

INSTANTIATE_TEST_SUITE_P(
    Table, LongSequences,
    ::testing::Values(Row{"blocks_64", 64, 64, 1, 8, true}, Row{"blocks_128", 128, 128, 1, 4, false},
                      Row{"blocks_16_by_64", 16, 64, 2, 8, false}, Row{"single_keys", 128, 1, 1, 500, true},
                      Row{"single_queries", 1, 64, 2, 8, false}, Row{"selected", 0, 64, 2, 16, true},
                      Row{"selected_by_one_head", 0, 32, 1, 16, false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tegula::ops
