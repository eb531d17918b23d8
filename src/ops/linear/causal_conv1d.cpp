#include "tegula/ops/causal_conv1d.hpp"

#include <functional>

#include "ops/linear/sequences.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int state_rows = 128;  // channels of a tile of states

struct Instance {
  DType type = f32, weight = f32;
  std::optional<DType> bias, initial;
  int width = 4;
  bool silu = false, last = false, packed = false;
  int rows = 32, columns = 64, steps = 8;  // of a tile, and tiles of a block, which share the weights
  auto fields() const {
    return std::tuple(type, labelled("w", weight), labelled("bias", bias), labelled("initial", initial),
                      labelled("width", width), labelled("silu", silu), labelled("last", last),
                      labelled("packed", packed), joined("t", rows, columns), labelled("steps", steps));
  }
  int rows_of_block() const { return rows * steps; }
};

Instance instance_of(const Bound<CausalConv1d>& c, bool last) {
  Instance made{c.type("x"),
                c.type("weight"),
                c.type_if("bias"),
                c.type_if("initial_state"),
                c.small_dim("width"),
                c->silu,
                last,
                c.has("cu_seqlens")};
  if (!made.packed && c.dim("tokens") == 1) made.rows = 1, made.columns = 256, made.steps = 1;
  return made;
}

// The parameters that the result and its gradients share, and the sums before the activation.
struct Convolution {
  const Instance& c;
  Sequences s{c.packed};
  Dim d{"d"};
  LazyDim sequences{"sequences"};
  Tensor x, weight, bias, initial;

  explicit Convolution(const Instance& instance)
      : c(instance),
        x(input("x", {s.batch, s.tokens, d}, c.type)),
        weight(input("weight", {d, c.width}, c.weight)),
        bias(c.bias ? input("bias", {d}, *c.bias) : x),
        initial(c.initial ? input("initial_state", {sequences, d, c.width - 1}, *c.initial) : x) {}

  // The weights and the bias of the channels from `column` on.
  struct Taps {
    std::vector<Fragment> weights;
    std::optional<Fragment> bias;
    Taps(const Convolution& of, const Expr& column) {
      const std::initializer_list<int> channels{of.c.columns};
      for (int w = 0; w < of.c.width; ++w) {
        weights.emplace_back(channels, f32);
        copy(of.weight.slice(all, w).at(column), weights.back());
      }
      if (of.c.bias) copy(of.bias.at(column), bias.emplace(channels, f32));
    }
  };
  // Tokens of `of` from `row` on, as many more as a tile has rows that a sum needs.
  Shared tokens(const Tensor& of, const Expr& n, const Expr& row, const Expr& column) const {
    Shared tile({c.rows + c.width - 1, c.columns}, of.type());
    copy(s.rows(of, n).at(row, column), tile);
    return tile;
  }
  // What an initial state has in the place of x(row + i − width + 1 + w).
  Expr before(const Expr& n, const Expr& row, const Expr& column, int w) const {
    return f32(initial.slice(n)(column, row + w));
  }
  // x(row + i − width + 1 + w), of tokens before the first that of the initial state.
  Fragment shifted(const Shared& tile, const Expr& n, const Expr& row, const Expr& column, int w) const {
    Fragment values({c.rows, c.columns}, f32);
    parallel(values, [&](Index i, Index j) { values(i, j) = f32(tile(i + w, j)); });
    if (c.initial)
      when(row == 0, [&] {
        parallel(values, [&](Index i, Index j) { values(i, j) += before(n, row + i, column + j, w); });
      });
    return values;
  }
  // The sums before the activation.
  Fragment sums(const Shared& tile, const Expr& n, const Expr& row, const Expr& column,
                const Taps& taps) const {
    Fragment sum({c.rows, c.columns}, f32, 0);
    for (int w = 0; w < c.width; ++w) {
      const Fragment& weights = taps.weights[static_cast<std::size_t>(w)];
      parallel(sum, [&](Index i, Index j) { sum(i, j) += f32(tile(i + w, j)) * weights(j); });
      if (c.initial)
        when(row == 0, [&] {
          parallel(sum,
                   [&](Index i, Index j) { sum(i, j) += before(n, row + i, column + j, w) * weights(j); });
        });
    }
    if (taps.bias) parallel(sum, [&](Index i, Index j) { sum(i, j) += (*taps.bias)(j); });
    return sum;
  }
  // body(first row), for the tiles of a block.
  void each_tile(const Expr& block, const std::function<void(const Expr& row)>& body) const {
    pipelined(c.steps, {.stages = 3}, [&](Index step) { body(block * c.rows_of_block() + step * c.rows); });
  }
};

Kernel forward(const Instance& c) {
  return kernel(instance_name("causal_conv1d", c), [&] {
    Convolution conv(c);
    const Sequences& s = conv.s;
    Tensor out = output("out", {s.batch, s.tokens, conv.d}, c.type);
    Tensor last = c.last ? output("final_state", {conv.sequences, conv.d, c.width - 1}, c.type) : out;
    conv.s.declare();
    grid(ceildiv(conv.d, c.columns), s.most_chunks(c.rows_of_block()), s.count(), {.threads = 128},
         [&](Index x, Index y, Index n) {
           Expr column = x * c.columns;
           s.leave_unless(n, y * c.rows_of_block());
           const Convolution::Taps taps(conv, column);
           conv.each_tile(y, [&](const Expr& row) {
             const Shared tile = conv.tokens(conv.x, n, row - (c.width - 1), column);
             Fragment sum = conv.sums(tile, n, row, column, taps);
             if (c.silu)
               parallel(sum, [&](Index i, Index j) { sum(i, j) = sum(i, j) / (1 + exp(-sum(i, j))); });
             copy(sum, s.rows(out, n).at(row, column));
           });
         });
    if (!c.last) return;
    grid(ceildiv(conv.d, state_rows), s.count(), [&](Index x, Index n) {
      Fragment values({state_rows, c.width - 1}, f32);
      Expr first = s.length(n) - (c.width - 1);
      parallel(values, [&](Index i, Index p) {
        Expr channel = x * state_rows + i, value = f32(s.rows(conv.x, n)(first + p, channel));
        values(i, p) = value;
        if (c.initial) values(i, p) += f32(conv.initial.slice(n)(channel, first + p + (c.width - 1)));
      });
      copy(values, last.slice(n).at(x * state_rows));
    });
  });
}

// The gradients of the sums before the activation, in f32, and what each tile has of those of the weights and
// the bias; then those of x and the states, of which every one sums those of `width` tokens.
class Gradients {
 public:
  explicit Gradients(const Instance& instance)
      : c(instance),
        conv(c),
        s(conv.s),
        dout(input("dout", {s.batch, s.tokens, conv.d}, c.type)),
        dlast(c.last ? input("dfinal_state", {conv.sequences, conv.d, c.width - 1}, c.type) : dout),
        dx(output("dx", {s.batch, s.tokens, conv.d}, c.type)),
        dweight(output("dweight", {conv.d, c.width}, f32)),
        dbias(c.bias ? output("dbias", {conv.d}, f32) : dx),
        dinitial(c.initial ? output("dinitial_state", {conv.sequences, conv.d, c.width - 1}, *c.initial)
                           : dx) {
    conv.s.declare();
  }

  void run() {
    Expr tiles = s.most_chunks(c.rows_of_block());
    Tensor dsums = workspace("dsums", {s.batch, s.tokens, conv.d}, f32);
    Tensor parts = workspace("parts", {tiles * s.count(), c.width + 1, conv.d}, f32);
    of_sums(dsums, parts);
    of_weights(parts);
    of_tokens(dsums);
    if (c.initial) of_state(dsums);
  }

 private:
  void of_sums(const Tensor& dsums, const Tensor& parts) {
    Expr blocks = s.most_chunks(c.rows_of_block());
    grid(ceildiv(conv.d, c.columns), blocks, s.count(), [&](Index x, Index y, Index n) {
      Expr column = x * c.columns, part = n * blocks + y;
      const Convolution::Taps taps(conv, column);
      // Sums per row of tiles: the bias, followed by the weights.
      std::vector<Fragment> totals;
      for (int w = 0; w <= c.width; ++w)
        totals.emplace_back(std::initializer_list<int>{c.rows, c.columns}, f32, 0);
      conv.each_tile(y, [&](const Expr& row) {
        Fragment given = load(s.rows(dout, n).at(row, column), {c.rows, c.columns}, f32);
        const Shared tile = conv.tokens(conv.x, n, row - (c.width - 1), column);
        if (c.silu) {
          Fragment sum = conv.sums(tile, n, row, column, taps);
          parallel(given, [&](Index i, Index j) {
            Expr share = 1 / (1 + exp(-sum(i, j)));
            given(i, j) *= share * (1 + sum(i, j) * (1 - share));
          });
        }
        copy(given, s.rows(dsums, n).at(row, column));
        for (int w = 0; w <= c.width; ++w) {
          Fragment& total = totals[static_cast<std::size_t>(w)];
          if (w == c.width) {
            parallel(total, [&](Index i, Index j) { total(i, j) += given(i, j); });
          } else {
            Fragment values = conv.shifted(tile, n, row, column, w);
            parallel(total, [&](Index i, Index j) { total(i, j) += values(i, j) * given(i, j); });
          }
        }
      });
      for (int w = 0; w <= c.width; ++w)
        copy(reduce_sum(totals[static_cast<std::size_t>(w)], 0), parts.slice(part, w).at(column));
    });
  }
  void of_weights(const Tensor& parts) {
    constexpr int channels = 32, parts_of_step = 64;
    grid(ceildiv(conv.d, channels), c.width + 1, [&](Index x, Index w) {
      Fragment totals({parts_of_step, channels}, f32, 0);
      serial(ceildiv(parts.extent(0), parts_of_step), [&](Index step) {
        Fragment some =
            load(parts.slice(all, w).at(step * parts_of_step, x * channels), {parts_of_step, channels});
        parallel(totals, [&](Index i, Index j) { totals(i, j) += some(i, j); });
      });
      Fragment sum = reduce_sum(totals, 0);
      when(w < c.width, [&] { copy(sum, dweight.slice(all, w).at(x * channels)); });
      if (c.bias) when(w == c.width, [&] { copy(sum, dbias.at(x * channels)); });
    });
  }
  // What the tokens from `row` on, and channels from `column` on, pass on to those `before` tokens earlier.
  void of_tokens(const Tensor& dsums) {
    grid(ceildiv(conv.d, c.columns), s.most_chunks(c.rows_of_block()), s.count(),
         [&](Index x, Index y, Index n) {
           Expr column = x * c.columns, length = s.length(n);
           s.leave_unless(n, y * c.rows_of_block());
           const Convolution::Taps taps(conv, column);
           conv.each_tile(y, [&](const Expr& row) {
             Fragment sum({c.rows, c.columns}, f32, 0);
             const Shared tile = conv.tokens(dsums, n, row, column);
             for (int w = 0; w < c.width; ++w) {
               const Fragment& weights = taps.weights[static_cast<std::size_t>(w)];
               parallel(sum,
                        [&](Index i, Index j) { sum(i, j) += tile(i + (c.width - 1 - w), j) * weights(j); });
             }
             if (c.last)
               when(row + c.rows > length - (c.width - 1), [&] {
                 parallel(sum, [&](Index i, Index j) {
                   sum(i, j) += f32(dlast.slice(n)(column + j, row + i - length + (c.width - 1)));
                 });
               });
             copy(sum, s.rows(dx, n).at(row, column));
           });
         });
  }
  void of_state(const Tensor& dsums) {
    grid(ceildiv(conv.d, state_rows), s.count(), [&](Index x, Index n) {
      Fragment values({state_rows, c.width - 1}, f32, 0);
      Expr length = s.length(n);
      parallel(values, [&](Index i, Index p) {
        Expr channel = x * state_rows + i;
        for (int w = 0; w < c.width; ++w)
          values(i, p) += f32(conv.weight(channel, w)) * s.rows(dsums, n)(p - w, channel);
        if (c.last) values(i, p) += f32(dlast.slice(n)(channel, p - length));
      });
      copy(values, dinitial.slice(n).at(x * state_rows));
    });
  }

  const Instance& c;
  Convolution conv;
  const Sequences& s;
  Tensor dout, dlast, dx, dweight, dbias, dinitial;
};

Kernel backward(const Instance& c) {
  return kernel(instance_name("causal_conv1d_backward", c), [&] { Gradients(c).run(); });
}

void run(const Bound<CausalConv1d>& c, Launch& launch) {
  launch(instance_of(c, c->output_final_state), forward,
         {{"x", token_view(c.call(), "x")}, {"out", token_view(c.call(), "out")}});
}

void run_conv_backward(const Bound<CausalConv1d>& c, Launch& launch) {
  launch(instance_of(c, c.has("dfinal_state")), backward,
         {{"x", token_view(c.call(), "x")},
          {"dout", token_view(c.call(), "dout")},
          {"dx", token_view(c.call(), "dx")}});
}

template <class E>
void conv_formula(const Bound<CausalConv1d>& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t d = c.dim("d"), width = c.dim("width"), before = width - 1;
  auto *x = exact.data("x"), *weight = exact.data("weight"), *bias = exact.data_if("bias"),
       *initial = exact.data_if("initial_state"), *out = exact.data("out"),
       *last = exact.data_if("final_state");
  const std::vector<Span> spans = spans_of(c.call());
  for (std::size_t n = 0; n < spans.size(); ++n)
    for (std::int64_t j = 0; j < d; ++j) {
      const std::int64_t state = (static_cast<std::int64_t>(n) * d + j) * before;
      const auto value = [&](std::int64_t t) -> Number {
        return t >= 0 ? x[(spans[n].first + t) * d + j] : initial ? initial[state + t + before] : Number(0);
      };
      for (std::int64_t t = 0; t < spans[n].count; ++t) {
        Number sum = bias ? bias[j] : Number(0);
        for (std::int64_t w = 0; w < width; ++w) sum += value(t - before + w) * weight[j * width + w];
        out[(spans[n].first + t) * d + j] = c->silu ? sum / (1 + exp(-sum)) : sum;
      }
      if (last)
        for (std::int64_t p = 0; p < before; ++p) last[state + p] = value(spans[n].count - before + p);
    }
}

}  // namespace

const OperatorSchema& causal_conv1d_schema() {
  using Op = CausalConv1d;
  static const OperatorSchema table =
      Schema<Op>("causal_conv1d", "short causal convolution of every channel along tokens")
          .in(&Op::x, "x", token_list("d"), floats, "channels of tokens")
          .in(&Op::weight, "weight", "d width", floats,
              "filter of each channel: its last element is the factor of the token itself, the others those "
              "of earlier tokens")
          .in(&Op::bias, "bias", "d", floats, "added to the sums")
          .in(&Op::initial_state, "initial_state", sequence_list("d width-1"), floats,
              "tokens before the first one; zeros if omitted")
          .with(add_fences<Op>)
          .option(&Op::silu, "silu", "x / (1 + exp(-x)) of the sums")
          .option(&Op::output_final_state, "output_final_state", "also returns the state for the next call")
          .require("weight", "2 <= width & width <= 8", "a width from 2 to 8", "use a general convolution")
          .out(&Op::out, "out", token_list("d"), same_as("x"), "the sums, or silu of them")
          .out(&Op::final_state, "final_state", sequence_list("d width-1"), same_as("x"),
               "the last width - 1 tokens")
          .when("output_final_state")
          .source("Dao 2023, causal-conv1d; Gu and Dao 2023, Mamba")
          .gradient("causal_conv1d_backward")
          .flops("2*batch*tokens*d*width")
          .examples({{"ragged", "batch=2 tokens=20 d=10 width=4 bias initial_state silu output_final_state"},
                     {"packed_bf16",
                      "tokens=90 sequences=4 cu_seqlens d=72 width=3 bf16 weight:f32 "
                      "initial_state output_final_state"},
                     {"one_token_f16",
                      "batch=3 tokens=1 d=80 width=4 f16 bias initial_state silu "
                      "output_final_state"}})
          .measured({{"8x4096x4096_bf16", "batch=8 tokens=4096 d=4096 width=4 bf16 bias silu"},
                     {"one_token_128",
                      "batch=128 tokens=1 d=8192 width=4 bf16 bias initial_state silu "
                      "output_final_state"}})
          .run(run, conv_formula<Exact>);
  return table;
}

const OperatorSchema& causal_conv1d_backward_schema() {
  return gradient_table<run_conv_backward, conv_formula<Traced>>(causal_conv1d_schema(),
                                                                 "8*batch*tokens*d*width", "");
}

}  // namespace tegula::ops
