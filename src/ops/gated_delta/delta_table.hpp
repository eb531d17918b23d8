// What the tables of the gated delta rule, with a decay for a head or for each feature, share.
#pragma once
#include <cmath>

#include "ops/linear/scan.hpp"
#include "ops/schema/derivative.hpp"

namespace tegula::ops {

using DimsOfExample = std::function<std::int64_t(const std::string&)>;
// Keys of norms of about 1, and shares from 0 to 1.
Tensor keys_of_example(const Shape& shape, DType type, std::uint64_t seed, const DimsOfExample& value);
Tensor shares_of_example(const Shape& shape, DType type, std::uint64_t seed, const DimsOfExample& value);

template <class Op>
void add_delta_inputs(Schema<Op>& table) {
  table.in(&Op::q, "q", token_list("key_heads d"), floats, "queries")
      .unit_stride()
      .in(&Op::k, "k", token_list("key_heads d"), same_as("q"), "keys, of norms of at most about 1")
      .unit_stride()
      .values(keys_of_example)
      .in(&Op::v, "v", token_list("key_heads*group d_v"), same_as("q"), "values")
      .unit_stride();
}

// Adds what follows the gates and writing strengths.
template <class Op>
void add_delta_rest(Schema<Op>& table) {
  table
      .in(&Op::initial_state, "initial_state", sequence_list("key_heads*group d d_v"), is(f32),
          "states before the first token; zeros if omitted")
      .with(add_fences<Op>)
      .let("heads", "key_heads*group")
      .option(&Op::scale, "scale", "factor of the results", finite)
      .otherwise("rsqrt(d)")
      .option(&Op::qk_l2norm, "qk_l2norm", "q and k are divided by sqrt(sum of squares + 1e-6)")
      .option(&Op::output_final_state, "output_final_state", "also returns the states after the last token")
      .require("v", "1 <= d_v & d_v <= 512", "1 to 512 features", "split the heads")
      .require("v", "group >= 1", "as many heads as k, or a multiple", "give v a head for each of k")
      .out(&Op::out, "out", token_list("key_heads*group d_v"), same_as("v"),
           "scale * (state after the token) . q")
      .out(&Op::final_state, "final_state", sequence_list("key_heads*group d d_v"), is(f32),
           "states after the last token")
      .steps_of("q")
      .when("output_final_state");
}

// A row of q or k, divided by its norm if that is wanted.
template <class E>
std::vector<typename E::Number> delta_row(E& exact, const typename E::Number* x, std::int64_t d, bool unit) {
  using Number = typename E::Number;
  std::vector<Number> row(x, x + d);
  if (!unit) return row;
  Number sum = 0;
  for (const Number& value : row) sum += value * value;
  const Number factor = 1 / sqrt(sum + 1e-6);
  for (Number& value : row) value = exact.rounded(value * factor);
  return row;
}

// The recurrence token by token; with gates of features g is [tokens, heads, d].
template <class Op, class E>
void delta_formula(const Bound<Op>& c, E& exact, bool by_feature) {
  using Number = typename E::Number;
  const std::int64_t d = c.dim("d"), d_v = c.dim("d_v"), group = c.dim("group"), heads = c.dim("heads");
  auto *q = exact.data("q"), *k = exact.data("k"), *v = exact.data("v"), *beta = exact.data("beta"),
       *g = exact.data_if("g"), *initial = exact.data_if("initial_state"), *out = exact.data("out"),
       *end = exact.data_if("final_state");
  const double scale = c.real("scale");
  const std::vector<Span> spans = spans_of(c.call());
  for (std::size_t n = 0; n < spans.size(); ++n)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = (static_cast<std::int64_t>(n) * heads + h) * d * d_v;
      std::vector<Number> state(d * d_v);
      if (initial) state.assign(initial + at, initial + at + d * d_v);
      for (std::int64_t t = spans[n].first; t < spans[n].first + spans[n].count; ++t) {
        const std::int64_t row = t * heads + h, key = (t * (heads / group) + h / group) * d;
        const auto own_q = delta_row(exact, q + key, d, c->qk_l2norm),
                   own_k = delta_row(exact, k + key, d, c->qk_l2norm);
        std::vector<Number> factors(d, Number(1));
        for (std::int64_t i = 0; g != nullptr && i < d; ++i)
          factors[i] = by_feature || i == 0 ? exp(g[by_feature ? row * d + i : row]) : factors[0];
        // What is found and what is written is rounded apart, and so is the inverse that chunks multiply
        // both by.
        const Number share = exact.rounded(beta[row]);
        for (std::int64_t j = 0; j < d_v; ++j) {
          Number seen = 0, sum = 0;
          for (std::int64_t i = 0; i < d; ++i) {
            Number& s = state[i * d_v + j];
            s = g ? exact.rounded(s) * factors[i] : s;
            seen += own_k[i] * exact.rounded(s);
          }
          const Number written = exact.rounded(exact.rounded(share * v[row * d_v + j]) -
                                               exact.rounded(share * exact.rounded(seen)));
          for (std::int64_t i = 0; i < d; ++i) {
            Number& s = state[i * d_v + j];
            s += exact.rounded(own_k[i] * written);
            sum += own_q[i] * exact.rounded(s);
          }
          out[row * d_v + j] = sum * scale;
        }
      }
      if (end) std::copy(state.begin(), state.end(), end + at);
    }
}

}  // namespace tegula::ops
