#include "tests/programs/linear/timings.hpp"

#include <cmath>

namespace programs {
namespace {

using Unit = Timing::Unit;
using Index64 = std::int64_t;
constexpr double epsilon = 1e-5;

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
          Check{"Y", [](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers x = slice("X", {at[0]}), w = slice("weight", {});
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
          Check{"Y", [](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers x = slice("X", {at[0]}), w = slice("weight", {}), b = slice("bias", {});
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
          Check{"dX", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers x = slice("X", {at[0]}), w = slice("weight", {}), g = slice("dY", {at[0]});
                  const double r = slice("factors", {}).values[at[0]];
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
          Check{"KR", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers x = slice("K", {at[0], at[1], at[2]});
                  const Index64 j = at[3] % (D / 2);
                  const double c = slice("cosine", {at[1]})(j), s = slice("sine", {at[1]})(j);
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
          Check{"Y", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers x = slice("X", {at[0]});
                  const Index64 own = a > 1 ? at[1] * (n / a) + at[2] : at[1];
                  double sum = 0;
                  for (Index64 j = 0; j < n; ++j)
                    sum += (__builtin_popcountll(own & j) % 2 ? -1 : 1) * x.values[j];
                  return sum;
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
  const std::vector<Timing> chunks = chunk_timings();
  all.insert(all.end(), chunks.begin(), chunks.end());
  all.push_back(linear_timing("linear_attention", "4 x 8192, 32 heads x 128 f16", false, false));
  all.push_back(linear_timing("linear_attention", "4 x 8192, 32 heads x 128 f16, decay", true, false));
  all.push_back(linear_timing("linear_attention_gradient", "4 x 8192, 32 heads x 128 f16", false, true));
  return all;
}

}  // namespace programs
