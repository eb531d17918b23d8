#include <fmt/format.h>

#include <algorithm>

#include "choices.hpp"
#include "measure.hpp"
#include "references.hpp"
#include "sections.hpp"
#include "tegula/ops.hpp"

namespace tegula::bench {
namespace {

constexpr std::int64_t tokens = 4096, heads = 8, dim = 64;
constexpr int block = 64, rounds = 7;
constexpr std::int64_t blocks = tokens / block;
constexpr std::int64_t chosen[] = {6, 16, 32};

Tensor normal(std::int64_t of_heads, std::int64_t width, std::uint64_t seed) {
  return Tensor::random_normal({1, tokens, of_heads, width}, f32, seed);
}

struct Backward {
  Tensor q = normal(heads, dim, 1), k = normal(heads, dim, 2), v = normal(heads, dim, 3),
         dout = normal(heads, dim, 4);
  Tensor dq = Tensor::empty(q.shape(), f32), dk = Tensor::empty(q.shape(), f32),
         dv = Tensor::empty(q.shape(), f32);

  template <class Options>
  Options results() const {
    return {.dq = dq, .dk = dk, .dv = dv};
  }
  void check(const ops::AttentionResult& forward, const Seen& seen) const {
    check_gradients({q, k, v, forward.out, forward.lse, dout, dq, dk, dv}, seen);
  }
  Work dense() const {
    const ops::AttentionOptions options{.target = Target::cpu()};
    const auto forward = ops::attention(q, k, v, options);
    const Work work = [=, this] {
      ops::attention_backward(dout, q, k, v, forward.out, forward.lse, options,
                              results<ops::AttentionBackwardOptions>());
    };
    work();
    check(forward, all_keys(tokens));
    return work;
  }
  Work sparse(const Tensor& indices) const {
    ops::BlockSparseOptions options;
    options.q_block_size = options.k_block_size = block, options.indices = indices,
    options.target = Target::cpu();
    const auto forward = ops::block_sparse_attention(q, k, v, options);
    const Work work = [=, this] {
      (void)indices;  // which the options refer to
      ops::block_sparse_attention_backward(dout, q, k, v, forward.out, forward.lse, options,
                                           results<ops::BlockSparseBackwardOptions>());
    };
    work();
    check(forward, chosen_blocks(indices, tokens, block));
    return work;
  }
};

void backward_rows() {
  const Backward problem;
  std::vector<Work> works{problem.dense()};
  for (const std::int64_t count : chosen)
    works.push_back(problem.sparse(random_choice(heads, blocks, blocks, count)));
  const Times times = interleaved(works, rounds);
  fmt::print(
      "## Gradients of block-sparse attention\n\nS = {}, {} heads, D = {}, f32, random blocks of {} x {} as "
      "above: `block_sparse_attention_backward` compared with `attention_backward`, which takes {:.1f} "
      "ms. "
      "The time should be at most 1.3 p times the dense one.\n\n| p | ms | time / dense | (time / dense) / p "
      "|\n|---|---|---|---|\n",
      tokens, heads, dim, block, block, 1e3 * times.median(0));
  for (std::size_t i = 0; i < std::size(chosen); ++i) {
    const double p = double(chosen[i]) / blocks, ratio = times.ratio(1 + i, 0);
    fmt::print("| {:.4f} | {:.1f} | {:.3f} | {:.2f} |\n", p, 1e3 * times.median(1 + i), ratio, ratio / p);
  }
  fmt::print("\n");
}

constexpr std::int64_t group = 16, wide = 128, entries = 16;

void selected_rows() {
  const Tensor q = normal(group, wide, 5), k = normal(1, wide, 6), v = normal(1, wide, 7),
               out = Tensor::empty(q.shape(), f32), lse = Tensor::empty({1, group, tokens}, f32),
               indices = random_selection(tokens, block, entries);
  ops::AttentionOptions dense;
  dense.out = out, dense.lse = lse, dense.target = Target::cpu();
  ops::NsaSelectedOptions selected;
  selected.block_size = block, selected.out = out, selected.lse = lse, selected.target = Target::cpu();
  const std::vector<Work> works{[&] { ops::attention(q, k, v, dense); },
                                [&] { ops::nsa_selected_attention(q, k, v, indices, selected); }};
  const Seen seen[] = {all_keys(tokens), selected_blocks(indices, tokens, block)};
  double pairs[] = {double(tokens) * tokens, 0};
  for (std::int64_t token = 0; token < tokens; ++token) {
    const auto keys = seen[1](0, token);
    pairs[1] += double(std::count(keys.begin(), keys.end(), true));
  }
  for (std::size_t i : {0, 1}) works[i](), check_attention(q, k, v, out, seen[i]);
  const Times times = interleaved(works, rounds);
  fmt::print(
      "## Selected attention\n\n`nsa_selected_attention`: {} tokens, {} heads that share one head of keys, D "
      "= "
      "{}, f32, {} blocks of {} keys for each token. Operations are counted as 4 D a head for every key that "
      "a "
      "token sees. The rate should be at least 0.5 of that of dense `attention` of the same tensors.\n\n"
      "| what | ms | GFLOP/s | of the dense rate |\n|---|---|---|---|\n",
      tokens, group, wide, entries, block);
  const double work = 4e-9 * double(group) * wide;
  for (std::size_t i : {0, 1})
    fmt::print("| {} | {:.1f} | {:.1f} | {:.2f} |\n", i == 0 ? "`attention`" : "`nsa_selected_attention`",
               1e3 * times.median(i), work * pairs[i] / times.median(i),
               times.ratio(0, i) * pairs[i] / pairs[0]);
  fmt::print("\n");
}

}  // namespace

void sparse_section() {
  backward_rows();
  selected_rows();
}

}  // namespace tegula::bench
