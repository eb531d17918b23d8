#include "tegula/ops/quantised_gemm.hpp"

#include "ops/products/low_bits.hpp"
#include "ops/products/scaled_products.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 6> choice_names<WeightFormat>{
    "int4", "uint4", "int8", "fp4", "mxfp4", "nvfp4"};

namespace {

using namespace lang;
using lang::Tensor;

bool is_e2m1(WeightFormat format) {
  return format == WeightFormat::fp4 || format == WeightFormat::mxfp4 || format == WeightFormat::nvfp4;
}

struct Instance {
  WeightFormat format = WeightFormat::int4;
  DType type = bf16, compute = f32, out = bf16, scale = f16;
  std::optional<DType> zeros = {}, bias = {};
  bool packed = false, words = false, by_group = false, zeros_by_group = false, tensor_scale = false;
  int group = 128;  // 0: a row has one scale
  int m = 64, n = 64, k = 64;
  auto fields() const {
    return std::tuple(format, type, labelled("tiles", compute), labelled("out", out), labelled("s", scale),
                      labelled("zeros", zeros), labelled("bias", bias), labelled("packed", packed),
                      labelled("words", words), labelled("sg", by_group), labelled("zg", zeros_by_group),
                      labelled("whole", tensor_scale), labelled("group", group), joined("t", m, n), k);
  }
  int bits() const { return format == WeightFormat::int8 ? 8 : 4; }
};

// Scales or zeros, [groups, n], or [n, groups] in memory.
struct GroupNumbers {
  Tensor numbers;
  bool by_group;

  Shared tile(const Expr& row, const Expr& group, int rows, int groups) const {
    Shared result({by_group ? groups : rows, by_group ? rows : groups}, numbers.type());
    copy(by_group ? numbers.at(group, row) : numbers.at(row, group), result);
    return result;
  }
  Expr at(const Shared& tile, const Index& row, const Expr& group) const {
    return by_group ? Expr(tile(group, row)) : Expr(tile(row, group));
  }
};

// Where the nibble of column j lies among those of its row in a packed tile.
Expr packed_place(const Index& j) {
  return j / 64 * 64 + j % 8 / 2 * 16 + j % 64 / 16 * 4 + j % 16 / 8 * 2 + j % 2;
}

// The float that four bits, the lowest of x, are as e2m1: exponent and mantissa at the places of an f32's,
// which also fits denormals.
Expr e2m1(const Expr& x) { return bitcast(((x & 8u) << 28u) | ((x & 7u) << 22u), f32) * 0x1p126f; }

struct Program {
  const Instance& c;
  Dim rows{"rows"}, n{"n"}, k{"k"}, groups{"groups"};
  Tensor a = input("a", {rows, k}, c.type);
  Tensor b = c.bits() == 8 ? input("b", {n, k}, i8)
             : c.words     ? input("b", {n, k / 8}, u32)
                           : input("b", {n, k / 2}, u8);
  GroupNumbers scales = numbers("scales", c.scale, c.by_group);
  std::optional<GroupNumbers> zeros;
  std::optional<Tensor> tensor_scale, bias;
  Tensor out = output("out", {rows, n}, c.out);

  explicit Program(const Instance& instance) : c(instance) {
    if (c.zeros) zeros.emplace(numbers("zeros", *c.zeros, c.zeros_by_group));
    if (c.tensor_scale) tensor_scale.emplace(input("tensor_scale", {1}, f32));
    if (c.bias) bias.emplace(input("bias", {n}, *c.bias));
  }
  GroupNumbers numbers(const char* name, DType type, bool by_group) const {
    return {by_group ? input(name, {groups, n}, type) : input(name, {n, groups}, type), by_group};
  }

  // The weight in row i and column j of a tile as it is stored.
  Expr stored(const Shared& tile, const Index& i, const Index& j) const {
    if (c.bits() == 8) return f32(tile(i, j));
    Expr place = c.packed ? packed_place(j) : Expr(j);
    Expr bits =
        c.words ? tile(i, place / 8) >> u32(place % 8 * 4) : u32(tile(i, place / 2)) >> u32(place % 2 * 4);
    if (is_e2m1(c.format)) return e2m1(bits);
    return c.format == WeightFormat::int4 ? f32((bits & 15u) ^ 8u) - 8.f : f32(bits & 15u);
  }

  // sum += W · aᵀ for a tile of n × m: weights are decoded into the registers of the left operand.
  void multiply(Fragment& sum, const Expr& row, const Expr& column) const {
    const int own_groups = c.group == 0 ? 1 : std::max(1, c.k / c.group);
    pipelined(ceildiv(k, c.k), {.stages = 4}, [&](Index step) {
      Expr group = c.group == 0 ? Expr(0) : step * c.k / c.group;
      Shared a_tile({c.m, c.k}, c.compute);
      Shared b_tile({c.n, c.bits() == 8 ? c.k : c.words ? c.k / 8 : c.k / 2}, b.type());
      copy(a.at(row, step * c.k), a_tile);
      copy(b.at(column, step * static_cast<int>(b_tile.extent(1))), b_tile);
      Shared own_scales = scales.tile(column, group, c.n, own_groups);
      std::optional<Shared> own_zeros;
      if (zeros) own_zeros.emplace(zeros->tile(column, group, c.n, own_groups));
      Fragment weights({c.n, c.k}, f32);
      parallel(weights, [&](Index i, Index j) {
        Expr own = own_groups == 1 ? Expr(0) : j / (c.k / own_groups), q = stored(b_tile, i, j);
        Expr number = zeros                             ? q - f32(zeros->at(*own_zeros, i, own))
                      : c.format == WeightFormat::uint4 ? q - 8.f
                                                        : q;
        weights(i, j) = number * scale_of(scales.at(own_scales, i, own), c.scale);
      });
      gemm(weights.to(c.compute), a_tile.T(), sum);
    });
  }

  void run() const {
    grid(ceildiv(n, c.n), ceildiv(rows, c.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Expr row = y * c.m, column = x * c.n;
      Fragment sum({c.n, c.m}, f32, 0);
      multiply(sum, row, column);
      if (tensor_scale) {
        Expr whole = (*tensor_scale)(0);
        parallel(sum, [&](Index i, Index j) { sum(i, j) *= whole; });
      }
      if (bias) {
        Fragment added({c.n}, f32);
        copy(bias->at(column), added);
        parallel(sum, [&](Index i, Index j) { sum(i, j) += added(i); });
      }
      copy(sum.T(), out.at(row, column));
    });
  }
};

Kernel program(const Instance& c) {
  return kernel(instance_name("quantised_gemm", c), [&] { Program(c).run(); });
}

// Bytes of rows as words.
TensorRef as_words(const TensorRef& bytes) {
  TensorRef words = bytes;
  words.dtype = u32;
  words.shape[1] /= 4, words.strides[0] /= 4;
  return words;
}
bool has_words(const TensorRef& t) {
  return t.stride(1) == 1 && t.stride(0) % 4 == 0 && reinterpret_cast<std::uintptr_t>(t.data) % 4 == 0;
}

void run(const Bound<QuantisedGemm>& c, Launch& launch) {
  Instance t{.format = c->format, .type = c.type("a"), .out = c.type("out"), .scale = c.type("scales")};
  t.compute = multiplied_type(t.type, c.on_gpu());
  t.zeros = c.type_if("zeros"), t.bias = c.type_if("bias"), t.tensor_scale = c.has("tensor_scale");
  // Plain bytes bring a thread two of its weights at a time, words of the packed order eight.
  t.packed = c->packed, t.words = t.packed && has_words(c["b"]);
  t.group = c.small_dim("groups") == 1 ? 0 : c.small_dim("of_scale");
  t.by_group = !lies_along_rows(c["scales"]);
  t.zeros_by_group = c.has("zeros") && !lies_along_rows(c["zeros"]);
  t.m = c.dim("rows") <= 16 ? 16 : 64;
  if (c.on_gpu()) {
    const ProductTile tile = best_tile(gpu_table.quantised, {1, c.dim("rows"), c.dim("n"), c.dim("k")}, 1,
                                       planned_gpu_processors(c.call()));
    t.m = tile.m, t.n = tile.n;
    if (t.m <= 32) t.k = 128;
  }
  if (t.group > 0 && t.group % t.k != 0 && t.k % t.group != 0) t.k = 64;
  const TensorRef scales = turned(c["scales"], !t.by_group),
                  zeros = c.has("zeros") ? turned(c["zeros"], !t.zeros_by_group) : scales;
  const TensorRef b = t.words ? as_words(c["b"]) : c["b"];
  if (t.zeros)
    launch(t, program, {{"b", b}, {"scales", scales}, {"zeros", zeros}});
  else
    launch(t, program, {{"b", b}, {"scales", scales}});
}

double stored_weight(const Bound<QuantisedGemm>& c, const tegula::Tensor& b, std::int64_t j, std::int64_t e) {
  if (c->format == WeightFormat::int8) return b.at<std::int8_t>(j, e);
  const std::int64_t at = e / 2, of_32 = at % 32;
  const std::int64_t place = c->packed ? at - of_32 + of_32 % 4 * 8 + of_32 / 8 * 2 + of_32 / 4 % 2 : at;
  const int bits = b.at<std::uint8_t>(j, place) >> (e % 2 * 4) & 15;
  constexpr double numbers[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  if (is_e2m1(c->format)) return bits < 8 ? numbers[bits] : -numbers[bits - 8];
  return c->format == WeightFormat::int4 ? (bits ^ 8) - 8 : bits;
}

void formula(const Bound<QuantisedGemm>& c, Exact& exact) {
  const std::int64_t rows = c.dim("rows"), n = c.dim("n"), k = c.dim("k");
  const auto a = exact.array("a"), out = exact.array("out");
  const std::vector<double> scales = scales_of(exact["scales"]);
  const double *zeros = exact.data_if("zeros"), *bias = exact.data_if("bias"),
               *whole = exact.data_if("tensor_scale");
  const double zero = c->format == WeightFormat::uint4 ? 8 : 0;
  const tegula::Tensor& b = exact["b"];
  std::vector<double> weights(static_cast<std::size_t>(k));
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t e = 0; e < k; ++e) {
      const std::int64_t group = e / c.dim("of_scale") * n + j;
      const double number = stored_weight(c, b, j, e) - (zeros ? zeros[group] : zero);
      const double weight = number * scales[group];
      weights[e] = exact.steps() == f64 ? weight : round_to(c.type("a"), weight);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (std::int64_t e = 0; e < k; ++e) sum += a(i, e) * weights[e];
      out(i, j) = sum * (whole ? *whole : 1) + (bias ? bias[j] : 0);
    }
  }
}

// Positive scales of usual sizes.
tegula::Tensor scales_of_example(const Shape& shape, DType type, std::uint64_t seed,
                                 const std::function<std::int64_t(const std::string&)>&) {
  if (type == u8) return tegula::Tensor::random_integers(shape, i32, seed, 122, 130).to(u8);
  return tegula::Tensor::random_integers(shape, i32, seed, 1, 16).to(type);
}

bool scales_fit(const Bound<QuantisedGemm>& c) {
  const DType type = c.type("scales");
  if (c->format == WeightFormat::mxfp4) return type == u8;
  if (c->format == WeightFormat::nvfp4) return type == e4m3;
  return floats.lists(type);
}
bool group_fits(const Bound<QuantisedGemm>& c) {
  if (c->format == WeightFormat::mxfp4 || c->format == WeightFormat::nvfp4) return true;
  return c->group == 0 || c->group == 16 || c->group == 32 || c->group % 64 == 0;
}

}  // namespace

const OperatorSchema& quantised_gemm_schema() {
  using Op = QuantisedGemm;
  static const OperatorSchema table =
      Schema<Op>("quantised_gemm", "product with weights of 8 or 4 bits")
          .in(&Op::a, "a", "... k", one_of({bf16, f16}), "rows")
          .in(&Op::b, "b", "format=int8 ? n k : n k/2", one_of({u8, i8}), "weights: two in a byte, or one")
          .range("0", "256")
          .in(&Op::scales, "scales", "groups n", one_of({f16, bf16, f32, u8, e4m3}),
              "factors of every group of weights")
          .values(scales_of_example)
          .in(&Op::zeros, "zeros", "groups n", floats, "subtracted from the weights of a group")
          .in(&Op::tensor_scale, "tensor_scale", "1", is(f32), "factor of all weights")
          .in(&Op::bias, "bias", "n", floats, "added to every row")
          .option(&Op::format, "format", "what a weight is before its scale")
          .option(&Op::packed, "packed", "b has the order of packed_weights")
          .option(&Op::group, "group", "weights with one scale, 0: a row; mxfp4 has 32, nvfp4 16",
                  between(0, 1 << 20, "0, 16, 32 or a multiple of 64", "give scales of such groups"))
          .option(&Op::out_dtype, "out_dtype", "dtype of the result",
                  {{}, {}, false, "f32, f16 or bf16", "convert the result"})
          .out(&Op::out, "out", "... n", chosen_by("out_dtype", floats.types, "a", bf16), "a * W^T + bias")
          .let("of_scale", "format=mxfp4 ? 32 : (format=nvfp4 ? 16 : (group == 0 ? max(k,1) : group))")
          .require(
              "b",
              [](const Bound<Op>& c) { return (c->format == WeightFormat::int8) == (c.type("b") == i8); },
              "i8 for int8, u8 for weights of 4 bits", "check the format")
          .require("a", "format=int8 ? 1 : k%2 == 0", "an even k", "add a column of zeros")
          .require("scales", scales_fit, "u8 for mxfp4, e4m3 for nvfp4, f16, bf16 or f32 else",
                   "check the format")
          .require("group", group_fits, "0, 16, 32 or a multiple of 64", "give scales of such groups")
          .require("scales", "groups == ceildiv(k,of_scale)", "a scale for every group of {of_scale} weights",
                   "check group and format")
          .require(
              "zeros", [](const Bound<Op>& c) { return !c.has("zeros") || !is_e2m1(c->format); },
              "no zeros: these weights are floats", "leave them out")
          .require(
              "b",
              [](const Bound<Op>& c) {
                return !c->packed || (c->format != WeightFormat::int8 && c.dim("k") % 64 == 0);
              },
              "4 bits, and a multiple of 64 weights in a row", "leave packed out, or add columns of zeros")
          .source("Frantar et al. 2022, GPTQ; OCP Microscaling Formats (MX) 1.0, 2023")
          .no_gradient("its weights are quantised")
          .flops("2*rows*n*k")
          .examples(
              {{"int4", "...=37 k=200 n=70 groups=2"},
               {"uint4_packed", "...=3,5 k=256 n=72 groups=4 group=64 format=uint4 packed zeros:f16 bias"},
               {"int8", "...=20 k=130 n=40 groups=1 group=0 format=int8 b:i8 scales:f32 out_dtype=f32"},
               {"mxfp4", "...=70 k=128 n=64 groups=4 format=mxfp4 scales:u8 packed"},
               {"nvfp4", "...=9 k=64 n=40 groups=4 format=nvfp4 scales:e4m3 tensor_scale"}})
          .measured({{"int4_1", "...=1 k=8192 n=8192 groups=64 f16 packed"},
                     {"int4_16", "...=16 k=8192 n=8192 groups=64 f16 packed"},
                     {"int4_64", "...=64 k=8192 n=8192 groups=64 f16 packed"},
                     {"int4_4096", "...=4096 k=8192 n=8192 groups=64 f16 packed"},
                     {"mxfp4_16", "...=16 k=8192 n=8192 groups=256 format=mxfp4 scales:u8 packed"},
                     {"mxfp4_4096", "...=4096 k=8192 n=8192 groups=256 format=mxfp4 scales:u8 packed"},
                     {"nvfp4_4096", "...=4096 k=8192 n=8192 groups=512 format=nvfp4 scales:e4m3 packed"},
                     {"int8_4096", "...=4096 k=8192 n=8192 groups=1 group=0 format=int8 b:i8"}})
          .run(run, formula);
  return table;
}

tegula::Tensor packed_weights(const TensorRef& b) {
  if (b.dtype != u8 || b.rank() != 2 || b.size(1) % 32 != 0)
    throw ArgumentError(
        "packed_weights, argument 'b': expected u8 [n, k / 2] with k a multiple of 64, given " + describe(b) +
        "; add columns of zeros");
  tegula::Tensor packed = tegula::Tensor::empty(b.shape, u8);
  copy_elements(b.reshape({b.size(0), b.size(1) / 32, 4, 2, 4}).permute({0, 1, 4, 2, 3}),
                packed.ref().reshape({b.size(0), b.size(1) / 32, 4, 4, 2}));
  return packed;
}

}  // namespace tegula::ops
