#include "tegula/ops/cast_fp8.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/rows/cast_fp8_kernel.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int group = CastFp8Kernel::group, blocks_of_a_processor = 8;
constexpr float largest_e4m3 = 448, smallest_scale = 0x1p-126f;

CastFp8Kernel cast_plan(const Bound<CastFp8>& c) { return {c.type("x"), c->scaling, c->power_of_two}; }

}  // namespace

// A power of two that is not below a number has its exponent, one more unless the other bits are 0.
Expr fp8_scale(const Expr& magnitude, bool power_of_two) {
  Expr scale = max(magnitude * (1.f / largest_e4m3), smallest_scale);
  if (!power_of_two) return scale;
  return bitcast((bitcast(scale, u32) + 0x7fffffu) >> 23u << 23u, f32);
}

// A power of two is that of the scale in f32, which decides where a magnitude is a power itself.
double exact_fp8_scale(double magnitude, bool power_of_two) {
  const float single = std::max(static_cast<float>(magnitude) * (1.f / largest_e4m3), smallest_scale);
  if (power_of_two) return std::exp2(std::ceil(std::log2(single)));
  return std::max(magnitude / largest_e4m3, static_cast<double>(smallest_scale));
}

namespace {

struct Cast {
  const CastFp8Kernel& c;
  Dim batch{"batch"}, m{"m"}, n{"n"};
  Tensor x = input("x", {batch, m, n}, c.type), out = output("out", {batch, m, n}, e4m3);

  template <class Body>
  void tiles(const Body& body) const {
    grid(ceildiv(n, group), ceildiv(m, c.rows()), batch, [&](Index column, Index row, Index b) {
      Fragment values = load(x.slice(b).at(row * c.rows(), column * group), {c.rows(), group}, f32);
      body(column, row, b, values);
    });
  }
  void store(Fragment& values, const Expr& column, const Expr& row, const Expr& b) const {
    copy(values, out.slice(b).at(row * c.rows(), column * group));
  }
  void by_tokens() const {
    Tensor scales = output("scale", {batch, m, ceildiv(n, group)}, f32);
    tiles([&](const Expr& column, const Expr& row, const Expr& b, Fragment& values) {
      Fragment scale = reduce_absmax(values);
      parallel(scale, [&](Index i) { scale(i) = fp8_scale(scale(i), c.power_of_two); });
      copy(scale, scales.slice(b, all, column).at(row * c.rows()));
      parallel(scale, [&](Index i) { scale(i) = 1.f / scale(i); });
      parallel(values, [&](Index i, Index j) { values(i, j) *= scale(i); });
      store(values, column, row, b);
    });
  }
  void by_blocks() const {
    Tensor scales = output("scale", {batch, ceildiv(m, group), ceildiv(n, group)}, f32);
    tiles([&](const Expr& column, const Expr& row, const Expr& b, Fragment& values) {
      Expr scale = fp8_scale(reduce_absmax(reduce_absmax(values)).scalar(), c.power_of_two);
      scales(b, row, column) = scale;
      Expr factor = 1.f / scale;
      parallel(values, [&](Index i, Index j) { values(i, j) *= factor; });
      store(values, column, row, b);
    });
  }
  // The first reading is by as many blocks as run at a time, each with a largest element of its own; the
  // second begins with what was read last, which the cache still holds.
  void as_one() const {
    Tensor scales = output("scale", {1}, f32), largest = workspace("largest", {1}, f32, {.zero = true});
    Expr columns = ceildiv(n, group), rows = ceildiv(m, c.rows()), tiles = columns * rows * batch;
    Expr blocks = min(tiles, processors() * blocks_of_a_processor);
    const auto tile = [&](const Expr& number) {
      return load(
          x.slice(number / columns / rows).at(number / columns % rows * c.rows(), number % columns * group),
          {c.rows(), group}, f32);
    };
    grid(blocks, [&](Index block) {
      Fragment most({c.rows(), group}, f32, 0);
      pipelined(ceildiv(tiles - block, blocks), {.stages = 3}, [&](Index step) {
        Fragment values = tile(block + step * blocks);
        parallel(most, [&](Index i, Index j) { most(i, j) = max(most(i, j), abs(values(i, j))); });
      });
      atomic_max(largest(0), reduce_max(reduce_max(most)).scalar());
    });
    grid(1, [&](Index) { scales(0) = fp8_scale(largest(0), c.power_of_two); });
    grid(tiles, [&](Index block) {
      Expr number = tiles - 1 - block;
      Fragment values = tile(number);
      Expr factor = 1.f / fp8_scale(largest(0), c.power_of_two);
      parallel(values, [&](Index i, Index j) { values(i, j) *= factor; });
      store(values, number % columns, number / columns % rows, number / columns / rows);
    });
  }
};

}  // namespace

Kernel cast_fp8_program(const CastFp8Kernel& c) {
  return kernel(instance_name("cast_fp8", c), [&] {
    const Cast cast{c};
    if (c.scaling == Fp8Scaling::token)
      cast.by_tokens();
    else if (c.scaling == Fp8Scaling::block)
      cast.by_blocks();
    else
      cast.as_one();
  });
}

namespace {

struct UncastInstance {
  Fp8Scaling scaling = Fp8Scaling::token;
  DType out = f32;
  auto fields() const { return std::tuple(scaling, out); }
};

UncastInstance uncast_plan(const Bound<UncastFp8>& c) { return {c->scaling, c->out_dtype}; }

Kernel uncast_program(const UncastInstance& c) {
  return kernel(instance_name("uncast_fp8", c), [&] {
    constexpr int rows = 32;
    Dim batch("batch"), m("m"), n("n");
    const bool by_tokens = c.scaling == Fp8Scaling::token, as_one = c.scaling == Fp8Scaling::tensor;
    Tensor x = input("x", {batch, m, n}, e4m3), out = output("out", {batch, m, n}, c.out);
    Tensor scales =
        as_one ? input("scale", {1}, f32)
               : input("scale", {batch, by_tokens ? Expr(m) : ceildiv(m, group), ceildiv(n, group)}, f32);
    grid(ceildiv(n, group), ceildiv(m, rows), batch, [&](Index column, Index row, Index b) {
      Fragment values = load(x.slice(b).at(row * rows, column * group), {rows, group}, f32);
      if (by_tokens) {
        Fragment own = load(scales.slice(b, all, column).at(row * rows), {rows});
        parallel(values, [&](Index i, Index j) { values(i, j) *= own(i); });
      } else {
        Expr own = as_one ? Expr(scales(0)) : Expr(scales(b, row * rows / group, column));
        parallel(values, [&](Index i, Index j) { values(i, j) *= own; });
      }
      copy(values, out.slice(b).at(row * rows, column * group));
    });
  });
}

// Where an element's scale stands.
struct ScaleIndex {
  Fp8Scaling scaling;
  std::int64_t m, n;
  std::int64_t operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (scaling == Fp8Scaling::tensor) return 0;
    const std::int64_t columns = (n + group - 1) / group, rows = (m + group - 1) / group;
    return scaling == Fp8Scaling::token ? (b * m + i) * columns + j / group
                                        : (b * rows + i / group) * columns + j / group;
  }
};

void cast_formula(const Bound<CastFp8>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n");
  const ScaleIndex at{c->scaling, m, n};
  const double* x = exact.data("x");
  double *out = exact.data("out"), *scale = exact.data("scale");
  const auto each = [&](const auto& body) {
    for (std::int64_t b = 0; b < c.dim("batch"); ++b)
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) body((b * m + i) * n + j, at(b, i, j));
  };
  each([&](std::int64_t element, std::int64_t own) {
    scale[own] = std::max(scale[own], std::abs(x[element]));
  });
  for (std::int64_t i = 0; i < exact["scale"].nelements(); ++i)
    scale[i] = exact_fp8_scale(scale[i], c->power_of_two);
  each(
      [&](std::int64_t element, std::int64_t own) { out[element] = exact.rounded(x[element] / scale[own]); });
}

void uncast_formula(const Bound<UncastFp8>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n");
  const ScaleIndex at{c->scaling, m, n};
  const double *x = exact.data("x"), *scale = exact.data("scale");
  double* out = exact.data("out");
  for (std::int64_t b = 0; b < c.dim("batch"); ++b)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) *out++ = *x++ * scale[at(b, i, j)];
}

constexpr const char* scale_dims =
    "scaling=tensor ? 1 : scaling=block ? [batch] ceildiv(m,128) ceildiv(n,128) : [batch] m ceildiv(n,128)";

}  // namespace

const OperatorSchema& cast_fp8_schema() {
  using Op = CastFp8;
  static const OperatorSchema table =
      Schema<Op>("cast_fp8", "casts to e4m3 with scales of 128 features, of 128 x 128 blocks or of a tensor")
          .in(&Op::x, "x", "[batch] m n", floats, "tokens or weights by features")
          .option(&Op::scaling, "scaling", "what each scale belongs to")
          .option(&Op::power_of_two, "power_of_two", "scales are rounded up to powers of two")
          .out(&Op::out, "out", "[batch] m n", is(e4m3), "x / scale")
          .out(&Op::scale, "scale", scale_dims, is(f32), "the largest magnitude / 448, at least 2^-126")
          .source("Micikevicius et al. 2022, FP8 Formats for Deep Learning; the scaling of DeepSeek-V3")
          .no_gradient("it rounds")
          .flops("4*batch*m*n")
          .examples({{"token", "m=37 n=300"},
                     {"block_bf16", "batch=2 m=130 n=140 bf16 scaling=block power_of_two"},
                     {"tensor_f16", "m=33 n=129 f16 scaling=tensor"}})
          .measured({{"16384x4096_bf16", "m=16384 n=4096 bf16"},
                     {"4096x16384_bf16", "m=4096 n=16384 bf16 power_of_two"},
                     {"block_16384x4096_bf16", "m=16384 n=4096 bf16 scaling=block"},
                     {"tensor_16384x4096_bf16", "m=16384 n=4096 bf16 scaling=tensor"}})
          .run(cast_plan, cast_fp8_program, cast_formula);
  return table;
}

const OperatorSchema& uncast_fp8_schema() {
  using Op = UncastFp8;
  static const OperatorSchema table =
      Schema<Op>("uncast_fp8", "converts e4m3 back, times the scales of cast_fp8")
          .in(&Op::x, "x", "[batch] m n", is(e4m3), "the values that cast_fp8 returns")
          .in(&Op::scale, "scale", scale_dims, is(f32), "their scales")
          .option(&Op::scaling, "scaling", "what each scale belongs to")
          .option(&Op::out_dtype, "out_dtype", "dtype of the result")
          .out(&Op::out, "out", "[batch] m n", chosen_by("out_dtype", {f32, f16, bf16}, "x", f32),
               "x * scale")
          .source("the inverse of cast_fp8")
          .no_gradient("what it takes was rounded")
          .flops("batch*m*n")
          .examples({{"token", "m=37 n=300"},
                     {"block_bf16", "batch=2 m=130 n=140 scaling=block out_dtype=bf16"},
                     {"tensor_f16", "m=33 n=129 scaling=tensor out_dtype=f16"}})
          .measured({{"16384x4096_bf16", "m=16384 n=4096 out_dtype=bf16"}})
          .run(uncast_plan, uncast_program, uncast_formula);
  return table;
}

}  // namespace tegula::ops
