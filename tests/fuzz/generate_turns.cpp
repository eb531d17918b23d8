// Contributions whose orders are consecutive, as GPUs need them: every block of the grid adds once, at the
// end.
#include "fuzz/generator.hpp"
#include "fuzz/views.hpp"

namespace tegula::fuzz {

using namespace ir;

// Whether blocks that begin later have larger orders if the first index changes fastest.
bool Generator::dynamic_tiles(const Grid& grid) const {
  return !may_exit_ && (grid.hints.order == GridOrder::automatic || grid.hints.order == GridOrder::row);
}

void Generator::contribute_in_turns(const Grid& grid, const Shape& extents) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].use == Use::in_turns) contribute_in_turn(tensors_[i], grid, extents);
  }
}

// Some indices of the grid choose the window, the others count its contributions.
void Generator::contribute_in_turn(const TensorPlace& tensor, const Grid& grid, const Shape& extents) {
  const Shape tensor_shape = tensor.shape, shape = random_shape(static_cast<int>(tensor_shape.size()));
  if (!spend(2 * product_of(shape))) return;
  const BufferPtr buffer = tensor.buffer;
  const AtomicOp op = tensor.op;
  declare(buffer->type, shape, contribution(tensor), random_space());
  const std::size_t tile = tiles_.size() - 1;
  random_.chance(30) ? fill(tiles_[tile]) : parallel_over(tile);
  if (!tiles_[tile].defined) fill(tiles_[tile]);

  std::vector<Expr> number(shape.size());
  Expr order = int32(0);
  std::int64_t radix = 1;
  for (std::size_t g = 0; g < extents.size(); ++g) {
    const auto axis =
        static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(shape.size()) - 1));
    const Expr index = ir::variable(grid.index[g]);
    if (!number[axis] && random_.chance(40)) {
      number[axis] = index;
      continue;
    }
    order = plus(order, make(Op::mul, i32, {index, int32(radix)}));
    radix *= extents[g];
  }
  View window = whole(buffer);
  Access words;
  std::vector<Expr> word_extents;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::int64_t tiles = (tensor_shape[axis] + shape[axis] - 1) / shape[axis];
    const std::int64_t words_of_tile = axis + 1 == shape.size() ? turn_parts : 1;
    if (!number[axis]) number[axis] = int32(random_.between(0, tiles));
    shift(window, static_cast<int>(axis), make(Op::mul, i32, {number[axis], int32(shape[axis])}));
    word_extents.push_back(int32(tiles * words_of_tile));
    words.index.push_back(make(Op::mul, i32, {number[axis], int32(words_of_tile)}));
  }
  kernel_.workspaces.push_back(std::make_shared<const Buffer>(
      Buffer{buffer->name + "_turns" + std::to_string(kernel_.workspaces.size()), Space::global,
             Role::workspace, i32, std::move(word_extents), true, Loc()}));
  words.view = whole(kernel_.workspaces.back());
  emit(Accumulate{op, window, whole(tiles_[tile].buffer), order, std::move(words), random_.chance(40)});
}

}  // namespace tegula::fuzz
