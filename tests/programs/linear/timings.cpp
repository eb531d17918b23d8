#include <cmath>

#include "tests/programs/timing.hpp"

namespace programs {
namespace {

using Unit = Timing::Unit;
using Index64 = std::int64_t;
constexpr double epsilon = 1e-5;

// Rows of bf16, read once and written once.
double moved(Index64 elements, double times, int bytes = 2) {
  return static_cast<double>(elements) * bytes * times;
}
double mean_square(const Numbers& x) {
  double sum = 0;
  for (const double own : x.values) sum += own * own;
  return sum / static_cast<double>(x.values.size());
}
double mean(const Numbers& x) {
  double sum = 0;
  for (const double own : x.values) sum += own;
  return sum / static_cast<double>(x.values.size());
}

Timing rms_norm_timing(Index64 rows, Index64 n, const char* shape) {
  return {"rms_norm",
          {},
          shape,
          Unit::bytes,
          moved(rows * n, 2),
          [=] {
            return std::vector<TimedArgument>{{"X", Random{{rows, n}, bf16}},
                                              {"weight", Random{{n}, bf16}},
                                              {"Y", Result{{rows, n}, bf16}},
                                              {"epsilon", epsilon}};
          },
          Check{"Y", [](const PartOf& part, const std::vector<Index64>& at) {
                  const Numbers x = part("X", {at[0]}), w = part("weight", {});
                  return x(at[1]) / std::sqrt(mean_square(x) + epsilon) * w(at[1]);
                }}};
}

Timing layer_norm_timing() {
  const Index64 rows = 16384, n = 4096;
  return {"layer_norm",
          {},
          "16384 x 4096 bf16",
          Unit::bytes,
          moved(rows * n, 2),
          [=] {
            return std::vector<TimedArgument>{{"X", Random{{rows, n}, bf16}},
                                              {"weight", Random{{n}, bf16}},
                                              {"bias", Random{{n}, bf16}},
                                              {"Y", Result{{rows, n}, bf16}},
                                              {"epsilon", epsilon}};
          },
          Check{"Y", [](const PartOf& part, const std::vector<Index64>& at) {
                  const Numbers x = part("X", {at[0]}), w = part("weight", {}), b = part("bias", {});
                  const double centre = mean(x), variance = mean_square(x) - centre * centre;
                  return (x(at[1]) - centre) / std::sqrt(variance + epsilon) * w(at[1]) + b(at[1]);
                }}};
}

Timing rms_norm_gradient_timing() {
  const Index64 rows = 16384, n = 4096;
  return {"rms_norm_gradient",
          {},
          "16384 x 4096 bf16",
          Unit::bytes,
          moved(rows * n, 3),
          [=] {
            return std::vector<TimedArgument>{
                {"X", Random{{rows, n}, bf16}},  {"weight", Random{{n}, bf16}},
                {"dY", Random{{rows, n}, bf16}}, {"factors", between({rows}, f32, .9, 1.1)},
                {"dX", Result{{rows, n}, bf16}}, {"d_weight", Result{{n}, f32}}};
          },
          Check{"dX", [=](const PartOf& part, const std::vector<Index64>& at) {
                  const Numbers x = part("X", {at[0]}), w = part("weight", {}), g = part("dY", {at[0]});
                  const double r = part("factors", {}).values[at[0]];
                  const double dot = sum_of(n, [&](int j) { return g(j) * w(j) * x(j) * r; }) / n;
                  return r * (g(at[1]) * w(at[1]) - x(at[1]) * r * dot);
                }}};
}

Timing cross_entropy_timing() {
  const Index64 rows = 8192, words = 131072;
  // Read twice and written once.
  return {"cross_entropy", {}, "8192 x 131072 bf16", Unit::bytes, moved(rows * words, 3), [=] {
            return std::vector<TimedArgument>{{"logits", Random{{rows, words}, bf16}},
                                              {"target", between({rows}, i32, 0, words)},
                                              {"loss", Result{{rows}, f32}},
                                              {"lse", Result{{rows}, f32}},
                                              {"scale", 1.0}};
          }};
}

Timing rope_timing() {
  const Index64 B = 4, S = 8192, D = 128, HQ = 32, HK = 8;
  return {"rope",
          {},
          "4 x 8192, 32 + 8 heads x 128 bf16",
          Unit::bytes,
          moved(B * S * (HQ + HK) * D, 2),
          [=] {
            return std::vector<TimedArgument>{
                {"Q", Random{{B, S, HQ, D}, bf16}},          {"K", Random{{B, S, HK, D}, bf16}},
                {"cosine", between({S, D / 2}, f32, -1, 1)}, {"sine", between({S, D / 2}, f32, -1, 1)},
                {"QR", Result{{B, S, HQ, D}, bf16}},         {"KR", Result{{B, S, HK, D}, bf16}}};
          },
          Check{"KR", [=](const PartOf& part, const std::vector<Index64>& at) {
                  const Numbers x = part("K", {at[0], at[1], at[2]});
                  const Index64 j = at[3] % (D / 2);
                  const double c = part("cosine", {at[1]})(j), s = part("sine", {at[1]})(j);
                  const double low = x(j), high = x(j + D / 2);
                  return at[3] < D / 2 ? low * c - high * s : high * c + low * s;
                }}};
}

// Rows as they are, or as matrices [a, n / a].
Timing hadamard_timing(std::vector<std::string> forms, Index64 rows, Index64 n, Index64 a,
                       const char* words) {
  const Shape shape = a > 1 ? Shape{rows, a, n / a} : Shape{rows, n};
  return {"hadamard",
          std::move(forms),
          words,
          Unit::bytes,
          moved(rows * n, 2),
          [=] {
            return std::vector<TimedArgument>{{"X", Random{shape, bf16}}, {"Y", Result{shape, bf16}}};
          },
          Check{"Y", [=](const PartOf& part, const std::vector<Index64>& at) {
                  const Numbers x = part("X", {at[0]});
                  const Index64 own = a > 1 ? at[1] * (n / a) + at[2] : at[1];
                  double sum = 0;
                  for (Index64 j = 0; j < n; ++j)
                    sum += (__builtin_popcountll(own & j) % 2 ? -1 : 1) * x.values[j];
                  return sum;
                }}};
}

// Sums of small negative numbers inside chunks of tokens.
Data summed_gates(const Shape& shape, int chunk, int along, double low) {
  const Data gates = uniform(shape, f32, 9, low, 0);
  float* x = gates.data_as<float>();
  Index64 inner = 1;
  for (std::size_t d = along + 1; d < shape.size(); ++d) inner *= shape[d];
  for (Index64 i = 0; i < gates.nelements(); ++i)
    if (i / inner % shape[along] % chunk != 0) x[i] += x[i - inner];
  return gates;
}

struct Delta {
  Index64 B = 1, S = 32768, H = 32, D = 128, L = 64;

  double tokens(double times) const { return moved(B * S * H * D, times); }  // bf16 [B, S, H, D]
  double states(double times) const { return moved(B * S / L * H * D * D, times); }
  Random noise(double deviation = 1) const { return {{B, S, H, D}, bf16, deviation}; }
  Result result() const { return {{B, S, H, D}, bf16}; }
  Shape chunks() const { return {B, S / L, H, D, D}; }
  Shape heads() const { return {B, H, D, D}; }
  Shape rows() const { return {B, S, H}; }
  TimedArgument gates() const { return {"G", summed_gates(rows(), static_cast<int>(L), 1, -0.2)}; }
  std::string words() const {
    return B == 1 ? "32 heads x 32768" : std::to_string(B) + " x 32 heads x " + std::to_string(S);
  }
};

std::vector<Timing> delta_chunk_timings() {
  const Delta d;
  const double scores = d.tokens(0.5);  // bf16 [B, S, H, 64]
  return {{"gated_delta_gates",
           {},
           d.words(),
           Unit::bytes,
           moved(d.B * d.S * d.H, 2, 4),
           [=] {
             return std::vector<TimedArgument>{{"G", between(d.rows(), f32, -.2, 0)},
                                               {"Y", Result{d.rows(), f32}}};
           },
           Check{"Y",
                 [=](const PartOf& part, const std::vector<Index64>& at) {
                   double sum = 0;
                   for (Index64 i = at[1] / d.L * d.L; i <= at[1]; ++i) sum += part("G", {at[0], i})(at[2]);
                   return sum;
                 }}},
          {"gated_delta_kkt",
           {},
           d.words(),
           Unit::bytes,
           d.tokens(1) + 2 * scores,
           [=] {
             return std::vector<TimedArgument>{{"K", d.noise(.3)},
                                               {"Beta", between(d.rows(), bf16, 0, 1)},
                                               d.gates(),
                                               {"A", Result{{d.B, d.S, d.H, d.L}, f32}}};
           },
           Check{"A",
                 [=](const PartOf& part, const std::vector<Index64>& at) {
                   const Index64 j = at[1] / d.L * d.L + at[3];
                   if (j >= at[1]) return 0.0;
                   const Numbers a = part("K", {at[0], at[1], at[2]}), b = part("K", {at[0], j, at[2]});
                   const double fading = part("G", {at[0], at[1]})(at[2]) - part("G", {at[0], j})(at[2]);
                   return sum_of(d.D, [&](int x) { return a(x) * b(x); }) * std::exp(fading) *
                          part("Beta", {at[0], at[1]})(at[2]);
                 }}},
          {"gated_delta_inverse",
           {},
           d.words(),
           Unit::bytes,
           3 * scores,
           [=] {
             return std::vector<TimedArgument>{{"A", Random{{d.B, d.S, d.H, d.L}, f32, .05}},
                                               {"X", Result{{d.B, d.S, d.H, d.L}, bf16}}};
           }},
          {"gated_delta_w_u",
           {},
           d.words(),
           Unit::bytes,
           d.tokens(4) + scores,
           [=] {
             return std::vector<TimedArgument>{{"K", d.noise()},
                                               {"V", d.noise()},
                                               {"Beta", between(d.rows(), bf16, 0, 1)},
                                               d.gates(),
                                               {"A", Random{{d.B, d.S, d.H, d.L}, bf16, .2}},
                                               {"W", d.result()},
                                               {"U", d.result()}};
           },
           Check{"U", [=](const PartOf& part, const std::vector<Index64>& at) {
                   const Numbers a = part("A", {at[0], at[1], at[2]});
                   return sum_of(d.L, [&](int j) {
                     const Index64 row = at[1] / d.L * d.L + j;
                     return a(j) * part("Beta", {at[0], row})(at[2]) * part("V", {at[0], row, at[2]})(at[3]);
                   });
                 }}}};
}

Timing delta_state_timing(const Delta& d) {
  return {"gated_delta_state", {}, d.words(), Unit::bytes, d.tokens(4) + d.states(1), [=] {
            return std::vector<TimedArgument>{{"K", d.noise(.1)},
                                              {"W", d.noise(.1)},
                                              {"U", d.noise()},
                                              d.gates(),
                                              {"start", Random{d.heads(), f32}},
                                              {"states", Result{d.chunks(), bf16}},
                                              {"V_new", d.result()},
                                              {"end", Result{d.heads(), f32}}};
          }};
}
Timing delta_prefill_timing(const Delta& d) {
  return {"gated_delta_prefill", {}, d.words(), Unit::bytes, d.tokens(4), [=] {
            return std::vector<TimedArgument>{{"Q", d.noise(.3)},
                                              {"K", d.noise(.08)},
                                              {"V", d.noise()},
                                              {"Beta", between(d.rows(), f32, 0, 1)},
                                              d.gates(),
                                              {"start", Random{d.heads(), f32}},
                                              {"scale", 0.125},
                                              {"O", d.result()},
                                              {"end", Result{d.heads(), f32}}};
          }};
}
std::vector<Timing> delta_other_timings() {
  const Delta d;
  return {{"gated_delta_out",
           {},
           d.words(),
           Unit::bytes,
           d.tokens(4) + d.states(1),
           [=] {
             return std::vector<TimedArgument>{{"Q", d.noise()}, {"K", d.noise(.3)},
                                               {"V", d.noise()}, {"states", Random{d.chunks(), bf16, .3}},
                                               d.gates(),        {"scale", 0.125},
                                               {"O", d.result()}};
           },
           Check{"O",
                 [=](const PartOf& part, const std::vector<Index64>& at) {
                   const Index64 first = at[1] / d.L * d.L;
                   const auto gate = [&](Index64 row) { return part("G", {at[0], row})(at[2]); };
                   const Numbers q = part("Q", {at[0], at[1], at[2]});
                   const Numbers state = part("states", {at[0], first / d.L, at[2]});
                   double sum =
                       std::exp(gate(at[1])) * sum_of(d.D, [&](int x) { return q(x) * state(x, at[3]); });
                   for (Index64 j = first; j <= at[1]; ++j) {
                     const Numbers k = part("K", {at[0], j, at[2]});
                     sum += sum_of(d.D, [&](int x) { return q(x) * k(x); }) *
                            std::exp(gate(at[1]) - gate(j)) * part("V", {at[0], j, at[2]})(at[3]);
                   }
                   return 0.125 * sum;
                 }}},
          {"gated_delta_state_gradient",
           {},
           d.words(),
           Unit::bytes,
           d.tokens(6) + d.states(1),
           [=] {
             return std::vector<TimedArgument>{{"Q", d.noise()},
                                               {"K", d.noise(.1)},
                                               {"W", d.noise(.1)},
                                               d.gates(),
                                               {"dO", d.noise()},
                                               {"dV", d.noise()},
                                               {"d_end", Random{d.heads(), f32}},
                                               {"scale", 0.125},
                                               {"d_states", Result{d.chunks(), bf16}},
                                               {"dV2", d.result()},
                                               {"d_start", Result{d.heads(), f32}}};
           }},
          {"gated_delta_out_gradient", {}, d.words(), Unit::bytes, d.tokens(8) + d.states(2), [=] {
             return std::vector<TimedArgument>{{"Q", d.noise()},
                                               {"K", d.noise(.3)},
                                               {"V", d.noise()},
                                               d.gates(),
                                               {"dO", d.noise()},
                                               {"dV", d.noise()},
                                               {"states", Random{d.chunks(), bf16, .3}},
                                               {"d_states", Random{d.chunks(), bf16, .3}},
                                               {"scale", 0.125},
                                               {"dQ", d.result()},
                                               {"dK", d.result()},
                                               {"dW", d.result()},
                                               {"dG", Result{d.rows(), f32}}};
           }}};
}

// 8 sequences of 4096 tokens in chunks of 256, 80 heads of 64 features with states of 128.
std::vector<Timing> mamba_timings() {
  const Index64 B = 8, C = 16, L = 256, H = 80, P = 64, N = 128;
  const double tokens = static_cast<double>(B * C * L * H);
  const Shape steps{B, H, C, L};
  const Random x{{B, C, L, H, P}, f16};
  const TimedArgument dt{"dt", between(steps, f32, 0, 1)};
  const auto decay = [=] { return TimedArgument{"dA", summed_gates(steps, 256, 3, -0.05)}; };
  return {{"mamba_chunk_state",
           {},
           "8 x 4096, 80 heads, 64 x 128",
           Unit::operations,
           2 * tokens * P * N,
           [=] {
             return std::vector<TimedArgument>{{"Bs", Random{{B, C, L, 1, N}, f16}},
                                               {"X", x},
                                               dt,
                                               decay(),
                                               {"states", Result{{B, C, H, P, N}, f16}}};
           }},
          {"mamba_state_passing",
           {},
           "8 x 16 chunks, 80 heads, 64 x 128",
           Unit::bytes,
           moved(B * C * H * P * N, 2),
           [=] {
             return std::vector<TimedArgument>{{"states", Random{{B, C, H, P * N}, f16}},
                                               decay(),
                                               {"start", Random{{B, H, P * N}, f32}},
                                               {"before", Result{{B, C, H, P * N}, f16}},
                                               {"end", Result{{B, H, P * N}, f32}}};
           }},
          {"mamba_chunk_scan",
           {},
           "8 x 4096, 80 heads, 64 x 128",
           Unit::operations,
           2 * tokens * P * (N + L / 2.0),
           [=] {
             return std::vector<TimedArgument>{{"CB", Random{{B, C, 1, L, L}, f16}},
                                               {"X", x},
                                               dt,
                                               decay(),
                                               {"Cs", Random{{B, C, L, 1, N}, f16, .2}},
                                               {"before", Random{{B, C, H, P, N}, f16}},
                                               {"D", Random{{H}, f32}},
                                               {"out", Result{{B, C, L, H, P}, f16}}};
           }}};
}

std::vector<TimedArgument> linear_arguments(bool decay, bool gradient) {
  const Index64 B = 4, S = 8192, H = 32, D = 128;
  const Shape tokens{B, S, H, D};
  std::vector<TimedArgument> all{{"Q", Random{tokens, f16, .3}},
                                 {"K", Random{tokens, f16, .3}},
                                 {"V", Random{tokens, f16}},
                                 {"scale", 0.05}};
  if (decay) all.push_back({"gamma", between({H}, f32, .97, .999)});
  if (gradient) {
    all.push_back({"dO", Random{tokens, f16}});
    for (const char* name : {"dQ", "dK", "dV"}) all.push_back({name, Result{tokens, f16}});
  } else {
    all.push_back({"O", Result{tokens, f16}});
    all.push_back({"final_state", Result{{B, H, D, D}, f32}});
  }
  return all;
}
Timing linear_timing(const char* program, const char* shape, bool decay, bool gradient) {
  return {program, {}, shape, Unit::bytes, moved(Index64{4} * 8192 * 32 * 128, gradient ? 7 : 4), [=] {
            return linear_arguments(decay, gradient);
          }};
}

}  // namespace

std::vector<Timing> linear_timings() {
  std::vector<Timing> all{
      rms_norm_timing(16384, 4096, "16384 x 4096 bf16"),
      layer_norm_timing(),
      rms_norm_gradient_timing(),
      cross_entropy_timing(),
      rope_timing(),
      hadamard_timing({}, 16384, 4096, 1, "16384 x 4096 bf16"),
      hadamard_timing({}, 16384, 4096, 64, "16384 x 4096 bf16"),
      hadamard_timing({}, 4096, 16384, 128, "4096 x 16384 bf16"),
      hadamard_timing({}, 2048, 32768, 1, "2048 x 32768 bf16"),
      hadamard_timing({}, 2048, 32768, 128, "2048 x 32768 bf16"),
  };
  const Delta several{.B = 4, .S = 8192};
  for (const auto& list :
       {delta_chunk_timings(), std::vector<Timing>{delta_state_timing({}), delta_state_timing(several)},
        delta_other_timings(), std::vector<Timing>{delta_prefill_timing({}), delta_prefill_timing(several)},
        mamba_timings()})
    all.insert(all.end(), list.begin(), list.end());
  all.push_back(linear_timing("linear_attention", "4 x 8192, 32 heads x 128 f16", false, false));
  all.push_back(linear_timing("linear_attention", "4 x 8192, 32 heads x 128 f16, decay", true, false));
  all.push_back(linear_timing("linear_attention_gradient", "4 x 8192, 32 heads x 128 f16", false, true));
  return all;
}

}  // namespace programs
