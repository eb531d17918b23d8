#include "tegula/ops/norm_fp8.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "ops/pieces/row_tiles.hpp"
#include "ops/rows/cast_fp8_kernel.hpp"
#include "ops/rows/norm.hpp"
#include "ops/rows/row_statistics.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int scaled_features = CastFp8Kernel::group;

template <class Op>
struct NormFp8Instance {
  DType type = f32;
  std::optional<DType> weight = {}, bias = {};
  bool residual = false, power_of_two = false;
  int dim = 0, rows = 1;  // rows of a tile
  std::optional<LongRows> pieces = {};  // of rows that no block holds; their number of features is no part
  std::optional<int> threads = {}, padded = {};  // features of a tile's row, if more than its groups have
  auto fields() const {
    return std::tuple(type, labelled("weight", weight), labelled("bias", bias),
                      labelled("residual", residual), labelled("power_of_two", power_of_two), dim, rows,
                      pieces, labelled("threads", threads), labelled("padded", padded));
  }
  int groups() const { return (dim + scaled_features - 1) / scaled_features; }
  int width() const { return padded.value_or(groups() * scaled_features); }
};

// Rows of more features are read in pieces: no block holds them.
constexpr int longest_fp8_norm = 2 * longest_held_norm;
constexpr int threads_of_long = 512, most_of_long = 640, threads_of_short = 256;

// Threads of which each has 1, 2 or 4 pieces of 16 features, so that groups of features are within warps; 0
// if there are none, or where other numbers do that.
int threads_of_groups(int width) {
  constexpr int piece = 16, warp = 32, most_pieces = 4;
  const int pieces = width / piece;
  const bool is_long = width > longest_held_norm;
  if ((pieces & (pieces - 1)) == 0 || pieces % (is_long ? threads_of_long : threads_of_short) == 0) return 0;
  for (const int most : {is_long ? most_of_long : threads_of_short, threads_of_long})
    for (int own = 1; own <= most_pieces; own *= 2)
      if (pieces % (own * warp) == 0 && pieces / own <= most) return pieces / own;
  return 0;
}

bool is_held_norm(int width, bool on_gpu) {
  if (width <= longest_held_norm) return true;
  const bool is_even = width % (threads_of_long * 16) == 0 || threads_of_groups(width) > 0;
  return on_gpu && width <= longest_fp8_norm && is_even;
}

// On a GPU: where no threads have whole pieces, rows of a tile are longer, by zeros, so that groups still are
// within warps.
template <class Op>
void divide_row(NormFp8Instance<Op>& made) {
  constexpr int most_padded = 8192;
  const int width = made.width(), threads = threads_of_groups(width);
  const auto power = static_cast<int>(std::bit_ceil(static_cast<unsigned>(width)));
  if (threads > 0)
    made.threads = threads;
  else if (width > longest_held_norm)
    made.threads = threads_of_long;
  else if (width < power && power <= most_padded)
    made.padded = power;
}

template <class Op>
NormFp8Instance<Op> norm_fp8_plan(const Bound<Op>& c) {
  constexpr int elements = 8192, most_rows = 16;
  NormFp8Instance<Op> made{.type = c.type("x"),
                           .weight = c.type_if("weight"),
                           .residual = c.has("residual"),
                           .power_of_two = c->power_of_two,
                           .dim = c.small_dim("d")};
  if constexpr (is_centred<Op>) made.bias = c.type_if("bias");
  if (!is_held_norm(made.width(), c.on_gpu())) {
    made.pieces = kept_rows(c.dim("d"), c.type("x"), c.on_gpu(), made.residual ? 2 : 1);
    made.dim = 0;
    return made;
  }
  if (c.on_gpu()) divide_row(made);
  if (!made.threads)
    made.rows = rows_of_tile(std::clamp(elements / std::max(made.width(), 1), 1, most_rows), made.width());
  return made;
}

template <class Op>
struct NormFp8 {
  const NormFp8Instance<Op>& c;
  Dim rows{"rows"};
  Tensor x = input("x", {rows, c.dim}, c.type), out = output("out", {rows, c.dim}, e4m3);
  Tensor scales = output("scale", {rows, c.groups()}, f32);
  Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
  Tensor bias = c.bias ? input("bias", {c.dim}, *c.bias) : x;
  Tensor residual = c.residual ? input("residual", {rows, c.dim}, c.type) : x;
  Tensor sum = c.residual ? output("sum", {rows, c.dim}, c.type) : x;
  Expr eps = scalar("eps", f32);

  // Rows with zeros after their last feature, so that groups of features are whole.
  Fragment values_of(const Expr& row) const {
    Fragment values = load(x.at(row), {c.rows, c.width()}, f32);
    if (!c.residual) return values;
    Fragment added = load(residual.at(row), {c.rows, c.width()}, f32);
    parallel(values, [&](Index i, Index j) { values(i, j) = c.type(values(i, j) + added(i, j)); });
    copy(values, sum.at(row));
    return values;
  }
  Fragment normalised(const Expr& row) const {
    Fragment values = values_of(row);
    const float share = 1.f / static_cast<float>(c.dim);
    if (is_centred<Op>) {
      Fragment sums = reduce_sum(values);
      parallel(values, [&](Index i, Index j) {
        values(i, j) = select(j < c.dim, values(i, j) - sums(i) * share, 0.f);
      });
    }
    Fragment factors = reduce_sum(map(values, [&](Index i, Index j) { return values(i, j) * values(i, j); }));
    parallel(factors, [&](Index i) { factors(i) = rsqrt(factors(i) * share + eps); });
    parallel(values, [&](Index i, Index j) { values(i, j) *= factors(i); });
    if (c.weight) {
      Fragment weights = load(weight.at(0), {c.width()}, f32);
      parallel(values, [&](Index i, Index j) { values(i, j) *= weights(j); });
    }
    if (c.bias) {
      Fragment added = load(bias.at(0), {c.width()}, f32);
      parallel(values, [&](Index i, Index j) { values(i, j) += added(j); });
    }
    return values;
  }
  void write() const {
    grid(ceildiv(rows, c.rows), {.threads = c.threads.value_or(0)}, [&](Index block) {
      Expr row = block * c.rows;
      Fragment normal = normalised(row);
      // Every group of features is a row by itself.
      const int groups = c.width() / scaled_features;
      Fragment values = normal.reshape({c.rows * groups, scaled_features});
      Fragment scale = reduce_absmax(values);
      parallel(scale, [&](Index i) { scale(i) = fp8_scale(scale(i), c.power_of_two); });
      copy(scale.reshape({c.rows, groups}), scales.at(row));
      parallel(scale, [&](Index i) { scale(i) = 1.f / scale(i); });
      parallel(values, [&](Index i, Index j) { values(i, j) *= scale(i); });
      copy(normal, out.at(row));
    });
  }
};

// The same for rows that are read twice, in pieces: first for their statistics, then from the end.
template <class Op>
struct LongNormFp8 {
  const NormFp8Instance<Op>& c;
  Dim rows{"rows"}, d = c.pieces->features("d");
  Tensor x = input("x", {rows, d}, c.type), out = output("out", {rows, d}, e4m3);
  Tensor scales = output("scale", {rows, ceildiv(d, scaled_features)}, f32);
  Tensor weight = c.weight ? input("weight", {d}, *c.weight) : x;
  Tensor bias = c.bias ? input("bias", {d}, *c.bias) : x;
  Tensor residual = c.residual ? input("residual", {rows, d}, c.type) : x;
  Tensor sum = c.residual ? output("sum", {rows, d}, c.type) : x;
  Expr eps = scalar("eps", f32);

  // values[0] becomes what is normalised.
  void add_residual(std::vector<Fragment>& values) const {
    if (c.residual) parallel(values[0], [&](Index j) { values[0](j) = c.type(values[0](j) + values[1](j)); });
  }
  // Features beyond the end of the row are zeros, which no scale looks at.
  void normalise(Fragment& values, const KeptRows& kept, const Expr& first, const RowTotals& total,
                 const Expr& factor) const {
    std::optional<Fragment> weights, added;
    if (c.weight) weights.emplace(kept.beside(weight, first));
    if (c.bias) added.emplace(kept.beside(bias, first));
    parallel(values, [&](Index j) { values(j) = (values(j) - total.mean) * factor; });
    if (c.weight) parallel(values, [&](Index j) { values(j) *= (*weights)(j); });
    if (c.bias) parallel(values, [&](Index j) { values(j) += (*added)(j); });
    if (is_centred<Op>) parallel(values, [&](Index j) { values(j) = select(first + j < d, values(j), 0.f); });
  }
  void scale(Fragment& values, const Expr& row, const Expr& first) const {
    Fragment groups = values.reshape({c.pieces->piece / scaled_features, scaled_features});
    Fragment scale = reduce_absmax(groups);
    parallel(scale, [&](Index i) { scale(i) = fp8_scale(scale(i), c.power_of_two); });
    copy(scale, scales.slice(row).at(first / scaled_features));
    parallel(scale, [&](Index i) { scale(i) = 1.f / scale(i); });
    parallel(groups, [&](Index i, Index j) { groups(i, j) *= scale(i); });
  }
  void write() const {
    grid(rows, {.threads = c.pieces->threads}, [&](Index row) {
      std::vector<KeptRows::Row> read{{x.slice(row)}};
      if (c.residual) read.push_back({residual.slice(row)});
      const KeptRows kept(*c.pieces, 0, read);
      RowStatistics statistics(*c.pieces, Expr(d), is_centred<Op>, false);
      kept.each([&](const Expr& first, std::vector<Fragment>& values) {
        add_residual(values);
        if (c.residual) copy(values[0], sum.slice(row).at(first));
        statistics.add(first, first == kept.begin(), values[0]);
      });
      const RowTotals total = statistics.total();
      const Var factor = rsqrt(total.squares / f32(d) + eps);
      kept.each_again([&](const Expr& first, std::vector<Fragment>& values) {
        add_residual(values);
        normalise(values[0], kept, first, total, factor);
        scale(values[0], row, first);
        copy(values[0], out.slice(row).at(first));
      });
    });
  }
};

template <class Op>
Kernel norm_fp8_program(const NormFp8Instance<Op>& c) {
  const char* name = is_centred<Op> ? "layer_norm_fp8" : "rms_norm_fp8";
  return kernel(instance_name(name, c), [&] {
    if (c.pieces)
      LongNormFp8<Op>{c}.write();
    else
      NormFp8<Op>{c}.write();
  });
}

// `row` becomes its norm.
template <class Op>
void normalise(const Bound<Op>& c, Exact& exact, std::vector<double>& row) {
  const double *weight = exact.data_if("weight"), *bias = nullptr;
  if constexpr (is_centred<Op>) bias = exact.data_if("bias");
  const auto d = static_cast<double>(row.size());
  double mean = 0, squares = 0;
  for (double value : row) mean += value / d;
  for (double& value : row) {
    if (is_centred<Op>) value -= mean;
    squares += value * value;
  }
  const double factor = 1 / std::sqrt(squares / d + c->eps);
  for (std::size_t j = 0; j < row.size(); ++j)
    row[j] = row[j] * factor * (weight ? weight[j] : 1) + (bias ? bias[j] : 0);
}

template <class Op>
void norm_fp8_formula(const Bound<Op>& c, Exact& exact) {
  const std::int64_t d = c.dim("d");
  const double *x = exact.data("x"), *residual = exact.data_if("residual");
  double *out = exact.data("out"), *scale = exact.data("scale"), *sum = exact.data_if("sum");
  std::vector<double> row(static_cast<std::size_t>(d));
  for (std::int64_t i = 0; i < c.dim("rows"); ++i, out += d) {
    for (double& value : row) {
      value = *x++;
      if (residual) value = *sum++ = Exact::stored(value + *residual++, c.type("x"));
    }
    normalise(c, exact, row);
    for (std::int64_t first = 0; first < d; first += scaled_features) {
      const std::int64_t end = std::min<std::int64_t>(first + scaled_features, d);
      double largest = 0;
      for (std::int64_t j = first; j < end; ++j) largest = std::max(largest, std::abs(row[j]));
      *scale = exact_fp8_scale(largest, c->power_of_two);
      for (std::int64_t j = first; j < end; ++j) out[j] = exact.rounded(row[j] / *scale);
      ++scale;
    }
  }
}

template <class Op>
const OperatorSchema& norm_fp8_schema(const char* name, const char* what) {
  static const OperatorSchema table = [&] {
    Schema<Op> lines(name, what);
    lines.in(&Op::x, "x", "... d", floats, "rows")
        .in(&Op::residual, "residual", "... d", same_as("x"), "residual that is added to the rows")
        .in(&Op::weight, "weight", "d", floats, "factors of the features");
    if constexpr (is_centred<Op>) lines.in(&Op::bias, "bias", "d", floats, "added to the features");
    return lines
        .option(&Op::eps, "eps",
                is_centred<Op> ? "added to the variance" : "added to the mean of the squares", positive)
        .option(&Op::power_of_two, "power_of_two", "scales are rounded up to powers of two")
        .out(&Op::out, "out", "... d", is(e4m3), "the norm / scale")
        .out(&Op::scale, "scale", "... ceildiv(d,128)", is(f32),
             "the largest magnitude of 128 features / 448, at least 2^-126")
        .out(&Op::sum, "sum", "... d", same_as("x"), "x + residual, which out is the norm of")
        .when("residual")
        .source(is_centred<Op> ? "Ba, Kiros and Hinton 2016, Layer Normalization; the scaling of DeepSeek-V3"
                               : "Zhang and Sennrich 2019, Root Mean Square Layer Normalization; the scaling "
                                 "of DeepSeek-V3")
        .no_gradient("it rounds")
        .flops(is_centred<Op> ? "10*rows*d" : "8*rows*d")
        .examples({{"ragged", "...=37 d=300 weight"},
                   {"residual_bf16", "...=2,7 d=512 bf16 residual weight:f32 power_of_two eps=0.01"},
                   {"long_f16", "...=2 d=16500 f16 residual weight"},
                   {"5120_bf16", "...=3 d=5120 bf16 weight"},
                   {"768_bf16", "...=19 d=768 bf16 weight"},
                   {"12288_bf16", "...=2 d=12288 bf16 residual weight"},
                   {"18432_f16", "...=2 d=18432 f16 weight"}})
        .measured({{"16384x4096_bf16", "...=16384 d=4096 bf16 residual weight"}})
        .run(norm_fp8_plan<Op>, norm_fp8_program<Op>, norm_fp8_formula<Op>);
  }();
  return table;
}

}  // namespace

const OperatorSchema& rms_norm_fp8_schema() {
  return norm_fp8_schema<RmsNormFp8>("rms_norm_fp8",
                                     "rms_norm of rows, cast to e4m3 with scales of 128 features");
}

const OperatorSchema& layer_norm_fp8_schema() {
  return norm_fp8_schema<LayerNormFp8>("layer_norm_fp8",
                                       "layer_norm of rows, cast to e4m3 with scales of 128 features");
}

}  // namespace tegula::ops
