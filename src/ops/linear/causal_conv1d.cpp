#include "tegula/ops/causal_conv1d.hpp"

#include <algorithm>

#include "ops/linear/chunk_owners.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

// A block has `columns` channels of steps · rows tokens, one after the other: a thread holds channels, and
// what its next token needs of those before it. `rows` tokens come to shared memory together.
struct Instance {
  DType type = f32, weight = f32;
  std::optional<DType> bias, initial;
  int width = 4;
  bool silu = false, last = false, packed = false;
  int rows = 8, columns = 512, steps = 16;
  auto fields() const {
    return std::tuple(type, labelled("w", weight), labelled("bias", bias), labelled("initial", initial),
                      labelled("width", width), labelled("silu", silu), labelled("last", last),
                      labelled("packed", packed), joined("t", rows, columns), labelled("steps", steps));
  }
  int before() const { return width - 1; }
  int rows_of_block() const { return rows * steps; }
  int threads() const { return std::clamp(columns / 4, 32, 128); }
};

// A call of one token has a tile of `rows_of_one`.
Instance instance_of(const Bound<CausalConv1d>& c, bool last, int rows, int steps, int rows_of_one) {
  const std::int64_t d = c.dim("d");
  Instance made{c.type("x"), c.type("weight"), c.type_if("bias"), c.type_if("initial_state")};
  made.width = c.small_dim("width"), made.silu = c->silu;
  made.last = last, made.packed = c.has("cu_seqlens");
  while (made.columns > 64 && (made.columns / 2 >= d || (d % 64 == 0 && d % made.columns != 0)))
    made.columns /= 2;
  made.rows = rows, made.steps = steps;
  if (!made.packed && c.dim("tokens") == 1) made.rows = rows_of_one, made.steps = 1;
  return made;
}

// Tokens of the channels of a block.
using Rows = std::vector<Fragment>;

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
        initial(c.initial ? input("initial_state", {sequences, d, c.before()}, *c.initial) : x) {}

  // The weights and the bias of the channels from `column` on.
  struct Taps {
    Rows weights;
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
  // `count` tokens of `of` from `row` on.
  Rows tokens(const Tensor& of, const Expr& n, const Expr& row, const Expr& column, int count) const {
    Rows result;
    for (int k = 0; k < count; ++k)
      result.push_back(load(s.rows(of, n).at(row + k, column), {1, c.columns}, f32));
    return result;
  }
  // The tokens before the block's first one, `row`, of which an initial state has those before the sequence.
  Rows tokens_before(const Expr& n, const Expr& row, const Expr& column, int count) const {
    Rows result = tokens(x, n, row - count, column, count);
    if (c.initial)
      when(row == 0, [&] {
        for (int p = 0; p < c.before(); ++p) {
          Fragment& values = result[static_cast<std::size_t>(count - c.before() + p)];
          parallel(values, [&](Index i, Index j) { values(i, j) = state(initial, n, column + j, p); });
        }
      });
    return result;
  }
  static Expr state(const Tensor& of, const Expr& n, const Expr& channel, const Expr& p) {
    return f32(of.slice(n)(channel, p));
  }
  // The sums before the activation of the last of `width` tokens, which begin at number `first`.
  Fragment sum(const Rows& tokens, int first, const Taps& taps) const {
    Fragment result({1, c.columns}, f32);
    parallel(result, [&](Index i, Index j) {
      Var total = taps.bias ? Expr((*taps.bias)(j)) : Expr(0.f);
      for (int w = 0; w < c.width; ++w) total += tokens[first + w](i, j) * taps.weights[w](j);
      result(i, j) = total;
    });
    return result;
  }
  // Keeps the last tokens of `tokens` as the first ones of the next tile.
  void keep_last(Rows& kept, const Rows& tokens) const {
    for (std::size_t p = 0; p < kept.size(); ++p) copy(tokens[tokens.size() - kept.size() + p], kept[p]);
  }
};

// Rows of `kept`, followed by those of a tile.
Rows followed(const Rows& kept, const Shared& tile) {
  Rows result;
  for (const Fragment& row : kept) result.push_back(clone(row));
  for (int k = 0; k < tile.extent(0); ++k) {
    Fragment& row = result.emplace_back(std::initializer_list<int>{1, tile.extent(1)}, f32);
    parallel(row, [&](Index i, Index j) { row(i, j) = f32(tile(k + i, j)); });
  }
  return result;
}

Expr sigmoid(const Expr& x) { return rcp(1.f + exp2(-x * log2e)); }

struct Forward {
  const Instance& c;
  Convolution conv{c};
  Tensor out = output("out", {conv.s.batch, conv.s.tokens, conv.d}, c.type);
  Tensor last = c.last ? output("final_state", {conv.sequences, conv.d, c.before()}, c.type) : out;

  void run() {
    const Sequences& s = conv.s;
    conv.s.declare_chunks();
    grid(ceildiv(conv.d, c.columns), s.chunks(c.rows_of_block()), s.parts(), {.threads = c.threads()},
         [&](Index x, Index y, Index z) {
           const auto [n, chunk] = s.place(y, z, c.rows_of_block());
           Expr first = chunk * c.rows_of_block();
           s.leave_unless(n, first);
           tokens(n, first, x * c.columns);
         });
    if (c.last) final_states();
  }
  void tokens(const Expr& n, const Expr& first, const Expr& column) const {
    const Convolution::Taps taps(conv, column);
    Rows kept = conv.tokens_before(n, first, column, c.before());
    Expr steps = clamp(ceildiv(conv.s.length(n) - first, c.rows), 0, c.steps);
    pipelined(steps, {.stages = 3}, [&](Index step) {
      Expr row = first + step * c.rows;
      Shared tile({c.rows, c.columns}, c.type);
      copy(conv.s.rows(conv.x, n).at(row, column), tile);
      const Rows all_tokens = followed(kept, tile);
      for (int k = 0; k < c.rows; ++k) {
        Fragment sum = conv.sum(all_tokens, k, taps);
        if (c.silu) parallel(sum, [&](Index i, Index j) { sum(i, j) *= sigmoid(sum(i, j)); });
        copy(sum, conv.s.rows(out, n).at(row + k, column));
      }
      conv.keep_last(kept, all_tokens);
    });
  }
  // The last tokens, of a sequence with fewer those of the initial state before them: by a grid of its own,
  // whose threads write neighbouring elements of states.
  void final_states() const {
    constexpr int channels = 128;
    grid(ceildiv(conv.d, channels), conv.s.count(), [&](Index x, Index n) {
      Fragment values({channels, c.before()}, f32);
      Expr first = conv.s.length(n) - c.before();
      parallel(values, [&](Index i, Index p) {
        Expr channel = x * channels + i, value = f32(conv.s.rows(conv.x, n)(first + p, channel));
        values(i, p) = value;
        if (c.initial) values(i, p) += Convolution::state(conv.initial, n, channel, first + p + c.before());
      });
      copy(values, last.slice(n).at(x * channels));
    });
  }
};

// One pass over tokens: the gradients of the sums before the activation, of which that of x is the sum of
// `width`, so that it is known when as many tokens later are. A block adds up the gradients of the weights
// and the bias of its own tokens.
class Gradients {
 public:
  explicit Gradients(const Instance& instance)
      : c(instance),
        conv(c),
        s(conv.s),
        dout(input("dout", {s.batch, s.tokens, conv.d}, c.type)),
        dlast(c.last ? input("dfinal_state", {conv.sequences, conv.d, c.before()}, c.type) : dout),
        dx(output("dx", {s.batch, s.tokens, conv.d}, c.type)),
        dweight(output("dweight", {conv.d, c.width}, f32)),
        dbias(c.bias ? output("dbias", {conv.d}, f32) : dx),
        dinitial(c.initial ? output("dinitial_state", {conv.sequences, conv.d, c.before()}, *c.initial)
                           : dx) {
    conv.s.declare_chunks();
  }

  void run() {
    Expr blocks = s.chunks(c.rows_of_block(), c.before());
    Tensor partials = workspace("parts", {blocks * s.parts(), c.width + 1, conv.d}, f32);
    grid(ceildiv(conv.d, c.columns), blocks, s.parts(), {.threads = c.threads()},
         [&](Index x, Index y, Index z) {
           const auto [n, chunk] = s.place(y, z, c.rows_of_block(), c.before());
           of_tokens(n, chunk * c.rows_of_block(), x * c.columns, partials.slice(z * blocks + y));
         });
    of_weights(partials);
  }

 private:
  // The gradient of the sums of token number `first` + width − 1.
  Fragment of_sum(const Rows& tokens, int first, const Convolution::Taps& taps, const Fragment& given) const {
    Fragment gradient = clone(given);
    if (!c.silu) return gradient;
    Fragment sum = conv.sum(tokens, first, taps);
    parallel(gradient, [&](Index i, Index j) {
      Expr share = sigmoid(sum(i, j));
      gradient(i, j) *= share * (1 + sum(i, j) * (1 - share));
    });
    return gradient;
  }
  // Those of the tokens before the block's first one.
  Rows of_sums_before(const Expr& n, const Expr& first, const Expr& column, const Convolution::Taps& taps,
                      const Rows& tokens) const {
    Rows gradients = conv.tokens(dout, n, first - c.before(), column, c.before());
    for (int p = 0; p < c.before(); ++p) copy(of_sum(tokens, p, taps, gradients[p]), gradients[p]);
    return gradients;
  }
  void of_tokens(const Expr& n, const Expr& first, const Expr& column, const Tensor& partial) const {
    s.hold_promise(n);
    const Convolution::Taps taps(conv, column);
    Rows totals;  // of the weights, and of the bias
    for (int w = 0; w <= c.width; ++w) totals.emplace_back(std::initializer_list<int>{1, c.columns}, f32, 0);
    Rows earlier = conv.tokens_before(n, first, column, 2 * c.before());
    Rows kept_gradients = of_sums_before(n, first, column, taps, earlier), kept;
    for (int p = 0; p < c.before(); ++p) kept.push_back(clone(earlier[p + c.before()]));
    Expr steps = clamp(ceildiv(s.length(n) + c.before() - first, c.rows), 0, c.steps);
    pipelined(steps, {.stages = 3}, [&](Index step) {
      Expr row = first + step * c.rows;
      Shared tile({c.rows, c.columns}, c.type), given({c.rows, c.columns}, c.type);
      copy(s.rows(conv.x, n).at(row, column), tile);
      copy(s.rows(dout, n).at(row, column), given);
      const Rows tokens = followed(kept, tile);
      Rows gradients = followed(kept_gradients, given);
      for (int k = 0; k < c.rows; ++k) {
        Fragment& own = gradients[k + c.before()];
        copy(of_sum(tokens, k, taps, own), own);
        add(totals, tokens, k, own);
        of_token(n, row + (k - c.before()), column, gradients, k, taps);
      }
      conv.keep_last(kept, tokens), conv.keep_last(kept_gradients, gradients);
    });
    for (int w = 0; w <= c.width; ++w) copy(totals[w].reshape({c.columns}), partial.slice(w).at(column));
  }
  void add(Rows& totals, const Rows& tokens, int first, const Fragment& gradient) const {
    for (int w = 0; w <= c.width; ++w) {
      Fragment& total = totals[w];
      parallel(total, [&](Index i, Index j) {
        total(i, j) += w == c.width ? Expr(gradient(i, j)) : tokens[first + w](i, j) * gradient(i, j);
      });
    }
  }
  // The gradient of token `row`, of the initial state where that is negative, by those of sums from number
  // `first` on.
  void of_token(const Expr& n, const Expr& row, const Expr& column, const Rows& gradients, int first,
                const Convolution::Taps& taps) const {
    Fragment sum({1, c.columns}, f32);
    parallel(sum, [&](Index i, Index j) {
      Var total = 0.f;
      for (int w = 0; w < c.width; ++w) total += gradients[first + c.before() - w](i, j) * taps.weights[w](j);
      sum(i, j) = total;
    });
    if (c.last) {
      Expr place = row - s.length(n) + c.before();
      when(place >= 0, [&] {
        parallel(sum,
                 [&](Index i, Index j) { sum(i, j) += Convolution::state(dlast, n, column + j, place + i); });
      });
    }
    copy(sum, s.rows(dx, n).at(row, column));
    if (c.initial)
      when(row < 0, [&] {
        parallel(sum,
                 [&](Index i, Index j) { dinitial.slice(n)(column + j, row + c.before() + i) = sum(i, j); });
      });
  }
  void of_weights(const Tensor& partials) {
    constexpr int channels = 32, partials_of_step = 64;
    grid(ceildiv(conv.d, channels), c.width + 1, [&](Index x, Index w) {
      Fragment totals({partials_of_step, channels}, f32, 0);
      serial(ceildiv(partials.extent(0), partials_of_step), [&](Index step) {
        Fragment some = load(partials.slice(all, w).at(step * partials_of_step, x * channels),
                             {partials_of_step, channels});
        parallel(totals, [&](Index i, Index j) { totals(i, j) += some(i, j); });
      });
      Fragment sum = reduce_sum(totals, 0);
      when(w < c.width, [&] { copy(sum, dweight.slice(all, w).at(x * channels)); });
      if (c.bias) when(w == c.width, [&] { copy(sum, dbias.at(x * channels)); });
    });
  }

  const Instance& c;
  Convolution conv;
  const Sequences& s;
  Tensor dout, dlast, dx, dweight, dbias, dinitial;
};

Kernel forward(const Instance& c) {
  return kernel(instance_name("causal_conv1d", c), [&] { Forward{c}.run(); });
}

Kernel backward(const Instance& c) {
  return kernel(instance_name("causal_conv1d_backward", c), [&] { Gradients(c).run(); });
}

void run(const Bound<CausalConv1d>& c, Launch& launch) {
  const Instance instance = instance_of(c, c->output_final_state, 8, 16, 1);
  share_chunk_owners(c.call(), launch, {instance.rows_of_block()});
  launch(instance, forward, {{"x", token_view(c.call(), "x")}, {"out", token_view(c.call(), "out")}});
}

void run_conv_backward(const Bound<CausalConv1d>& c, Launch& launch) {
  const Instance instance = instance_of(c, c.has("dfinal_state"), 4, 64, c.small_dim("width"));
  share_chunk_owners(c.call(), launch, {instance.rows_of_block(), instance.before()});
  launch(instance, backward,
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
