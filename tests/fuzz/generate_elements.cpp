// Random `parallel` loops. Each written buffer gives every iteration one element of its own.
#include <algorithm>
#include <numeric>

#include "fuzz/generator.hpp"
#include "fuzz/views.hpp"

namespace tegula::fuzz {

using namespace ir;

// The element whose coordinates are the loop's indices, each once, in some dimension; other dimensions are
// fixed. Nothing if the buffer has too few dimensions or, for a tile, is too small.
std::optional<Access> Generator::own_access(const View& view, const Shape& extents, const For& loop,
                                            const Shape& count) {
  if (extents.size() < count.size()) return std::nullopt;
  std::vector<int> axes(extents.size());
  std::iota(axes.begin(), axes.end(), 0);
  for (std::size_t d = axes.size(); d > 1 && random_.chance(50); --d)
    std::swap(axes[d - 1],
              axes[static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(d) - 1))]);
  Access access{view, std::vector<Expr>(extents.size())};
  for (std::size_t d = 0; d < extents.size(); ++d) {
    const auto axis = static_cast<std::size_t>(axes[d]);
    const std::int64_t extent = extents[axis];
    if (d >= count.size()) {
      access.index[axis] = int32(random_.between(0, std::max<std::int64_t>(extent, 1) - 1));
      continue;
    }
    if (view.is_tile() && count[d] > extent) return std::nullopt;
    const Expr i = ir::variable(loop.index[d]);
    const std::int64_t room = view.is_tile() ? extent - count[d] : 2;
    const std::int64_t offset = random_.chance(70) ? 0 : random_.between(view.is_tile() ? 0 : -2, room);
    access.index[axis] =
        random_.chance(15) ? make(Op::sub, i32, {int32(offset + count[d] - 1), i}) : plus(i, int32(offset));
  }
  return access;
}

// The ends of the loop; some are known at run time only, where `count` is the most they can be.
For Generator::open_parallel(const Shape& count, bool exactly) {
  For loop{LoopKind::parallel, {}, {}, {}, 0, {}};
  for (const std::int64_t n : count) {
    const bool varies = !exactly && random_.chance(40);
    loop.begin.push_back(int32(0));
    loop.end.push_back(varies ? within(value(i32, 1), random_.pick({-1, 0, 1}), n).e : int32(n));
    loop.index.push_back(variable("p", i32, VariableKind::index, integers(0, n - 1)));
  }
  return loop;
}

void Generator::fill_parallel(For& loop, const Shape& count, const std::function<void()>& contents) {
  const std::int64_t times = times_;
  times_ *= std::max<std::int64_t>(1, product_of(count));
  const bool outer_loop = std::exchange(in_loop_, false);
  std::vector<bool> writable;
  for (MutablePlace& v : variables_) writable.push_back(std::exchange(v.writable, false));
  loop.body = body([&] {
    for (const VariablePtr& index : loop.index)
      scalars_.push_back({index, program_.contracts.variables.at(index.get()), true});
    in_parallel_ = true;
    contents();
    in_parallel_ = false;
  });
  for (std::size_t i = 0; i < writable.size(); ++i) variables_[i].writable = writable[i];
  own_elements_.clear();
  in_loop_ = outer_loop;
  times_ = times;
  emit(std::move(loop));
}

// Sets all elements of the tile.
void Generator::parallel_over(std::size_t index) {
  const TilePlace tile = tiles_[index];
  if (!spend(4 * product_of(tile.shape))) return fill(tiles_[index]);
  For loop = open_parallel(tile.shape, true);
  Access own{whole(tile.buffer), {}};
  for (const VariablePtr& i : loop.index) own.index.push_back(ir::variable(i));
  own_elements_.push_back({own, tile.contract, tile.defined});
  add_targets(loop, tile.shape);
  fill_parallel(loop, tile.shape, [&] {
    element_statements(random_.pick({0, 0, 1, 2, 4}));
    emit(Store{own, matching(tile.buffer->type, tile.contract, 3).e});
  });
  tiles_[index].defined = true;
}

// More buffers that the loop writes.
void Generator::add_targets(const For& loop, const Shape& count) {
  const auto add = [&](const View& view, const Shape& extents, const Nature& contract, bool defined) {
    if (own_elements_.size() > 2 || is_written_here(view.buffer) || !random_.chance(35)) return;
    if (const auto access = own_access(view, extents, loop, count))
      own_elements_.push_back({*access, contract, defined});
  };
  for (const TilePlace& tile : tiles_) {
    if (tile.writable) add(whole(tile.buffer), tile.shape, tile.contract, tile.defined);
  }
  for (const std::size_t i : writable_tensors()) {
    const TensorPlace& tensor = tensors_[i];
    add(tensor.view, tensor.extents, tensor.contract, tensor.defined);
  }
}

void Generator::parallel() {
  std::vector<std::size_t> tiles;
  for (std::size_t i = 0; i < tiles_.size(); ++i) {
    const std::size_t rank = tiles_[i].shape.size();
    if (tiles_[i].writable && rank >= 1 && rank <= 3) tiles.push_back(i);
  }
  if (!tiles.empty() && random_.chance(60)) return parallel_over(random_.pick_from(tiles));
  Shape count = random_shape(random_.number(1, 3));
  const auto targets = writable_tensors();
  if (!targets.empty() && random_.chance(80)) {
    count = tensors_[random_.pick_from(targets)].extents;
    if (count.empty() || count.size() > 3 || product_of(count) == 0) return;
  }
  if (!spend(4 * product_of(count))) return;
  For loop = open_parallel(count, false);
  add_targets(loop, count);
  if (own_elements_.empty()) return;
  fill_parallel(loop, count, [&] { element_statements(random_.number(1, 5)); });
}

void Generator::element_store() {
  if (own_elements_.empty()) return;
  const std::size_t i = static_cast<std::size_t>(random_.between(0, std::ssize(own_elements_) - 1));
  const OwnElement own = own_elements_[i];
  emit(Store{own.access, matching(own.access.view.buffer->type, own.contract, 3).e});
}

void Generator::element_statements(int count) {
  for (int i = 0; i < count; ++i) element_statement();
}

void Generator::element_statement() {
  const int choice = random_.number(0, 99);
  if (choice < 45) return element_store();
  if (choice < 55) {
    named(value(random_.pick({f32, i32, u32, boolean, i64, f64}), 3));
    return;
  }
  if (choice < 65) return declare_variable();
  if (choice < 75) return assign_variable();
  if (choice < 77) return assertion();
  if (choice < 82) return atomic();
  if (nesting_ > 5) return element_store();
  if (choice < 88) return branch([&] { element_statements(random_.number(1, 2)); });
  if (choice < 94) return loop(true);
  if (choice < 96) return while_loop(true);
  leave();
}

}  // namespace tegula::fuzz
