#include "tests/programs/linear/timings.hpp"

namespace programs {
namespace {

using Unit = Timing::Unit;
using Index64 = std::int64_t;

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
  double scores() const { return moved(B * S * H * L, 1); }  // bf16, of a chunk's tokens
  Random noise(double deviation = 1) const { return {{B, S, H, D}, bf16, deviation}; }
  Result result() const { return {{B, S, H, D}, bf16}; }
  Shape chunks() const { return {B, S / L, H, D, D}; }
  Shape chunk_rows() const { return {B, S, H, L}; }
  Shape heads() const { return {B, H, D, D}; }
  Shape rows() const { return {B, S, H}; }
  TimedArgument gates() const { return {"G", summed_gates(rows(), static_cast<int>(L), 1, -0.2)}; }
  std::string words() const {
    return B == 1 ? "32 heads x 32768" : std::to_string(B) + " x 32 heads x " + std::to_string(S);
  }
};

Timing delta_gates_timing(const Delta& d) {
  return {"gated_delta_gates",
          {},
          d.words(),
          Unit::bytes,
          moved(d.B * d.S * d.H, 2, 4),
          [=] {
            return std::vector<TimedArgument>{{"G", between(d.rows(), f32, -.2, 0)},
                                              {"Y", Result{d.rows(), f32}}};
          },
          Check{"Y", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  double sum = 0;
                  for (Index64 i = at[1] / d.L * d.L; i <= at[1]; ++i) sum += slice("G", {at[0], i})(at[2]);
                  return sum;
                }}};
}
Timing delta_kkt_timing(const Delta& d) {
  return {"gated_delta_kkt",
          {},
          d.words(),
          Unit::bytes,
          d.tokens(1) + 2 * d.scores(),
          [=] {
            return std::vector<TimedArgument>{{"K", d.noise(.3)},
                                              {"Beta", between(d.rows(), bf16, 0, 1)},
                                              d.gates(),
                                              {"A", Result{d.chunk_rows(), f32}}};
          },
          Check{"A", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Index64 j = at[1] / d.L * d.L + at[3];
                  if (j >= at[1]) return 0.0;
                  const Numbers a = slice("K", {at[0], at[1], at[2]}), b = slice("K", {at[0], j, at[2]});
                  const double fading = slice("G", {at[0], at[1]})(at[2]) - slice("G", {at[0], j})(at[2]);
                  return sum_of(d.D, [&](int x) { return a(x) * b(x); }) * std::exp(fading) *
                         slice("Beta", {at[0], at[1]})(at[2]);
                }}};
}
Timing delta_inverse_timing(const Delta& d) {
  return {"gated_delta_inverse", {}, d.words(), Unit::bytes, 3 * d.scores(), [=] {
            return std::vector<TimedArgument>{{"A", Random{d.chunk_rows(), f32, .05}},
                                              {"X", Result{d.chunk_rows(), bf16}}};
          }};
}
Timing delta_w_u_timing(const Delta& d) {
  return {"gated_delta_w_u",
          {},
          d.words(),
          Unit::bytes,
          d.tokens(4) + d.scores(),
          [=] {
            return std::vector<TimedArgument>{{"K", d.noise()},
                                              {"V", d.noise()},
                                              {"Beta", between(d.rows(), bf16, 0, 1)},
                                              d.gates(),
                                              {"A", Random{d.chunk_rows(), bf16, .2}},
                                              {"W", d.result()},
                                              {"U", d.result()}};
          },
          Check{"U", [=](const SliceOf& slice, const std::vector<Index64>& at) {
                  const Numbers a = slice("A", {at[0], at[1], at[2]});
                  return sum_of(d.L, [&](int j) {
                    const Index64 row = at[1] / d.L * d.L + j;
                    return a(j) * slice("Beta", {at[0], row})(at[2]) * slice("V", {at[0], row, at[2]})(at[3]);
                  });
                }}};
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
Timing delta_out_timing(const Delta& d) {
  return {
      "gated_delta_out",
      {},
      d.words(),
      Unit::bytes,
      d.tokens(4) + d.states(1),
      [=] {
        return std::vector<TimedArgument>{
            {"Q", d.noise()}, {"K", d.noise(.3)}, {"V", d.noise()}, {"states", Random{d.chunks(), bf16, .3}},
            d.gates(),        {"scale", 0.125},   {"O", d.result()}};
      },
      Check{"O", [=](const SliceOf& slice, const std::vector<Index64>& at) {
              const Index64 first = at[1] / d.L * d.L;
              const auto gate = [&](Index64 row) { return slice("G", {at[0], row})(at[2]); };
              const Numbers q = slice("Q", {at[0], at[1], at[2]});
              const Numbers state = slice("states", {at[0], first / d.L, at[2]});
              double sum = std::exp(gate(at[1])) * sum_of(d.D, [&](int x) { return q(x) * state(x, at[3]); });
              for (Index64 j = first; j <= at[1]; ++j) {
                const Numbers k = slice("K", {at[0], j, at[2]});
                sum += sum_of(d.D, [&](int x) { return q(x) * k(x); }) * std::exp(gate(at[1]) - gate(j)) *
                       slice("V", {at[0], j, at[2]})(at[3]);
              }
              return 0.125 * sum;
            }}};
}
Timing delta_state_gradient_timing(const Delta& d) {
  return {"gated_delta_state_gradient", {}, d.words(), Unit::bytes, d.tokens(6) + d.states(1), [=] {
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
          }};
}
Timing delta_out_gradient_timing(const Delta& d) {
  return {"gated_delta_out_gradient", {}, d.words(), Unit::bytes, d.tokens(8) + d.states(2), [=] {
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
          }};
}

// 8 sequences of 4096 tokens in chunks of 256, 80 heads of 64 features with states of 128.
struct Mamba {
  Index64 B = 8, C = 16, L = 256, H = 80, P = 64, N = 128;

  double products(double columns) const { return 2.0 * B * C * L * H * P * columns; }
  Random x() const { return {{B, C, L, H, P}, f16}; }
  Shape states() const { return {B, C, H, P, N}; }
  Shape steps() const { return {B, H, C, L}; }
  TimedArgument dt() const { return {"dt", between(steps(), f32, 0, 1)}; }
  TimedArgument decay() const { return {"dA", summed_gates(steps(), 256, 3, -0.05)}; }
};

Timing mamba_state_timing(const Mamba& m) {
  return {"mamba_chunk_state", {}, "8 x 4096, 80 heads, 64 x 128", Unit::operations, m.products(m.N), [=] {
            return std::vector<TimedArgument>{{"Bs", Random{{m.B, m.C, m.L, 1, m.N}, f16}},
                                              {"X", m.x()},
                                              m.dt(),
                                              m.decay(),
                                              {"states", Result{m.states(), f16}}};
          }};
}
Timing mamba_passing_timing(const Mamba& m) {
  const Shape all{m.B, m.C, m.H, m.P * m.N}, one{m.B, m.H, m.P * m.N};
  return {"mamba_state_passing",
          {},
          "8 x 16 chunks, 80 heads, 64 x 128",
          Unit::bytes,
          moved(m.B * m.C * m.H * m.P * m.N, 2),
          [=] {
            return std::vector<TimedArgument>{{"states", Random{all, f16}},
                                              m.decay(),
                                              {"start", Random{one, f32}},
                                              {"before", Result{all, f16}},
                                              {"end", Result{one, f32}}};
          }};
}
Timing mamba_scan_timing(const Mamba& m) {
  return {"mamba_chunk_scan",
          {},
          "8 x 4096, 80 heads, 64 x 128",
          Unit::operations,
          m.products(m.N + m.L / 2.0),
          [=] {
            return std::vector<TimedArgument>{{"CB", Random{{m.B, m.C, 1, m.L, m.L}, f16}},
                                              {"X", m.x()},
                                              m.dt(),
                                              m.decay(),
                                              {"Cs", Random{{m.B, m.C, m.L, 1, m.N}, f16, .2}},
                                              {"before", Random{m.states(), f16}},
                                              {"D", Random{{m.H}, f32}},
                                              {"out", Result{{m.B, m.C, m.L, m.H, m.P}, f16}}};
          }};
}

}  // namespace

std::vector<Timing> chunk_timings() {
  const Delta delta, several{.B = 4, .S = 8192};
  const Mamba mamba;
  return {delta_gates_timing(delta),        delta_kkt_timing(delta),
          delta_inverse_timing(delta),      delta_w_u_timing(delta),
          delta_state_timing(delta),        delta_state_timing(several),
          delta_out_timing(delta),          delta_state_gradient_timing(delta),
          delta_out_gradient_timing(delta), delta_prefill_timing(delta),
          delta_prefill_timing(several),    mamba_state_timing(mamba),
          mamba_passing_timing(mamba),      mamba_scan_timing(mamba)};
}

}  // namespace programs
