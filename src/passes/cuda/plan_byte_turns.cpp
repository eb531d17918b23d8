#include "passes/cuda/plan_byte_turns.hpp"

namespace tegula::passes {

using namespace ir;

std::optional<ByteTurn> plan_byte_turn(const Stmt& stmt) {
  const auto* loop = as<For>(stmt);
  if (!loop || loop->kind != LoopKind::parallel || loop->index.size() != 2 || loop->body.size() != 2)
    return std::nullopt;
  const auto* load = as<Load>(loop->body[0]);
  const auto* store = as<Store>(loop->body[1]);
  if (!load || !store || load->from.view.is_tile() || !is_variable(store->value, load->variable)) return std::nullopt;
  const View& to = store->to.view;
  const DType type = to.buffer->type;
  if (to.buffer->space != Space::shared || to.buffer->rank() != 2 || !is_own_shape(to)) return std::nullopt;
  if (type.bits() != 8 || type != load->from.view.buffer->type) return std::nullopt;
  const std::vector<Expr> at = coordinates(store->to);
  if (!is_variable(at[0], loop->index[1]) || !is_variable(at[1], loop->index[0])) return std::nullopt;
  const bool whole = is_constant(loop->begin[0], 0) && is_constant(loop->begin[1], 0) &&
                     is_constant(loop->end[0]) && constant_value(loop->end[0]) % rows_of_warp == 0 &&
                     is_constant(loop->end[1]) && constant_value(loop->end[1]) % turned_columns == 0;
  if (!whole || to.buffer->extent(0) % turned_columns != 0 || to.buffer->extent(1) % turned_rows != 0)
    return std::nullopt;
  return ByteTurn{loop, load, store};
}

}  // namespace tegula::passes
