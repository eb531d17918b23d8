#include <algorithm>
#include <numeric>
#include <random>

#include "tests/programs/timing.hpp"

namespace programs {
namespace {

using Unit = Timing::Unit;
using Index64 = std::int64_t;
constexpr double log2_of_e = 1.4426950408889634;

// A page of 64 tokens for every 64 tokens of every request, in any order.
std::vector<int> shuffled_pages(Index64 count) {
  std::vector<int> pages(static_cast<std::size_t>(count));
  std::iota(pages.begin(), pages.end(), 0);
  std::ranges::shuffle(pages, std::mt19937(5));
  return pages;
}
std::vector<int> repeated(Index64 count, Index64 value) {
  return std::vector<int>(static_cast<std::size_t>(count), static_cast<int>(value));
}

// Softmax over n scores of a value each.
template <class Score, class Value>
double attended(Index64 n, Score score, Value value) {
  double total = 0, sum = 0;
  for (Index64 i = 0; i < n; ++i) {
    const double weight = std::exp(score(i));
    total += weight, sum += weight * value(i);
  }
  return sum / total;
}
double dot(const Numbers& a, const Numbers& b, Index64 row) {
  return sum_of(static_cast<Index64>(a.values.size()), [&](int d) { return a(d) * b(row, d); });
}

Timing gqa_timing(int splits) {
  const Index64 B = 32, S = 8192, H = 8, group = 4, D = 128;
  const double scale = 1 / std::sqrt(static_cast<double>(D));
  return {"gqa_decode",
          {},
          "32 x 8192, 32 / 8 heads, splits " + std::to_string(splits),
          Unit::bytes,
          2.0 * 2 * B * S * H * D,
          [=] {
            return std::vector<TimedArgument>{
                {"Q", Random{{B, H, group, D}, bf16}}, {"K", Random{{B, S, H, D}, bf16}},
                {"V", Random{{B, S, H, D}, bf16}},     {"lengths", Data::from(repeated(B, S))},
                {"O", Result{{B, H, group, D}, bf16}}, {"LSE", Result{{B, H, group}, f32}},
                {"scale", scale * log2_of_e},          {"splits", splits}};
          },
          Check{"O", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers q = slice("Q", {at[0], at[1], at[2]}), k = slice("K", {at[0]}),
                                v = slice("V", {at[0]});
                  const auto score = [&](Index64 i) {
                    return scale * sum_of(D, [&](int d) { return q(d) * k(i, at[1], d); });
                  };
                  return attended(S, score, [&](Index64 i) { return v(i, at[1], at[3]); });
                }}};
}

struct Mla {
  Index64 B = 128, S = 8192, heads = 128, latent = 512, rope = 64, page = 64;

  Index64 width() const { return latent + rope; }
  Index64 pages() const { return B * S / page; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(width())); }
  // Scores and sums of every pair of head and key.
  double work(double pairs) const { return 2 * pairs * static_cast<double>(width() + latent); }
  TimedArgument table() const { return {"table", Data::from(shuffled_pages(pages()), {B, S / page})}; }
  TimedArgument lengths() const { return {"lengths", Data::from(repeated(B, S))}; }
};

Timing mla_timing(const char* program, int shares) {
  const Mla m;
  std::string shape = "128 x 128 heads x 8192 bf16";
  if (shares > 0) shape += ", " + std::to_string(shares) + " parts";
  return {program,
          {},
          shape,
          Unit::operations,
          m.work(1.0 * m.B * m.heads * m.S),
          [=] {
            std::vector<TimedArgument> all{{"Q", Random{{m.B, m.heads, m.width()}, bf16}},
                                           {"cache", Random{{m.pages(), m.page, m.width()}, bf16}},
                                           m.table(),
                                           m.lengths(),
                                           {"O", Result{{m.B, m.heads, m.latent}, bf16}},
                                           {"LSE", Result{{m.B, m.heads}, f32}},
                                           {"scale", m.scale() * log2_of_e}};
            if (shares > 0) all.push_back({"parts", shares});
            return all;
          },
          Check{"O", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers q = slice("Q", {at[0], at[1]}), table = slice("table", {at[0]});
                  std::vector<Numbers> pages;
                  for (const double page : table.values)
                    pages.push_back(slice("cache", {static_cast<Index64>(page)}));
                  return attended(
                      m.S, [&](Index64 i) { return m.scale() * dot(q, pages[i / m.page], i % m.page); },
                      [&](Index64 i) { return pages[i / m.page](i % m.page, at[2]); });
                }}};
}

Timing mla_fp8_timing() {
  const Mla m;
  return {"mla_decode_fp8",
          {},
          "128 x 128 heads x 8192 e4m3",
          Unit::operations,
          m.work(1.0 * m.B * m.heads * m.S),
          [=] {
            return std::vector<TimedArgument>{
                {"Q", Random{{m.B, m.heads, m.width()}, bf16}},
                {"latents", Random{{m.pages(), m.page, m.latent}, e4m3}},
                {"scales", between({m.pages(), m.page, m.latent / 128}, f32, .5, 1.5)},
                {"ropes", Random{{m.pages(), m.page, m.rope}, bf16}},
                m.table(),
                m.lengths(),
                {"O", Result{{m.B, m.heads, m.latent}, bf16}},
                {"scale", m.scale() * log2_of_e}};
          },
          Check{"O", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers q = slice("Q", {at[0], at[1]}), table = slice("table", {at[0]});
                  std::vector<double> scores, values;
                  for (const double page : table.values) {
                    const auto p = static_cast<Index64>(page);
                    const Numbers x = slice("latents", {p}), f = slice("scales", {p}),
                                  r = slice("ropes", {p});
                    each(m.page, [&](int i) {
                      double sum = 0;
                      each(m.latent, [&](int d) { sum += q(d) * x(i, d) * f(i, d / 128); });
                      each(m.rope, [&](int d) { sum += q(m.latent + d) * r(i, d); });
                      scores.push_back(m.scale() * sum);
                      values.push_back(x(i, at[2]) * f(i, at[2] / 128));
                    });
                  }
                  return attended(
                      m.S, [&](Index64 i) { return scores[i]; }, [&](Index64 i) { return values[i]; });
                }}};
}

Timing mla_sparse_decode_timing() {
  const Mla m;
  const Index64 tokens = 128, rows = 1 << 20, top = 2048;
  return {"mla_sparse_decode_fp8",
          {},
          "128 x 128 heads x 2048 of 1M rows",
          Unit::operations,
          m.work(1.0 * tokens * m.heads * top),
          [=] {
            return std::vector<TimedArgument>{{"Q", Random{{tokens, m.heads, m.width()}, bf16}},
                                              {"latents", Random{{rows, m.latent}, e4m3}},
                                              {"scales", between({rows, m.latent / 128}, f32, .5, 1.5)},
                                              {"ropes", Random{{rows, m.rope}, bf16}},
                                              {"chosen", between({tokens, top}, i32, 0, rows)},
                                              {"O", Result{{tokens, m.heads, m.latent}, bf16}},
                                              {"LSE", Result{{tokens, m.heads}, f32}},
                                              {"scale", m.scale() * log2_of_e},
                                              {"splits", 1}};
          }};
}

// Latents and rotary parts are columns of one tensor.
Timing mla_sparse_prefill_timing() {
  const Mla m;
  const Index64 Sq = 4096, Sk = 32768, top = 2048;
  return {
      "mla_sparse_prefill",
      {},
      "4096 x 128 heads x 2048 of 32768",
      Unit::operations,
      m.work(1.0 * Sq * m.heads * top),
      [=] {
        return std::vector<TimedArgument>{
            {"Q", Random{{1, Sq, m.heads, m.width()}, bf16}},
            {"latents", Random{.shape = {1, Sk, m.latent}, .type = bf16, .row = m.width()}},
            {"ropes", Random{.shape = {1, Sk, m.rope}, .type = bf16, .row = m.width()}},
            {"tokens", between({1, Sq, top}, i32, 0, static_cast<double>(Sk - Sq))},
            {"O", Result{{1, Sq, m.heads, m.latent}, bf16}},
            {"LSE", Result{{1, Sq, m.heads}, f32}},
            {"scale", m.scale() * log2_of_e}};
      },
      Check{"O", [=](const SliceOf& slice, const std::vector<Index64>& at) {
              const Numbers q = slice("Q", {0, at[1], at[2]}), list = slice("tokens", {0, at[1]});
              std::vector<double> scores, values;
              for (const double key : list.values) {
                const auto own = static_cast<Index64>(key);
                const Numbers x = slice("latents", {0, own}), r = slice("ropes", {0, own});
                scores.push_back(m.scale() * (sum_of(m.latent, [&](int d) { return q(d) * x(d); }) +
                                              sum_of(m.rope, [&](int d) { return q(m.latent + d) * r(d); })));
                values.push_back(x(at[3]));
              }
              return attended(
                  top, [&](Index64 i) { return scores[i]; }, [&](Index64 i) { return values[i]; });
            }}};
}

Timing mla_sparse_gradient_timing() {
  const Mla m;
  const Index64 Sq = 4096, Sk = 32768, top = 2048;
  const Shape of_heads{1, Sq, m.heads, m.latent};
  // Scores and dP; dQ, dK and dV.
  const double work = 2.0 * Sq * m.heads * top * static_cast<double>(3 * m.width() + 2 * m.latent);
  return {"mla_sparse_gradient", {}, "4096 x 128 heads x 2048 of 32768", Unit::operations, work, [=] {
            return std::vector<TimedArgument>{
                {"Q", Random{{1, Sq, m.heads, m.width()}, bf16}},
                {"latents", Random{.shape = {1, Sk, m.latent}, .type = bf16, .row = m.width()}},
                {"ropes", Random{.shape = {1, Sk, m.rope}, .type = bf16, .row = m.width()}},
                {"tokens", between({1, Sq, top}, i32, 0, static_cast<double>(Sk - Sq))},
                {"O", Random{of_heads, bf16, .05}},
                {"dO", Random{of_heads, bf16}},
                {"LSE", between({1, Sq, m.heads}, f32, 8, 8.2)},
                {"dQ", Result{{1, Sq, m.heads, m.width()}, bf16}},
                {"dKV", Result{{1, Sk, m.width()}, f32}},
                {"scale", m.scale()}};
          }};
}

Timing indexer_timing(bool causal) {
  const Index64 S = 8192, heads = 64, D = 128;
  const double pairs = causal ? S * (S + 1) / 2.0 : 1.0 * S * S;
  return {"lightning_indexer",
          {},
          causal ? "8192 x 8192, 64 heads, causal" : "8192 x 8192, 64 heads",
          Unit::operations,
          2 * pairs * heads * D,
          [=] {
            std::vector<int> ends = repeated(S, S);
            if (causal) std::iota(ends.begin(), ends.end(), 1);
            return std::vector<TimedArgument>{
                {"Q", Random{{S, heads, D}, e4m3}},      {"K", Random{{S, D}, e4m3}},
                {"scales", between({S}, f32, .5, 1.5)},  {"weights", Random{{S, heads}, f32}},
                {"begins", Data::from(repeated(S, 0))},  {"ends", Data::from(ends)},
                {"logits", Result{{S, S}, f32, !causal}}};
          },
          Check{"logits", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  if (causal && at[1] > at[0]) return -static_cast<double>(INFINITY);
                  const Numbers q = slice("Q", {at[0]}), k = slice("K", {at[1]}),
                                w = slice("weights", {at[0]});
                  const double sum = sum_of(heads, [&](int h) {
                    return w(h) * std::max(0.0, sum_of(D, [&](int d) { return q(h, d) * k(d); }));
                  });
                  return sum * slice("scales", {})(at[1]);
                }}};
}

Timing paged_indexer_timing(int splits) {
  const Index64 B = 128, S = 8192, queries = 2, heads = 64, D = 128, page = 64, pages = B * S / page;
  return {"paged_indexer",
          {},
          "128 x 2 queries x 8192, 64 heads, splits " + std::to_string(splits),
          Unit::bytes,
          1.0 * B * S * (D + 4) + 4.0 * B * queries * S,
          [=] {
            return std::vector<TimedArgument>{{"Q", Random{{B, queries, heads, D}, e4m3}},
                                              {"K", Random{{pages, page, D}, e4m3}},
                                              {"scales", between({pages, page}, f32, .5, 1.5)},
                                              {"weights", Random{{B, queries, heads}, f32}},
                                              {"lengths", Data::from(repeated(B, S))},
                                              {"table", Data::from(shuffled_pages(pages), {B, S / page})},
                                              {"logits", Result{{B, queries, S}, f32, false}},
                                              {"splits", splits}};
          }};
}

Timing selector_timing() {
  const Index64 B = 4096, L = 65536, k = 2048;
  return {"topk_selector",
          {},
          "4096 x 65536, k 2048",
          Unit::bytes,
          4.0 * B * L,
          [=] {
            return std::vector<TimedArgument>{{"scores", Random{{B, L}, f32}},
                                              {"begins", Data::from(repeated(B, 0))},
                                              {"ends", Data::from(repeated(B, L))},
                                              {"positions", Result{{B, k}, i32}}};
          },
          {},
          false};  // the order of positions is that of the threads
}

}  // namespace

std::vector<Timing> decode_timings() {
  return {mla_timing("mla_decode", 0),
          mla_timing("mla_decode_scheduled", 66),
          mla_timing("mla_decode_scheduled", 132),
          mla_fp8_timing(),
          mla_sparse_decode_timing(),
          mla_sparse_prefill_timing(),
          mla_sparse_gradient_timing(),
          indexer_timing(false),
          indexer_timing(true),
          paged_indexer_timing(1),
          paged_indexer_timing(2),
          gqa_timing(1),
          gqa_timing(4),
          selector_timing()};
}

}  // namespace programs
