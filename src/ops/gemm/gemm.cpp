#include "tegula/ops/gemm.hpp"

#include <cmath>

#include "ops/pieces/matrices.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/precision.hpp"
#include "ops/pieces/product_plan.hpp"
#include "ops/products/matrix_product.hpp"
#include "ops/products/tile_types.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/sums_of_8_bits.hpp"

namespace tegula::ops {

namespace {

// Tensor cores read tf32 along k, and each block would transpose or divide its operands again, where no copy
// has been prepared.
void choose_prepared(GemmKernel& kernel, std::int64_t m, std::int64_t n) {
  constexpr GpuProduct table = gpu_table.product;
  if (kernel.precision == Precision::tf32) {
    kernel.prepare_a = kernel.transpose_a && n >= table.rows_worth_transposing;
    kernel.prepare_b = !kernel.transpose_b && m >= table.rows_worth_transposing;
  } else if (kernel.precision == Precision::tf32x3) {
    kernel.prepare_a = kernel.prepare_b = m * n > table.sides_worth_dividing * (m + n);
  }
}

// Of a matrix whose rows begin at cache sectors: others are brought by pairs of blocks, which whole rounds of
// tiles have.
bool begins_at_sectors(const TensorRef& matrix) {
  constexpr std::int64_t sector = 32;
  for (const std::int64_t stride : {matrix.stride(-1), matrix.stride(-2)})
    if (stride != 1 && stride * matrix.dtype.bytes() % sector != 0) return false;
  return true;
}

// One matrix with tiles that the plan chooses, whose result is written as it is.
bool may_divide_tail(const BoundCall& c, const GemmKernel& kernel, const GemmTiles& given) {
  const bool planned = given.m == 0 && given.n == 0 && given.k == 0 && given.splits == 0;
  return planned && c.dim("batch") == 1 && !kernel.gated && !kernel.pad_out && !kernel.pad_a && !kernel.pad_b;
}

void note_precision(const GemmKernel& kernel, bool has_engine, Launch& launch) {
  if (has_engine && kernel.precision == Precision::tf32x3)
    launch.note([] { return std::string("plan: precision = tf32x3 is three products of tf32"); });
  if (has_engine && (kernel.prepare_a || kernel.prepare_b))
    launch.note(
        [] { return std::string("plan: a grid of its own rounds operands of f32 for tensor cores"); });
}

// Rows off the copy engine's, and few tiles.
void note_extents(const GemmKernel& kernel, Launch& launch) {
  if (kernel.pad_a || kernel.pad_b || kernel.pad_out) note_padding(launch);
  if (kernel.tiles.splits > 1)
    launch.note([&] {
      return fmt::format("plan: few tiles, so that {} blocks share the sums of one and add them in memory",
                         kernel.tiles.splits);
    });
}

// Of few rows, on a CPU.
void note_copies(const GemmKernel& kernel, std::int64_t rows, Launch& launch) {
  constexpr int few_rows = 32;
  if (kernel.tiles.m != few_rows || rows > few_rows) return;
  launch.note([&] {
    return fmt::format(
        "plan: elements of b are copied for products with {} rows, and copies take longer; more rows share "
        "them",
        rows);
  });
}

// Products of bf16 by a CPU's instructions take so little time that sums which are written and read again
// weigh more than anything beside them: one thread takes all of k in one step where it fits. Sums have the
// order of several steps.
GemmTiles of_whole_depth(const GemmKernel& kernel, const ProductProblem& p, const GemmTiles& asked,
                         const GemmTiles& chosen) {
  constexpr GemmTiles whole{256, 256, 512, 1};
  const bool is_open = asked.m == 0 && asked.n == 0 && asked.k == 0;
  const bool fits = p.k > chosen.k && p.k <= whole.k && p.m >= whole.m && p.n >= whole.n;
  return kernel.compute == bf16 && is_open && fits && p.threads == 1 && p.sums == 1 ? whole : chosen;
}

// What both operators ask of the instance `kernel`, with the result `out`: an output, or what is written in
// place.
template <class Op>
void launch_product(const Bound<Op>& c, GemmKernel kernel, const char* out, Launch& launch) {
  kernel.transpose_a = c->transpose_a, kernel.transpose_b = c->transpose_b;
  const TensorRef a = in_order(c.formed("a"), c.on_gpu(), kernel.transpose_a);
  const TensorRef b = in_order(c.formed("b"), c.on_gpu(), kernel.transpose_b);
  const TensorRef result = c.formed(out);
  kernel.type = c.type("a"), kernel.out = c.type(out);
  kernel.compute = product_tile_type(c.call(), kernel.type, true);
  kernel.epilogue.scaled = c->scale != 1;
  kernel.precision = kernel.type == f32 ? c->precision : Precision::ieee;
  kernel.f16_sums &= kernel.compute == f16;
  const bool has_engine = has_copy_engine(c.call());
  if (has_engine && (kernel.compute != f32 || kernel.precision != Precision::ieee)) {
    choose_prepared(kernel, c.dim("m"), c.dim("n"));
    kernel.pad_a = !kernel.prepare_a && starts_off_pieces(a);
    kernel.pad_b = !kernel.prepare_b && starts_off_pieces(b);
    kernel.pad_out = starts_off_pieces(result);
  }
  const bool divided = kernel.precision == Precision::tf32x3 && kernel.prepare_a;
  ProductProblem problem{c.dim("batch"), c.dim("m"), c.dim("n"), c.dim("k"),
                         planned_gpu_processors(c.call())};
  problem.threads = planned_threads(c.call());
  if (kernel.gated) problem.n /= 2, problem.sums = 2;
  if (divided) problem.k *= 3;
  problem.stored_bytes = kernel.pad_out ? f32.bytes() : kernel.out.bytes();
  problem.precision = divided ? Precision::tf32 : kernel.precision;
  const bool by_bytes = has_engine && kernel.compute.bits() == 8;
  problem.a_twice = by_bytes && kernel.transpose_a, problem.b_twice = by_bytes && !kernel.transpose_b;
  problem.may_have_any_rows = has_engine && !kernel.transpose_a;
  problem.may_divide_tail = has_engine && may_divide_tail(c.call(), kernel, c->tiles) &&
                            begins_at_sectors(a) && begins_at_sectors(b);
  GemmTiles asked = c->tiles;
  // Blocks that divide operands have three tiles of each in shared memory, which CPUs' tiles would exceed.
  if (c.target() == Target::emulated() && kernel.precision == Precision::tf32x3 && asked.k == 0) asked.k = 32;
  const ProductPlan plan =
      c.on_gpu() ? plan_product_on_gpu(problem, kernel.compute, asked) : plan_product(problem, asked);
  kernel.tiles = c.on_gpu() ? plan.tiles : of_whole_depth(kernel, problem, asked, plan.tiles);
  if (has_engine) kernel.stages = plan.stages;
  kernel.tail_splits = plan.tail_splits;
  note_precision(kernel, has_engine, launch);
  if (c.on_gpu())
    note_extents(kernel, launch);
  else
    note_copies(kernel, c.dim("m"), launch);
  launch(kernel, gemm_kernel, {{"a", a}, {"b", b}, {"out", result}, {"whole_tiles", plan.whole_tiles}});
}

void run(const Bound<Gemm>& c, Launch& launch) {
  launch_product(c,
                 {.epilogue = {.bias = c.type_if("bias"),
                               .row_scale = c.has("row_scale"),
                               .column_scale = c.has("column_scale"),
                               .activation = c->activation},
                  .residual = c.type_if("residual"),
                  .gated = c->gated,
                  .function = c->epilogue,
                  .rescaled = c->out_scale != 1,
                  .f16_sums = c->sum_dtype == f16},
                 "out", launch);
}

void accumulate(const Bound<AccumulateGemm>& c, Launch& launch) {
  launch_product(c, {.accumulates = true}, "sum", launch);
}

// Sums of f16 as tensor cores form them.
constexpr std::int64_t products_rounded_together = 16;
template <class Product>
double sum_in_f16(std::int64_t count, const Product& product) {
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    sum += product(k);
    if ((k + 1) % products_rounded_together == 0 || k + 1 == count) sum = Exact::stored(sum, f16);
  }
  return sum;
}

bool is_summed_in_f16(const Bound<Gemm>& c) { return c->sum_dtype == f16; }
bool is_summed_in_f16(const Bound<AccumulateGemm>&) { return false; }

// The element (i, j) of the product of matrices z, as a function of them.
template <class Op>
auto product_of(const Bound<Op>& c, Exact& exact) {
  const Tensor a = c->transpose_a ? exact["a"].transpose(1, 2) : exact["a"];
  const Tensor b = c->transpose_b ? exact["b"].transpose(1, 2) : exact["b"];
  const bool in_steps = exact.steps() != f64, of_8_bits = in_steps && c.type("a").bits() == 8,
             in_f16 = in_steps && is_summed_in_f16(c);
  return [=, &c, &exact](std::int64_t z, std::int64_t i, std::int64_t j) {
    const auto term = [&](std::int64_t k) {
      return operand(c, exact, a.at<double>(z, i, k)) * operand(c, exact, b.at<double>(z, k, j));
    };
    const std::int64_t count = c.dim("k");
    return c->scale * (in_f16 ? sum_in_f16(count, term) : sum_of_8_bits(count, of_8_bits, term));
  };
}

void accumulate_formula(const Bound<AccumulateGemm>& c, Exact& exact) {
  const double* sum = exact.data("sum");
  const auto product = product_of(c, exact);
  const ArrayOf<double> all{exact.data("sum"), {c.dim("batch"), c.dim("m"), c.dim("n"), 1}};
  all.each([&](auto z, auto i, auto j, auto) { return *sum++ + product(z, i, j); });
}

void formula(const Bound<Gemm>& c, Exact& exact) {
  const double *bias = exact.data_if("bias"), *residual = exact.data_if("residual");
  const double *of_row = exact.data_if("row_scale"), *of_column = exact.data_if("column_scale");
  const auto product = product_of(c, exact);
  const auto completed = [&](std::int64_t z, std::int64_t i, std::int64_t j) {
    const double factor = (of_row ? of_row[i] : 1) * (of_column ? of_column[j] : 1);
    return factor * product(z, i, j) + (bias ? bias[j] : 0);
  };
  const std::int64_t columns = c->gated ? c.dim("n") / 2 : c.dim("n");
  const ArrayOf<double> out{exact.data("out"), {c.dim("batch"), c.dim("m"), columns, 1}};
  out.each([&](auto z, auto i, auto j, auto) {
    const double value = c->gated ? completed(z, i, columns + j) : 1;
    const double own = activate(c->activation, completed(z, i, j)) * value;
    return (own + (residual ? *residual++ : 0)) * c->out_scale;
  });
}

template <class Op>
void add_operands(Schema<Op>& table) {
  table.in(&Op::a, "a", "transpose_a ? [~batch] k m : [~batch] m k", products, "left matrix")
      .matrix()
      .in(&Op::b, "b", "transpose_b ? [~batch] n k : [~batch] k n", same_as("a"), "right matrix")
      .matrix()
      .remedy("check transpose_a and transpose_b")
      .option(&Op::transpose_a, "transpose_a", "a is [k, m]")
      .option(&Op::transpose_b, "transpose_b", "b is [n, k]")
      .source("GEMM of the BLAS, level 3 (Dongarra et al. 1990)")
      .flops("2*batch*m*n*k");
}

bool sums_fit(const Bound<Gemm>& c) {
  return c->sum_dtype.value_or(f32) == f32 || (c->sum_dtype == f16 && c.type("a") == f16);
}

std::vector<Example> gemm_examples() {
  return {{"square", "m=64 n=64 k=64"},
          {"ragged_bias_gelu", "m=37 k=45 n=29 bias activation=gelu"},
          {"transposed_f16", "m=40 k=33 n=17 f16 transpose_a transpose_b out_dtype=f32"},
          {"sums_of_f16", "m=136 k=200 n=72 f16 transpose_b bias activation=relu sum_dtype=f16"},
          {"split_sums_of_f16", "m=20 k=520 n=136 f16 sum_dtype=f16 out_dtype=f32 splits=3"},
          {"along_k_e4m3", "m=140 k=200 n=72 e4m3 transpose_b scale=0.25"},
          {"across_k_e5m2", "m=70 k=90 n=40 e5m2 out_dtype=f32 bias:f32"},
          {"split_bf16", "m=20 k=520 n=136 bf16 bias activation=silu splits=3"},
          {"gated_bf16",
           "m=37 n=72 k=40 bf16 transpose_b gated activation=silu row_scale column_scale bias residual"},
          {"batched_bf16", "batch=2 m=20 k=24 n=18 bf16 activation=silu"},
          {"tf32", "m=136 k=72 n=80 transpose_b precision=tf32"},
          {"tf32_turned", "m=72 k=70 n=132 transpose_a precision=tf32"},
          {"tf32_x3", "m=72 k=70 n=60 precision=tf32x3 bias"},
          {"tf32_x3_divided", "m=264 k=70 n=268 precision=tf32x3 splits=2"},
          {"to_e4m3", "m=70 k=96 n=48 bf16 transpose_b out_dtype=e4m3 out_scale=0.5"}};
}

std::vector<Example> gemm_measured() {
  return {{"512", "m=512 n=512 k=512"},
          {"1024", "m=1024 n=1024 k=1024"},
          {"2048", "m=2048 n=2048 k=2048"},
          {"1024_bf16", "m=1024 n=1024 k=1024 bf16"},
          {"8192_f16", "m=8192 n=8192 k=8192 f16 transpose_b"},
          {"8192_sums_of_f16", "m=8192 n=8192 k=8192 f16 transpose_b sum_dtype=f16"},
          {"4096_tf32", "m=4096 n=4096 k=4096 transpose_b precision=tf32"},
          {"4096_tf32_turned", "m=4096 n=4096 k=4096 precision=tf32"},
          {"4096_tf32_x3", "m=4096 n=4096 k=4096 transpose_b precision=tf32x3"}};
}

// With the tiles that plans choose.
std::vector<std::string> gemm_built_in() {
  return {
      "m=1 n=1 k=1 {|transpose_b} tile_k=256 {tile_m=256 tile_n=512|tile_m=128 tile_n=256|"
      "tile_m=128 tile_n=128|tile_m=64 tile_n=128|tile_m=16 tile_n=256}",
      "m=1 n=1 k=1 {|transpose_b} {tile_m=64 tile_n=128 tile_k=128|"
      "tile_m=32 tile_n=64 tile_k=64}",
      "m=1 n=1 k=1 bf16 {|transpose_b} tile_m=256 tile_n=256 tile_k=512"};
}

std::vector<CallMap> gemm_maps() {
  return {{"rows",
           "m=4096 n=4096 k=4096 bf16 transpose_b",
           {"m=1", "m=2", "m=4", "m=8", "m=16", "m=24", "m=32", "m=64", "m=96", "m=128", "m=192", "m=256",
            "m=384", "m=512", "m=1024", "m=2048", "m=4096"},
           {"", "n=14336", "k=14336", "n=1024", "n=7168 k=2048", "n=512 k=16384"}},
          {"odd",
           "m=4096 n=4096 k=4096 bf16",
           {"k=4080", "k=4088", "k=4095", "k=4096", "k=4097", "k=4104"},
           {"", "n=4095", "n=4097", "m=4097", "transpose_a", "transpose_b", "transpose_a n=4097"}},
          {"types",
           "m=4096 n=4096 k=4096 bf16",
           {"bf16", "f16", "f32", "f32 precision=tf32", "f32 precision=tf32x3", "e4m3 transpose_b",
            "e5m2 transpose_b"},
           {"", "m=1000 n=1000 k=1000", "m=128", "m=512 n=512 k=16384"}},
          {"strides",
           "m=4096 n=4096 k=4096 bf16",
           {"strides=plain", "strides=sliced", "strides=padded", "strides=odd", "strides=transposed"},
           {"", "transpose_a", "transpose_b", "m=1 transpose_b", "m=16 transpose_b", "m=128 transpose_b",
            "n=4097", "f16", "f32 precision=tf32", "e4m3 transpose_b"}}};
}

}  // namespace

const OperatorSchema& gemm_schema() {
  static const OperatorSchema table =
      Schema<Gemm>("gemm", "matrix product with bias and activation")
          .with(add_operands<Gemm>)
          .in(&Gemm::bias, "bias", "n", floats, "added to every row")
          .remedy("give it one element per column")
          .in(&Gemm::row_scale, "row_scale", "m", is(f32), "factors of the product's rows")
          .in(&Gemm::column_scale, "column_scale", "n", is(f32), "factors of the product's columns")
          .in(&Gemm::residual, "residual", "gated ? [batch] m n/2 : [batch] m n", floats,
              "added to the result")
          .out(&Gemm::out, "out", "gated ? [batch] m n/2 : [batch] m n",
               chosen_by("out_dtype", products.types, "a", bf16),
               "(activation(scale * row_scale * (a * b) * column_scale + bias) + residual) * out_scale")
          .with(add_activation<Gemm>)
          .option(&Gemm::gated, "gated",
                  "the activation of the first half of the columns times the second half")
          .with(add_factor<Gemm>)
          .option(&Gemm::out_scale, "out_scale",
                  "factor of the result, such as the inverse of its scale in fp8", any_factor)
          .option(&Gemm::out_dtype, "out_dtype", "dtype of the result",
                  {{}, {}, false, "f32, f16, bf16, e4m3 or e5m2", "convert the result"})
          .option(&Gemm::sum_dtype, "sum_dtype", "dtype of the sums of tensor cores",
                  {{}, {}, false, "f32, or f16 for matrices of f16", "leave it out"})
          .with(add_precision<Gemm>)
          .with(add_product_tiles<Gemm>)
          .require("sum_dtype", sums_fit, "f32, or f16 for matrices of f16", "leave it out")
          .require("gated", "gated ? n%2 == 0 : 1", "an even number of columns",
                   "give as many gates as values")
          .composed_gradient("products")
          .rival("sgemm")
          .examples(gemm_examples())
          .measured(gemm_measured())
          .built_in(gemm_built_in())
          .maps(gemm_maps())
          .run(run, formula);
  return table;
}

const OperatorSchema& accumulate_gemm_schema() {
  using Op = AccumulateGemm;
  static const OperatorSchema table =
      Schema<Op>("accumulate_gemm", "matrix product that is added to a matrix in place")
          .inout(&Op::sum, "sum", "[batch] m n", floats, "matrix to which the product is added")
          .follows()
          .with(add_operands<Op>)
          .with(add_factor<Op>)
          .with(add_precision<Op>)
          .with(add_product_tiles<Op>)
          .no_gradient("it writes in place")
          .examples({{"ragged", "m=37 k=45 n=29"},
                     {"weights_bf16", "m=40 k=130 n=24 bf16 sum:f32 transpose_a scale=0.5 splits=2"}})
          .measured({{"4096_bf16", "m=4096 n=4096 k=8192 bf16 sum:f32 transpose_a"}})
          .run(accumulate, accumulate_formula);
  return table;
}

}  // namespace tegula::ops
