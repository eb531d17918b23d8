#include "tegula/ops/block_sparse_gemm.hpp"

#include <numeric>

#include "ops/lists/sorted_lists.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/products/operand_tile.hpp"
#include "ops/schema/functions.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct Instance {
  DType type = f32, compute = f32, out = f32;
  bool transpose_b = false;
  int m = 64, n = 64, k = 64;  // of a tile, each of which divides a block
  // Blocks of k are listed before, once for all tiles of a block of m and n, so that no step waits for the
  // mask: of so many that are marked at a time.
  std::optional<int> listed = {};
  bool several = false;  // a block of k has several tiles
  auto fields() const {
    return std::tuple(type, compute, labelled("out", out), labelled("tb", transpose_b), joined("t", m, n), k,
                      labelled("listed", listed), labelled("parts", several));
  }
};

struct Program {
  const Instance& c;
  Dim m{"m"}, n{"n"}, k{"k"}, blocks_m{"blocks_m"}, blocks_n{"blocks_n"}, blocks_k{"blocks_k"};
  Tensor a = input("a", {m, k}, c.type);
  Tensor b = c.transpose_b ? input("b", {n, k}, c.type) : input("b", {k, n}, c.type);
  Tensor mask = input("mask", {blocks_m, blocks_n, blocks_k}, boolean), out = output("out", {m, n}, c.out);
  // Tiles of a block.
  Expr of_m = scalar("block_m", i32) / c.m, of_n = scalar("block_n", i32) / c.n,
       of_k = scalar("block_k", i32) / c.k;

  void add(Fragment& sum, const Expr& row, const Expr& column, const Expr& inner) const {
    Shared a_tile({c.m, c.k}, c.compute);
    OperandTile b_tile("", c.k, c.n, c.compute, c.transpose_b);
    copy(a.at(row, inner), a_tile);
    b_tile.load(b, inner, column);
    gemm(a_tile, b_tile.operand(), sum);
  }
  void add_listed(Fragment& sum, const SortedLists::List& list, const Expr& row, const Expr& column) const {
    pipelined(c.several ? list.count * of_k : list.count, {.stages = 4}, [&](Index step) {
      Expr tile = c.several ? list.blocks(step / of_k) * of_k + step % of_k : list.blocks(step);
      add(sum, row, column, tile * c.k);
    });
  }
  void add_masked(Fragment& sum, const Tensor& chosen, const Expr& row, const Expr& column) const {
    pipelined(ceildiv(k, c.k), {.stages = 4},
              [&](Index step) { when(chosen(step / of_k), [&] { add(sum, row, column, step * c.k); }); });
  }

  void run() const {
    std::optional<SortedLists> lists;
    if (c.listed) {
      lists.emplace(Operand(1), blocks_n, blocks_m, blocks_k, *c.listed,
                    [&](const Expr&, const Expr& column, const Expr& row) -> SortedLists::Row {
                      return {{mask.slice(row, column), blocks_k, true}, blocks_k};
                    });
      lists->record_grid();
    }
    grid(ceildiv(n, c.n), ceildiv(m, c.m), {.order = Order::grouped(16)}, [&](Index x, Index y) {
      Expr row = y * c.m, column = x * c.n, block_row = y / of_m, block_column = x / of_n;
      Fragment sum({c.m, c.n}, f32, 0);
      if (lists)
        add_listed(sum, lists->list(Operand(0), block_column, block_row), row, column);
      else
        add_masked(sum, mask.slice(block_row, block_column), row, column);
      copy(sum, out.at(row, column));
    });
  }
};

Kernel program(const Instance& c) {
  return kernel(instance_name("block_sparse_gemm", c), [&] { Program{c}.run(); });
}

// The largest extent of a tile up to `most` that divides a block of so many rows or columns: a multiple of
// `wanted`, such as what warp groups multiply, if there is one, or of what warps do.
int dividing(std::int64_t block, int most, int wanted) {
  constexpr int of_warps = 16;
  for (const int unit : {wanted, of_warps})
    for (int extent = most; extent >= unit; extent -= unit)
      if (block % extent == 0) return extent;
  return of_warps;
}

Instance plan(const Bound<BlockSparseGemm>& c) {
  Instance t{.type = c.type("a"), .compute = multiplied_type(c.type("a"), c.on_gpu()), .out = c.type("out")};
  t.transpose_b = c->transpose_b;
  const bool is_16_bits = t.compute.bits() == 16;
  const bool by_groups = c.on_gpu() && is_16_bits;
  const auto extent = [&](std::int64_t block, int of_groups, int other) -> int {
    constexpr int of_vectors = 32;
    if (by_groups) return dividing(block, of_groups, warp_group_rows);
    return c.on_gpu() ? static_cast<int>(std::gcd(block, other)) : dividing(block, other, of_vectors);
  };
  t.m = extent(c->block_m, 128, 64), t.n = extent(c->block_n, 256, 128);
  // Warps multiply tiles of which no extent is one of warp groups: 96 x 96 took 1.2 times as long as 32 x 32.
  if (by_groups && t.m % warp_group_rows != 0 && t.n % warp_group_rows != 0)
    t.m = std::gcd(c->block_m, 128), t.n = std::gcd(c->block_n, 256);
  t.k = by_groups ? dividing(c->block_k, 64, warp_group_rows) : std::gcd(c->block_k, c.on_gpu() ? 32 : 64);
  if (c.on_gpu()) t.listed = marked_blocks(c.dim("blocks_k")), t.several = c->block_k > t.k;
  return t;
}

// What a block of few rows reads of b serves no other rows, whose masks differ, and likewise of few columns;
// on a CPU copies of either operand take as long.
void note_few_rows(const Instance& t, bool on_gpu, Launch& launch) {
  const int few = on_gpu ? 32 : 16;
  if ((on_gpu && t.compute.bits() != 16) || std::min(t.m, t.n) > few) return;
  launch.note([&] {
    return fmt::format(
        "plan: a tile of {0} x {1} reads {0} rows of a and {1} columns of b for {2} products each step, and "
        "these bytes take longer; blocks of more rows and columns read less",
        t.m, t.n, t.m * t.n);
  });
}

void run(const Bound<BlockSparseGemm>& c, Launch& launch) {
  const Instance t = plan(c);
  note_few_rows(t, c.on_gpu(), launch);
  launch(t, program);
}

void formula(const Bound<BlockSparseGemm>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), k = c.dim("k");
  const auto a = exact.array("a"), b = exact.array("b"), out = exact.array("out");
  const tegula::Tensor& mask = exact["mask"];
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t e = 0; e < k; ++e)
        if (mask.at<bool>(i / c->block_m, j / c->block_n, e / c->block_k))
          sum += a(i, e) * (c->transpose_b ? b(j, e) : b(e, j));
      out(i, j) = sum;
    }
}

// Products of the blocks that the mask has.
double chosen(const Bound<BlockSparseGemm>& c) {
  double sum = 0;
  const TensorRef& mask = c["mask"];
  const auto left = [](std::int64_t extent, std::int64_t block, int size) {
    return static_cast<double>(std::min<std::int64_t>(size, extent - block * size));
  };
  for (std::int64_t i = 0; i < mask.size(0); ++i)
    for (std::int64_t j = 0; j < mask.size(1); ++j)
      for (std::int64_t e = 0; e < mask.size(2); ++e)
        if (mask.data_as<const bool>()[i * mask.stride(0) + j * mask.stride(1) + e * mask.stride(2)])
          sum += left(c.dim("m"), i, c->block_m) * left(c.dim("n"), j, c->block_n) *
                 left(c.dim("k"), e, c->block_k);
  return 2 * sum;
}

std::vector<CallMap> maps() {
  const std::string base = "m=4096 n=4096 k=4096 blocks_m=32 blocks_n=32 blocks_k=64 bf16";
  const auto blocks = [](const char* dim) {
    std::vector<std::string> result;
    for (const int block : {16, 32, 48, 64, 96, 128, 192, 256})
      result.push_back(fmt::format("block_{0}={1} blocks_{0}={2}", dim, block, (4096 + block - 1) / block));
    return result;
  };
  return {{"blocks", base, blocks("m"), blocks("n")},
          {"depths", base, blocks("k"), {"", "transpose_b", "f16", "f32", "out_dtype=f32"}}};
}

const OptionRule block = between(16, 1 << 20, "a multiple of 16", "give masks of such blocks");

}  // namespace

const OperatorSchema& block_sparse_gemm_schema() {
  using Op = BlockSparseGemm;
  static const OperatorSchema table =
      Schema<Op>("block_sparse_gemm", "matrix product over the blocks of m, n and k that a mask selects")
          .in(&Op::a, "a", "m k", floats, "left matrix")
          .in(&Op::b, "b", "transpose_b ? n k : k n", same_as("a"), "right matrix")
          .remedy("check transpose_b")
          .in(&Op::mask, "mask", "blocks_m blocks_n blocks_k", is(boolean), "which blocks are summed")
          .option(&Op::transpose_b, "transpose_b", "b is [n, k]")
          .option(&Op::block_m, "block_m", "rows of a block", block)
          .option(&Op::block_n, "block_n", "columns of a block", block)
          .option(&Op::block_k, "block_k", "inner extent of a block", block)
          .option(&Op::out_dtype, "out_dtype", "dtype of the result", result_dtype)
          .out(&Op::out, "out", "m n", chosen_by("out_dtype", floats.types, "a", bf16), "the sums")
          .require("block_m", "block_m%16 == 0", "a multiple of 16", "give masks of such blocks")
          .require("block_n", "block_n%16 == 0", "a multiple of 16", "give masks of such blocks")
          .require("block_k", "block_k%16 == 0", "a multiple of 16", "give masks of such blocks")
          .require("mask", "blocks_m == ceildiv(m,block_m)", "an entry for every block of m", "check block_m")
          .require("mask", "blocks_n == ceildiv(n,block_n)", "an entry for every block of n", "check block_n")
          .require("mask", "blocks_k == ceildiv(k,block_k)", "an entry for every block of k", "check block_k")
          .source("Gray et al. 2017, GPU Kernels for Block-Sparse Weights")
          .no_gradient("gradients are such products with masks of their own")
          .flops("2*m*n*k")
          .counted(chosen)
          .examples(
              {{"ragged",
                "m=37 k=100 n=70 blocks_m=3 blocks_n=2 blocks_k=4 block_m=16 block_n=48 block_k=32"},
               {"blocks_of_48_f16",
                "m=150 k=130 n=400 blocks_m=4 blocks_n=3 blocks_k=3 f16 block_m=48 block_n=192 block_k=48"},
               {"bf16", "m=130 k=200 n=72 blocks_m=2 blocks_n=1 blocks_k=4 bf16 transpose_b out_dtype=f32"}})
          .measured(
              {{"8192_bf16", "m=8192 n=8192 k=8192 blocks_m=64 blocks_n=32 blocks_k=128 bf16 block_n=256"}})
          .maps(maps())
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
