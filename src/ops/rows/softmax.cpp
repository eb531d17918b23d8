#include "tegula/ops/softmax.hpp"

#include <algorithm>
#include <limits>

#include "ops/pieces/kept_rows.hpp"
#include "ops/pieces/row_tiles.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/rows/maps.hpp"
#include "ops/rows/row_notes.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

template <class Op>
inline constexpr bool is_logarithm = std::is_same_v<Op, LogSoftmax>;

// Rows of up to this many features are held by a block; longer ones are read twice, in pieces.
constexpr int longest_held = 16384;

template <class Op>
struct SoftmaxInstance {
  DType type = f32;
  int dim = 0, rows = 1;  // features of a row, 0 of any number of them; rows of a tile
  SpreadRows pieces = {};
  std::optional<int> held = {};    // pieces in registers
  std::optional<int> spread = {};  // threads of each CTA that holds a part of the row
  std::optional<int> threads = {};
  auto fields() const {
    return std::tuple(type, dim, rows, pieces, labelled("held", held), labelled("spread", spread),
                      labelled("threads", threads));
  }
  bool holds_rows() const { return dim > 0; }
  GridOptions options() const { return options_of_held_rows(spread, threads); }
};

// Of gradients threads have three or four pieces of 16 bits; of f32, whose pieces take twice the registers,
// two.
std::optional<int> threads_of_rows(const BoundCall& call, int dim, int tensors, DType type) {
  const bool has_engine = has_copy_engine(call);
  if (tensors == 1) return threads_of_cut_row(dim, has_engine);
  return type.bits() == 16 ? threads_of_cut_row(dim, has_engine, {3, 4})
                           : threads_of_cut_row(dim, has_engine, {2});
}

template <class Op, int tensors>
SoftmaxInstance<Op> softmax_plan(const Bound<Op>& c) {
  const int dim = c.small_dim("d");
  if (dim > longest_held) {
    if (const auto threads = threads_of_rows(c.call(), dim, tensors, c.type("x")))
      return {c.type("x"), dim, 1, {}, {}, threads};
    const SpreadRows pieces = spread_rows(c.dim("d"), c.type("x"), c.on_gpu(), tensors);
    return {c.type("x"), 0, 1, pieces, held_pieces(c.dim("d"), c.type("x"), pieces.rows, tensors)};
  }
  int rows = rows_of_plan(8192, dim, c.on_gpu(), c.type("x"));
  if (c.on_gpu() && tensors > 1) rows = whole_power(rows);
  rows = rows_of_tile(rows, dim);
  return {c.type("x"), dim, rows, {}, {}, {}, threads_of_cut_tile(rows, dim, tensors, c.on_gpu())};
}

// Every row x becomes exp(x − largest), and the sum of these is given back.
Fragment exponentials(Fragment& x) {
  Fragment most = reduce_max(x);
  parallel(x, [&](Index i, Index j) { x(i, j) = exp2((x(i, j) - most(i)) * log2e); });
  return reduce_sum(x);
}

template <class Op>
void held_rows(const SoftmaxInstance<Op>& c, const Tensor& x, const Tensor& out) {
  grid(ceildiv(x.extent(0), c.rows), c.options(), [&](Index block) {
    Fragment values = load(x.at(block * c.rows), {c.rows, c.dim}, f32);
    if (is_logarithm<Op>) {
      Fragment most = reduce_max(values);
      Fragment sum =
          reduce_sum(map(values, [&](Index i, Index j) { return exp2((values(i, j) - most(i)) * log2e); }));
      parallel(sum, [&](Index i) { sum(i) = log(sum(i)) + most(i); });
      parallel(values, [&](Index i, Index j) { values(i, j) -= sum(i); });
    } else {
      Fragment sum = exponentials(values);
      parallel(sum, [&](Index i) { sum(i) = 1.f / sum(i); });
      parallel(values, [&](Index i, Index j) { values(i, j) *= sum(i); });
    }
    copy(values, out.at(block * c.rows));
  });
}

constexpr double nothing = -std::numeric_limits<double>::infinity();

template <class Op>
void rows_in_pieces(const SoftmaxInstance<Op>& c, const Tensor& x, const Tensor& out) {
  grid(x.extent(0), c.pieces.options(), [&](Index row) {
    const KeptRows kept(c.pieces.rows, c.held.value_or(0), {{x.slice(row), nothing}});
    ExponentialSums sums(c.pieces.rows, c.type);
    kept.each([&](const Expr&, std::vector<Fragment>& values) { sums.add(values[0]); });
    const ExponentialSums::Total total = sums.total();
    const Var subtracted = is_logarithm<Op> ? total.lse() : total.largest, factor = 1.f / total.sum;
    kept.each_again([&](const Expr& first, std::vector<Fragment>& values) {
      Fragment& own = values[0];
      parallel(own, [&](Index j) {
        Expr less = own(j) - subtracted;
        own(j) = is_logarithm<Op> ? less : exp2(less * log2e) * factor;
      });
      copy(own, out.slice(row).at(first));
    });
  });
}

template <class Op>
Kernel softmax_forward(const SoftmaxInstance<Op>& c) {
  return kernel(instance_name(is_logarithm<Op> ? "log_softmax" : "softmax", c), [&] {
    Dim rows("rows");
    const Operand features = c.holds_rows() ? Operand(c.dim) : Operand(c.pieces.rows.features("d"));
    Tensor x = input("x", {rows, features}, c.type), out = output("out", {rows, features}, c.type);
    if (c.holds_rows())
      held_rows(c, x, out);
    else
      rows_in_pieces(c, x, out);
  });
}

// With p = softmax(x): dx = p · (dout − sum(p · dout)), and of the logarithm dout − p · sum(dout).
template <class Op>
void gradients_of_held_rows(const SoftmaxInstance<Op>& c, const Tensor& dout, const Tensor& x,
                            const Tensor& dx) {
  grid(ceildiv(x.extent(0), c.rows), c.options(), [&](Index block) {
    Fragment values = load(x.at(block * c.rows), {c.rows, c.dim}, f32);
    Fragment given = load(dout.at(block * c.rows), {c.rows, c.dim}, f32), sum = exponentials(values);
    parallel(sum, [&](Index i) { sum(i) = 1.f / sum(i); });
    Fragment along = is_logarithm<Op> ? reduce_sum(given) : reduce_sum(map(given, [&](Index i, Index j) {
      return given(i, j) * values(i, j);
    }));
    if (!is_logarithm<Op>) parallel(along, [&](Index i) { along(i) *= sum(i); });
    parallel(values, [&](Index i, Index j) {
      Expr p = values(i, j) * sum(i);
      values(i, j) = is_logarithm<Op> ? given(i, j) - p * along(i) : p * (given(i, j) - along(i));
    });
    copy(values, dx.at(block * c.rows));
  });
}

template <class Op>
void gradients_in_pieces(const SoftmaxInstance<Op>& c, const Tensor& dout, const Tensor& x,
                         const Tensor& dx) {
  grid(x.extent(0), c.pieces.options(), [&](Index row) {
    const KeptRows kept(c.pieces.rows, c.held.value_or(0), {{x.slice(row), nothing}, {dout.slice(row)}});
    ExponentialSums sums(c.pieces.rows, c.type, !is_logarithm<Op>);
    Fragment plain({c.pieces.rows.piece}, f32, 0);
    kept.each([&](const Expr&, std::vector<Fragment>& values) {
      if (is_logarithm<Op>) parallel(plain, [&](Index j) { plain(j) += values[1](j); });
      sums.add(values[0], &values[1]);
    });
    const ExponentialSums::Total total = sums.total();
    const Var factor = 1.f / total.sum;
    const Var all = is_logarithm<Op> ? reduce_sum(plain).scalar() : total.along * factor;
    kept.each_again([&](const Expr& first, std::vector<Fragment>& values) {
      Fragment &own = values[0], &given = values[1];
      parallel(own, [&](Index j) {
        Expr p = exp2((own(j) - total.largest) * log2e) * factor;
        own(j) = is_logarithm<Op> ? given(j) - p * all : p * (given(j) - all);
      });
      copy(own, dx.slice(row).at(first));
    });
  });
}

template <class Op>
Kernel softmax_backward(const SoftmaxInstance<Op>& c) {
  return kernel(instance_name(is_logarithm<Op> ? "log_softmax_backward" : "softmax_backward", c), [&] {
    Dim rows("rows");
    const Operand features = c.holds_rows() ? Operand(c.dim) : Operand(c.pieces.rows.features("d"));
    Tensor dout = input("dout", {rows, features}, c.type), x = input("x", {rows, features}, c.type);
    Tensor dx = output("dx", {rows, features}, c.type);
    if (c.holds_rows())
      gradients_of_held_rows(c, dout, x, dx);
    else
      gradients_in_pieces(c, dout, x, dx);
  });
}

template <class Op, int tensors, Kernel (*program)(const SoftmaxInstance<Op>&)>
void run_softmax(const Bound<Op>& c, Launch& launch) {
  const SoftmaxInstance<Op> made = softmax_plan<Op, tensors>(c);
  constexpr int most_rows = 2;
  if (c.on_gpu() && made.holds_rows() && made.rows <= most_rows) note_cut_rows(launch, c.dim("d"), made.type);
  if (c.on_gpu() && tensors > 1) note_idle_lanes(launch, c.dim("d"), made.type);
  launch(made, program);
}

double plain(double x) { return x; }
double plain(const TracedNumber& x) { return x.value; }

template <class Op, class E>
void softmax_formula(const Bound<Op>& c, E& exact) {
  const std::int64_t rows = c.dim("rows"), d = c.dim("d");
  auto *x = exact.data("x"), *out = exact.data("out");
  for (std::int64_t i = 0; i < rows; ++i, x += d, out += d) {
    double most = nothing;
    for (std::int64_t j = 0; j < d; ++j) most = std::max(most, plain(x[j]));
    typename E::Number sum = 0;
    for (std::int64_t j = 0; j < d; ++j) sum += exp(x[j] - most);
    for (std::int64_t j = 0; j < d; ++j)
      out[j] = is_logarithm<Op> ? x[j] - most - exact.step(log(sum)) : exact.step(exp(x[j] - most)) / sum;
  }
}

std::vector<CallMap> softmax_maps() { return row_maps({}); }

template <class Op>
OperatorSchema& softmax_table(const char* name, const char* doc, const char* result, const char* gradient) {
  static OperatorSchema table =
      Schema<Op>(name, doc)
          .in(&Op::x, "x", "... d", floats, "rows")
          .out(&Op::out, "out", "... d", same_as("x"), result)
          .require("x", "d >= 1", "1 feature or more", "leave the call out")
          .source(
              "Milakov and Gimelshein 2018, Online normalizer calculation for softmax, for rows that are "
              "read in chunks")
          .gradient(gradient)
          .flops("4*rows*d")
          .examples({{"ragged", "...=37 d=100"},
                     {"short_bf16", "...=300 d=20 bf16"},
                     {"odd", "...=3 d=8193"},
                     {"odd_bf16", "...=2 d=16385 bf16"},
                     {"batched_bf16", "...=2,7 d=512 bf16"},
                     {"long_f16", "...=3 d=16500 f16"},
                     {"spread", "...=1 d=54002"},
                     {"768_bf16", "...=37 d=768 bf16"},
                     {"7168_bf16", "...=3 d=7168 bf16"},
                     {"18432_bf16", "...=2 d=18432 bf16"}})
          .measured({{"16384x4096_bf16", "...=16384 d=4096 bf16"},
                     {"4096x16384_bf16", "...=4096 d=16384 bf16"},
                     {"262144x128_bf16", "...=262144 d=128 bf16"},
                     {"512x131072_bf16", "...=512 d=131072 bf16"}})
          .maps(softmax_maps())
          .run(run_softmax<Op, 1, softmax_forward<Op>>, softmax_formula<Op, Exact>);
  return table;
}

}  // namespace

const OperatorSchema& softmax_schema() {
  return softmax_table<Softmax>("softmax", "exponentials of rows, divided by their sum",
                                "exp(x) / sum(exp(x))", "softmax_backward");
}

const OperatorSchema& log_softmax_schema() {
  return softmax_table<LogSoftmax>("log_softmax", "rows minus the logarithm of the sum of their exponentials",
                                   "x - log(sum(exp(x)))", "log_softmax_backward");
}

const OperatorSchema& softmax_backward_schema() {
  using Op = Softmax;
  return gradient_table<run_softmax<Op, 2, softmax_backward<Op>>, softmax_formula<Op, Traced>>(
      softmax_schema(), "8*rows*d", "");
}

const OperatorSchema& log_softmax_backward_schema() {
  using Op = LogSoftmax;
  return gradient_table<run_softmax<Op, 2, softmax_backward<Op>>, softmax_formula<Op, Traced>>(
      log_softmax_schema(), "8*rows*d", "");
}

}  // namespace tegula::ops
