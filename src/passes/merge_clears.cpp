#include <cmath>
#include <optional>

#include "ir/effects.hpp"
#include "ir/ir.hpp"
#include "ir/visit.hpp"
#include "ir/zero.hpp"
#include "passes/passes.hpp"
#include "passes/plain_control.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// The same reduction with `overwrite`, if it starts from what `fill` wrote and that is its identity.
bool starts_from_identity(const Reduce& reduce, const Fill& fill) {
  const Expr& value = fill.value;
  if (!is_constant(value)) return false;
  switch (reduce.op) {
    case ReduceOp::sum:
    case ReduceOp::absmax:
    case ReduceOp::any:
      return is_zero(value);
    case ReduceOp::all:
      return !is_zero(value);
    case ReduceOp::max:
      return value->held().is_floating() && value->real == -HUGE_VAL;
    case ReduceOp::min:
      return value->held().is_floating() && value->real == HUGE_VAL;
  }
  return false;
}

bool merge(Body& body, std::size_t from, const Fill& fill);

// The statement that makes all of the cleared tile without reading it, if `stmt` can become that.
std::optional<Stmt> overwriting(const Stmt& stmt, const Fill& fill) {
  const BufferPtr& tile = fill.to.buffer;
  if (const auto* gemm = as<Gemm>(stmt)) {
    if (gemm->c.buffer != tile || !is_whole(gemm->c) || !is_zero(fill.value)) return std::nullopt;
    for (const View* operand : operands(*gemm))
      if (operand->buffer == tile) return std::nullopt;
    Gemm result = *gemm;
    result.overwrite = true;
    return statement(result, stmt->at);
  }
  if (const auto* reduce = as<Reduce>(stmt)) {
    if (reduce->to.buffer != tile || !is_whole(reduce->to) || reduce->from.buffer == tile)
      return std::nullopt;
    if (!starts_from_identity(*reduce, fill)) return std::nullopt;
    Reduce result = *reduce;
    result.overwrite = true;
    return statement(result, stmt->at);
  }
  if (const auto* loop = as<For>(stmt); loop && has_one_step(*loop)) {
    For result = *loop;
    if (merge(result.body, 0, fill)) return statement(result, stmt->at);
  }
  return std::nullopt;
}

// Makes the first statement, from that one on, that touches the cleared tile overwrite it; whether that
// worked.
bool merge(Body& body, std::size_t from, const Fill& fill) {
  for (std::size_t i = from; i < body.size(); ++i) {
    if (auto merged = overwriting(body[i], fill)) {
      body[i] = *merged;
      return true;
    }
    const Effects e = all_effects(body[i]);
    if (e.reads(fill.to.buffer) || e.writes(fill.to.buffer) || e.leaves) return false;
  }
  return false;
}

Body merged(const Body& body) {
  Mapping nested;
  nested.body = merged;
  Body result = map(body, nested);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto* fill = as<Fill>(result[i]);
    if (!fill || !is_whole(fill->to) || !fill->to.is_tile()) continue;
    if (const Fill own = *fill; !merge(result, i + 1, own)) continue;
    result.erase(result.begin() + static_cast<std::ptrdiff_t>(i));
    --i;
  }
  return result;
}

}  // namespace

Kernel merge_clears(const Kernel& kernel) {
  return map_grids(kernel, [](const Grid& grid) { return merged(grid.body); });
}

}  // namespace tegula::passes
