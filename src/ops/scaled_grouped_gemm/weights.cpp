// The gradient of the matrices of scaled products of groups.
#include "ops/pieces/matrices.hpp"
#include "ops/pieces/padding.hpp"
#include "ops/products/group_padding.hpp"
#include "ops/products/groups_table.hpp"
#include "ops/products/low_bits.hpp"
#include "ops/products/maps.hpp"
#include "ops/products/product_tiles.hpp"
#include "ops/products/scaled_products.hpp"
#include "ops/scaled_grouped_gemm/group_blocks.hpp"
#include "ops/schema/example.hpp"
#include "ops/schema/schema.hpp"
#include "ops/schema/sums_of_8_bits.hpp"
#include "tegula/ops/scaled_grouped_gemm.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct WeightsInstance {
  DType type = e4m3, compute = f32, scale = f32, out = f32;
  std::optional<DType> c = {};
  bool by_column_a = false, by_column_dout = false;                // rows of a column are contiguous
  bool scales_by_column_a = false, scales_by_column_dout = false;  // and so do its scales
  bool aligned = false;
  bool in_blocks = false;                              // operands are what group_blocks_program makes of them
  bool pad_out = false;                                // results are stored in whole pieces, and written last
  bool pad_scales_a = false, pad_scales_dout = false;  // those of a block begin anywhere and are copied first
  int m = 64, n = 64;
  auto fields() const {
    return std::tuple(type, compute, labelled("s", scale), labelled("out", out), labelled("c", c),
                      labelled("ca", by_column_a), labelled("cd", by_column_dout),
                      labelled("sa", scales_by_column_a), labelled("sd", scales_by_column_dout),
                      labelled("aligned", aligned), labelled("blocks", in_blocks), joined("t", m, n),
                      labelled("pto", pad_out), labelled("psa", pad_scales_a),
                      labelled("psd", pad_scales_dout));
  }
};

// [m, columns], or [columns, m] where the rows of a column are contiguous.
Tensor turned_input(const char* name, const Expr& rows, const Expr& columns, bool by_column, DType type) {
  return by_column ? input(name, {columns, rows}, type) : input(name, {rows, columns}, type);
}

struct WeightsProgram {
  const WeightsInstance& c;
  Expr m = c.in_blocks ? scalar("m", i32) : Expr(Dim("m"));
  Dim n{"n"}, k{"k"}, groups{"groups"};
  Expr blocks = ceildiv(m, scaled_block), rows = c.in_blocks ? rows_of_blocks() : m;
  Tensor a = turned_input("a", rows, k, c.by_column_a, c.type),
         dout = turned_input("dout", rows, n, c.by_column_dout, c.type);
  Tensor scale_a = turned_input("scale_a", blocks, k, c.scales_by_column_a, c.scale),
         scale_dout = turned_input("scale_dout", blocks, n, c.scales_by_column_dout, c.scale);
  Tensor offsets = input("offsets", {groups + 1}, i32), out = output("out", {groups, k, n}, c.out);
  Tensor added = c.c ? input("c", {groups, k, n}, *c.c) : a;
  Expr most = scalar("max_rows", i32);
  Tensor stored = stored_rows(out, c.pad_out);
  Tensor whole_scale_a = c.pad_scales_a ? padded("whole_scale_a", scale_a) : scale_a,
         whole_scale_dout = c.pad_scales_dout ? padded("whole_scale_dout", scale_dout) : scale_dout;

  static Expr rows_of_blocks() {
    Dim rows("rows");
    rows.multiple_of(scaled_block);
    return rows;
  }
  // Whether tiles hold rows of one group only, whatever is loaded beside them.
  bool whole() const { return c.aligned || c.in_blocks; }
  // What a group has of an operand: its rows, or, where these are whole blocks, all of them.
  ScaledOperand operand(const Tensor& values, const Tensor& scales, bool by_column, bool scales_by_column,
                        const Range& rows) const {
    const Tensor own = whole() ? values : by_column ? values.slice(all, rows) : values.slice(rows);
    return {own, scales, by_column ? Along::k : Along::rows, scales_by_column ? Along::k : Along::rows, 1};
  }

  // Where the rows of operands begin, among all.
  Expr begin_of(const Range& rows, const Expr& group) const {
    if (c.in_blocks) return group * -scaled_block;
    return c.aligned ? Expr(Operand(0)) : Expr(rows.begin);
  }

  void run() const {
    grid(ceildiv(n, c.n), ceildiv(k, c.m), groups, {.order = Order::grouped(8)},
         [&](Index x, Index y, Index group) {
           const Range rows = range(offsets(group), offsets(group + 1));
           assert_that(rows.begin >= 0 && rows.begin <= rows.end && rows.end <= m &&
                           (most == 0 || rows.end - rows.begin <= most),
                       "offsets do not fall, end with the number of rows, and keep max_rows");
           if (c.aligned)
             assert_that(rows.begin % scaled_block == 0 && (rows.end % scaled_block == 0 || rows.end == m),
                         "groups begin at multiples of 128, as the call promises");
           // Of f32, whole sectors of rows leave by threads as well; the copy engine takes a slot.
           ScaledSums sums = scaled_sums(c.m, c.n, false);
           if (c.c)
             for (auto& [first, sum] : sums) copy(added.slice(group).at(y * c.m + first, x * c.n), sum);
           // A group without rows has no blocks, wherever it begins.
           Expr end =
               select(rows.begin < rows.end, ceildiv(rows.end, scaled_block), rows.begin / scaled_block);
           multiply_scaled(sums, operand(a, whole_scale_a, c.by_column_a, c.scales_by_column_a, rows),
                           operand(dout, whole_scale_dout, c.by_column_dout, c.scales_by_column_dout, rows),
                           y * c.m, x * c.n, range(rows.begin / scaled_block, end), begin_of(rows, group),
                           c.compute);
           for (auto& [first, sum] : sums) copy(sum, stored.slice(group).at(y * c.m + first, x * c.n));
         });
    if (c.pad_out) write_matrices(stored, out);
  }
};

Kernel weights_program(const WeightsInstance& c) {
  return kernel(instance_name("scaled_grouped_gemm_weights", c), [&] { WeightsProgram{c}.run(); });
}

TensorRef as(TensorRef tensor, DType type) {
  const std::int64_t ratio = type.bytes() / tensor.dtype.bytes();
  tensor.dtype = type, tensor.shape.back() /= ratio;
  for (std::size_t dim = 0; dim + 1 < tensor.shape.size(); ++dim) tensor.strides[dim] /= ratio;
  return tensor;
}

// The columns of an operand, in blocks of 128 rows that belong to one group.
tegula::Tensor blocks_of_groups(const Bound<ScaledGroupedGemmWeights>& c, Launch& launch, const char* operand,
                                bool padded) {
  const std::int64_t groups = c.dim("groups"), blocks = (c.dim("m") + scaled_block - 1) / scaled_block;
  const bool by_column = lies_along_rows(c[operand]);
  const TensorRef values = turned(c[operand], by_column);
  tegula::Tensor result =
      launch.scratch({c[operand].size(1), (blocks + groups) * scaled_block}, values.dtype);
  launch(GroupBlocksKernel{by_column, padded}, group_blocks_program,
         {{"values", as(values, u8)},
          {"parts", std::max<std::int64_t>((blocks + groups - 1) / std::max<std::int64_t>(groups, 1), 1)},
          {"blocks", as(result, u32)}});
  return result;
}

// The copy engine brings those of the columns of a tile.
void pad_scales(const Bound<ScaledGroupedGemmWeights>& c, WeightsInstance& t) {
  if (!t.in_blocks) return;
  t.pad_scales_a = !t.scales_by_column_a && starts_off_pieces(c["scale_a"]);
  t.pad_scales_dout = !t.scales_by_column_dout && starts_off_pieces(c["scale_dout"]);
}

void run_weights(const Bound<ScaledGroupedGemmWeights>& c, Launch& launch) {
  WeightsInstance t{
      .type = c.type("a"), .scale = c.type("scale_a"), .out = c.type("out"), .c = c.type_if("c")};
  t.by_column_a = lies_along_rows(c["a"]), t.by_column_dout = lies_along_rows(c["dout"]);
  t.scales_by_column_a = lies_along_rows(c["scale_a"]);
  t.scales_by_column_dout = lies_along_rows(c["scale_dout"]);
  t.aligned = c->aligned;
  t.compute = product_tile_type(c.call(), t.type, true);
  // Tensor cores take 8 bits of columns that are contiguous, which the copy engine brings if no group's
  // limit cuts a tile; reading and writing operands once more costs less than any other way.
  t.in_blocks = t.compute.bits() == 8 && !(t.aligned && t.by_column_a && t.by_column_dout);
  if (!t.in_blocks && !(t.by_column_a && t.by_column_dout))
    t.compute = product_tile_type(c.call(), t.type, false);
  TensorRef a = turned(c["a"], t.by_column_a), dout = turned(c["dout"], t.by_column_dout);
  std::optional<tegula::Tensor> blocks_of_a, blocks_of_dout;
  if (t.in_blocks) {
    const GroupPadding padding = padding_of_matrices(launch, t.type, a, dout, c["out"]);
    t.pad_out = padding.out;
    a = blocks_of_a.emplace(blocks_of_groups(c, launch, "a", padding.a));
    dout = blocks_of_dout.emplace(blocks_of_groups(c, launch, "dout", padding.b));
    t.by_column_a = t.by_column_dout = true;
  }
  if (c.on_gpu()) {
    const std::int64_t groups = std::max<std::int64_t>(c.dim("groups"), 1);
    const ProductTile tile =
        best_tile(scaled_tiles(t.compute.bits() == 8), {groups, c.dim("k"), c.dim("n"), c.dim("m") / groups},
                  1, planned_gpu_processors(c.call()));
    t.m = tile.m, t.n = tile.n;
  }
  pad_scales(c, t);
  launch(t, weights_program,
         {{"a", a},
          {"dout", dout},
          {"scale_a", turned(c["scale_a"], t.scales_by_column_a)},
          {"scale_dout", turned(c["scale_dout"], t.scales_by_column_dout)}});
}

void weights_formula(const Bound<ScaledGroupedGemmWeights>& c, Exact& exact) {
  const std::int64_t n = c.dim("n"), k = c.dim("k");
  const auto a = exact.array("a"), dout = exact.array("dout"), out = exact.array("out");
  const double* added = exact.data_if("c");
  const std::vector<double> of_a = scales_of(exact["scale_a"]), of_dout = scales_of(exact["scale_dout"]);
  const auto* offsets = exact["offsets"].data_as<std::int32_t>();
  for (std::int64_t g = 0; g < c.dim("groups"); ++g)
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = added ? added[(g * k + i) * n + j] : 0;
        for (std::int64_t row = offsets[g]; row < offsets[g + 1];) {
          const std::int64_t block = row / scaled_block,
                             end = std::min<std::int64_t>((block + 1) * scaled_block, offsets[g + 1]);
          const double partial = sum_of_8_bits(end - row, exact.steps() != f64, [&](std::int64_t at) {
            return a(row + at, i) * dout(row + at, j);
          });
          sum += partial * of_a[block * k + i] * of_dout[block * n + j];
          row = end;
        }
        out(g, i, j) = sum;
      }
}

// Groups of random rows; where the call promises so, they begin and end at multiples of 128.
tegula::Tensor offsets_of_example(const Shape& shape, DType, std::uint64_t seed,
                                  const std::function<std::int64_t(const std::string&)>& value) {
  const tegula::Tensor offsets = boundaries(Packing::random, shape[0], value("m"), seed);
  if (value("aligned") == 0) return offsets;
  auto* at = offsets.data_as<std::int32_t>();
  for (std::int64_t i = 0; i < offsets.nelements(); ++i) at[i] = at[i] / scaled_block * scaled_block;
  return offsets;
}

}  // namespace

const OperatorSchema& scaled_grouped_gemm_weights_schema() {
  using Op = ScaledGroupedGemmWeights;
  static const OperatorSchema table =
      Schema<Op>("scaled_grouped_gemm_weights", "gradients of the matrices of scaled products of groups")
          .in(&Op::a, "a", "m k", one_of({e4m3, e5m2}), "rows of all groups")
          .in(&Op::dout, "dout", "m n", same_as("a"), "gradients of the results")
          .in(&Op::scale_a, "scale_a", "(m+127)/128 k", one_of({f32, u8}),
              "factors of every column in every 128 rows; u8 is e8m0")
          .range("120", "135")
          .in(&Op::scale_dout, "scale_dout", "(m+127)/128 n", same_as("scale_a"), "the same of dout")
          .range("120", "135")
          .with(add_offsets<Op>)
          .values(offsets_of_example)
          .in(&Op::c, "c", "groups k n", floats, "added")
          .option(&Op::aligned, "aligned", "a promise: groups begin at multiples of 128")
          .with(add_max_rows<Op>)
          .option(&Op::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .out(&Op::out, "out", "groups k n", chosen_by("out_dtype", {f32, f16, bf16}, "", f32),
               "c + the scaled products over the rows of every group")
          .source("DeepSeek-AI 2024, DeepSeek-V3 Technical Report; DeepGEMM")
          .no_gradient("it is a gradient")
          .flops("2*m*n*k")
          .examples({{"ragged", "groups=3 m=300 k=40 n=72"},
                     {"added_bf16", "groups=2 m=140 k=24 n=136 c:f32"},
                     {"odd", "groups=3 m=300 k=45 n=201"}})
          .measured({{"4x8192", "groups=4 m=32768 k=4096 n=7168"}})
          .maps(group_maps({}))
          .run(run_weights, weights_formula);
  return table;
}

}  // namespace tegula::ops
