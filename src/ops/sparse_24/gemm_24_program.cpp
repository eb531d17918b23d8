#include "ops/sparse_24/gemm_24_program.hpp"

#include "ir/codes_24.hpp"
#include "ops/pieces/padding.hpp"
#include "ops/products/operand_tile.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

void store(Fragment& sum, const SparseGemmInstance& c, const Tensor& out, const Expr& row,
           const Expr& column) {
  if (!c.transpose_out) return copy(sum, out.at(row, column));
  copy(sum.T(), out.at(column, row));
}

// Completes the sums of a tile and stores them.
void finish(Fragment& sum, const SparseGemmInstance& c, const EpilogueInputs& epilogue, const Tensor& out,
            const Expr& row, const Expr& column) {
  const auto complete = [&](Fragment& real) {
    epilogue.finish(real, c.transpose_out ? column : row, c.transpose_out ? row : column, c.transpose_out);
    store(real, c, out, row, column);
  };
  if (c.out == i32) return store(sum, c, out, row, column);
  if (c.sums() == f32) return complete(sum);
  Fragment real = map(sum, [&](Index i, Index j) { return f32(sum(i, j)); });
  complete(real);
}

// The sparse matrix with its zeros, by a grid of its own.
Tensor as_dense(const Tensor& values, const Tensor& metadata, const SparseGemmInstance& c) {
  constexpr int rows = 16, columns = 256;
  Tensor dense = workspace("dense", {values.extent(0), metadata.extent(1) * 8}, c.type);
  grid(ceildiv(dense.extent(1), columns), ceildiv(dense.extent(0), rows), [&](Index x, Index y) {
    Shared own({rows, columns / 2}, c.type), places({rows, columns / 8}, u8), all({rows, columns}, c.type);
    copy(values.at(y * rows, x * (columns / 2)), own);
    copy(metadata.at(y * rows, x * (columns / 8)), places);
    parallel(rows, columns / 4, [&](Index i, Index group) {
      const Loc at = Loc::current();
      Expr byte = places(i, group / 2), left = own(i, group * 2), right = own(i, group * 2 + 1);
      const ir::Expr positions = ir::positions_24(ir::code_24(byte.node(), Expr(group).node(), at), at);
      for (int e = 0; e < 4; ++e)
        all(i, group * 4 + e) = Expr(ir::element_24(positions, left.node(), right.node(), e, at), false);
    });
    copy(all, dense.at(y * rows, x * columns));
  });
  return dense;
}

struct Operands {
  Tensor values, metadata, b;
  std::optional<Tensor> dense;  // instead of the first two
};

// Steps whose metadata are loaded together: rows of 16 bytes, which the copy engine moves at least.
int steps_of_metadata(const GemmTiles& t) { return t.k == 64 ? 2 : 1; }

// Loads the metadata of a step. If the step is short, the copy engine would spend as long on metadata, in
// boxes with 16-byte rows, as on the operands, so threads load them.
void load_metadata(const Operands& from, const SparseGemmInstance& c, const Expr& row, const Expr& step,
                   Shared& to) {
  const int together = steps_of_metadata(c.tiles), columns = together * c.tiles.k / 8;
  if (!c.by_threads) return copy(from.metadata.at(row, step / together * columns), to);
  Expr first = step / together * columns;
  gather(
      from.metadata.slice(all, range(first, first + columns)), [&](Index i) { return row + i; }, to);
}

// Adds the products of a tile.
void multiply(const Operands& from, const SparseGemmInstance& c, const Expr& row, const Expr& column,
              Fragment& sum) {
  const GemmTiles& t = c.tiles;
  const int at_k = c.transpose_b ? 1 : 0;
  const DType type = c.dense.value_or(c.type);
  pipelined(ceildiv(from.b.extent(at_k), t.k), {.stages = 4}, [&](Index step) {
    OperandTile right("", t.k, t.n, type, c.transpose_b);
    if (from.dense) {
      Shared own({t.m, t.k}, type);
      copy(from.dense->at(row, step * t.k), own);
      right.load(from.b, step * t.k, column);
      return gemm(own, right.operand(), sum);
    }
    const int together = steps_of_metadata(t), columns = t.k / 8;
    Shared own({t.m, t.k / 2}, type), places({t.m, together * columns}, u8);
    copy(from.values.at(row, step * (t.k / 2)), own);
    load_metadata(from, c, row, step, places);
    right.load(from.b, step * t.k, column);
    if (together == 1) return gemm_sparse(own, places, right.operand(), sum);
    gemm_sparse(own, places.reshape({t.m, together, columns}).slice(all, step % together), right.operand(),
                sum);
  });
}

// The sums of all tiles, in rows that the copy engine takes and in the order of the result.
Tensor sums_of(const Tensor& out, const SparseGemmInstance& c) {
  const int piece = bytes_of_piece / c.sums().bytes();
  return workspace("sums", {out.extent(0), ceildiv(out.extent(1), piece) * piece}, c.sums());
}

// Completes all sums by a grid of its own.
void finish_grid(const Tensor& sums, SparseGemmInstance c, const EpilogueInputs& epilogue,
                 const Tensor& out) {
  constexpr int rows = 4, columns = 256;
  c.transpose_out = false;  // they are in its order
  grid(ceildiv(out.extent(1), columns), ceildiv(out.extent(0), rows), [&](Index x, Index y) {
    Expr row = y * rows, column = x * columns;
    Fragment sum = load(sums.at(row, column), {rows, columns});
    finish(sum, c, epilogue, out, row, column);
  });
}

void pad_operands(Operands& operands, const SparseGemmInstance& c) {
  if (c.pad_left) {
    operands.values = padded("padded_values", operands.values);
    operands.metadata = padded("padded_metadata", operands.metadata);
  }
  if (c.pad_b) operands.b = padded("padded_b", operands.b);
}

}  // namespace

Kernel sparse_gemm_program(const SparseGemmInstance& c) {
  return kernel(instance_name("gemm_24", c), [&] {
    const GemmTiles& t = c.tiles;
    Dim m("m"), n("n"), k("k");
    if (c.by_threads) k.multiple_of(columns_of_piece);
    Operands from{input("values", {m, k / 2}, c.type),
                  input("metadata", {m, k / 8}, u8),
                  c.transpose_b ? input("b", {n, k}, c.type) : input("b", {k, n}, c.type),
                  {}};
    Tensor out = c.transpose_out ? output("out", {n, m}, c.out) : output("out", {m, n}, c.out);
    const EpilogueInputs epilogue(c.epilogue, c.transpose_out ? n : m, c.transpose_out ? m : n);
    pad_operands(from, c);
    if (c.dense) from.dense.emplace(as_dense(from.values, from.metadata, c));
    std::optional<Tensor> sums;
    if (c.pad_out) sums.emplace(sums_of(out, c));
    grid(ceildiv(n, t.n), ceildiv(m, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Expr row = y * t.m, column = x * t.n;
      Fragment sum({t.m, t.n}, c.sums(), 0);
      multiply(from, c, row, column, sum);
      if (sums) return store(sum, c, *sums, row, column);
      finish(sum, c, epilogue, out, row, column);
    });
    if (sums) finish_grid(*sums, c, epilogue, out);
  });
}

}  // namespace tegula::ops
