// Products of tiles.
#include "lang/builder.hpp"
#include "tegula/lang/sparse.hpp"
#include "tegula/lang/tile_ops.hpp"

namespace tegula::lang {

namespace {

DType accumulator_of(DType operand, const Loc& at) {
  if (operand == f64) return f64;
  if (operand.is_floating()) return f32;
  if (operand.is_integer() && operand != i64 && operand != u32) return i32;
  fail(at, "gemm of " + std::string(operand.name()) + "; operands are floating, i8, u8, i16 or i32");
}

void check_gemm_ranks(std::initializer_list<const ir::View*> operands, const Loc& at) {
  for (auto* view : operands)
    if (view->rank() != 2)
      fail(at, "gemm: an operand has rank " + std::to_string(view->rank()) + "; operands have rank 2");
}

void check_gemm_types(const ir::View& a, const ir::View& b, const ir::View& c, bool may_be_f16,
                      const Loc& at) {
  if (a.buffer->type != b.buffer->type)
    fail(at, "gemm: the operand types differ, " + std::string(a.buffer->type.name()) + " and " +
                 std::string(b.buffer->type.name()) +
                 "; convert one of them: copy() converts to the type of its destination, and a Fragment has "
                 ".to(type)");
  const DType type = a.buffer->type, needed = accumulator_of(type, at);
  const bool in_f16 = may_be_f16 && type == f16 && c.buffer->type == f16;
  if (c.buffer->type != needed && !in_f16)
    fail(at,
         "gemm of " + std::string(type.name()) + ": the accumulator must be " + std::string(needed.name()) +
             (may_be_f16 && type == f16 ? " or f16" : "") + ", got " + std::string(c.buffer->type.name()) +
             (c.buffer->type == f16 && type != f16 ? "; only dense products of f16 are summed in f16" : ""));
  if (c.buffer == a.buffer || c.buffer == b.buffer)
    fail(at, "gemm: the accumulator is also an operand; use another tile");
}

void check_gemm(const ir::View& a, const ir::View& b, const ir::View& c, const Loc& at) {
  check_gemm_ranks({&a, &b, &c}, at);
  if (a.extent(1) != b.extent(0) || a.extent(0) != c.extent(0) || b.extent(1) != c.extent(1))
    fail(at, "gemm: " + shape_text(a) + " · " + shape_text(b) + " does not fit " + shape_text(c) +
                 "; [m, k] · [k, n] gives [m, n], and .T() transposes an operand");
  check_gemm_types(a, b, c, true, at);
}

void check_gemm_sparse(const ir::View& a, const ir::View& metadata, const ir::View& b, const ir::View& c,
                       const Loc& at) {
  check_gemm_ranks({&a, &metadata, &b, &c}, at);
  if (metadata.buffer->type != u8)
    fail(at, "gemm_sparse: the metadata are " + std::string(metadata.buffer->type.name()) +
                 "; they are u8, as compress_24 writes them");
  const std::int64_t k = b.extent(0);
  if (k % 8 != 0)
    fail(at, "gemm_sparse: " + std::to_string(k) +
                 " products per element are not a multiple of 8, which one byte of metadata describes; use "
                 "tiles with a multiple of 8 along k, preferably 64");
  if (a.extent(1) * 2 != k || a.extent(0) != c.extent(0) || b.extent(1) != c.extent(1))
    fail(at, "gemm_sparse: values " + shape_text(a) + " · " + shape_text(b) + " do not fit " + shape_text(c) +
                 "; values [m, k / 2] · [k, n] give [m, n], and .T() transposes an operand");
  if (metadata.extent(0) != a.extent(0) || metadata.extent(1) * 8 != k)
    fail(at, "gemm_sparse: metadata " + shape_text(metadata) + " do not fit values " + shape_text(a) +
                 "; they are [m, k / 8], one byte for four values");
  check_gemm_types(a, b, c, false, at);
}

}  // namespace

void gemm(const Tile& a, const Tile& b, Fragment& c, GemmOptions options, Loc at) {
  auto &x = *a.view(), &y = *b.view(), &z = *c.view();
  auto& builder = begin_op("gemm", {&x, &y, &z}, at);
  check_gemm(x, y, z, at);
  if (options.precision != Precision::ieee && x.buffer->type != f32)
    fail(at, "gemm of " + std::string(x.buffer->type.name()) +
                 ": .precision is for f32 operands; leave it out, or make the tiles f32");
  builder.check_writable(z, "gemm", at);
  ir::GemmHints hints{static_cast<ir::Accumulation>(options.accumulate),
                      static_cast<ir::Warps>(options.warps), options.swap, options.from_registers};
  hints.precision = static_cast<ir::Precision>(options.precision);
  builder.add(ir::statement(ir::Gemm{x, y, z, false, hints}, at));
}

void gemm_sparse(const Tile& values, const Tile& metadata, const Tile& b, Fragment& c, GemmOptions options,
                 Loc at) {
  auto &x = *values.view(), &e = *metadata.view(), &y = *b.view(), &z = *c.view();
  auto& builder = begin_op("gemm_sparse", {&x, &e, &y, &z}, at);
  check_gemm_sparse(x, e, y, z, at);
  builder.check_writable(z, "gemm_sparse", at);
  ir::GemmHints hints;
  hints.accumulation = static_cast<ir::Accumulation>(options.accumulate);
  hints.warps = static_cast<ir::Warps>(options.warps);
  builder.add(ir::statement(ir::Gemm{x, y, z, false, hints, e}, at));
}

}  // namespace tegula::lang
