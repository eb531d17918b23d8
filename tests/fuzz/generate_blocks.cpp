// Random statements of a block: tiles, copies and stores.
#include <algorithm>
#include <cmath>

#include "fuzz/generator.hpp"
#include "fuzz/views.hpp"

namespace tegula::fuzz {

using namespace ir;

Body Generator::body(const std::function<void()>& f) {
  Body result;
  Body* const outer = std::exchange(out_, &result);
  const std::size_t scalars = scalars_.size(), variables = variables_.size(), tiles = tiles_.size();
  ++nesting_;
  f();
  --nesting_;
  scalars_.resize(scalars);
  variables_.resize(variables);
  tiles_.resize(tiles);
  out_ = outer;
  return result;
}

// Statements that may not run: what they define is not defined after them.
Body Generator::maybe(const std::function<void()>& f) {
  std::vector<bool> defined;
  for (const TilePlace& tile : tiles_) defined.push_back(tile.defined);
  Body result = body(f);
  for (std::size_t i = 0; i < tiles_.size(); ++i) tiles_[i].defined = defined[i];
  return result;
}

// Whether this many more elements may be touched here.
bool Generator::spend(std::int64_t elements) {
  if (work_ + elements * times_ > limits_.work) return false;
  work_ += elements * times_;
  return true;
}

TilePlace& Generator::declare(DType type, const Shape& shape, const Nature& contract, Space space) {
  std::vector<Expr> extents;
  for (const std::int64_t e : shape) extents.push_back(int32(e));
  const char* prefix = space == Space::shared ? "shared" : "frag";
  auto buffer = std::make_shared<const Buffer>(Buffer{std::string(prefix) + std::to_string(next_name_++),
                                                      space, Role::tile, type, extents, false, Loc()});
  program_.contracts.buffers[buffer.get()] = contract;
  emit(Declare{buffer});
  tiles_.push_back({buffer, contract, shape});
  return tiles_.back();
}

Space Generator::random_space() { return random_.chance(50) ? Space::shared : Space::fragment; }

void Generator::fill(TilePlace& tile) {
  const Value x = matching(tile.buffer->type, tile.contract, random_.number(0, 1));
  emit(Fill{whole(tile.buffer), x.e});
  tile.defined = true;
}

// A window of the tensor with the rank of `shape`, as far as the other dimensions need an index.
View Generator::window_of(const TensorPlace& tensor, std::size_t rank) {
  View view = tensor.view;
  Shape extents = tensor.extents;
  while (extents.size() > rank) {
    const int axis = random_.number(0, static_cast<int>(extents.size()) - 1);
    fix(view, axis, any_index(extents[static_cast<std::size_t>(axis)]));
    extents.erase(extents.begin() + axis);
  }
  for (int axis = 0; axis < view.rank(); ++axis) {
    const std::int64_t extent = extents[static_cast<std::size_t>(axis)];
    if (random_.chance(12)) {
      const Value begin = within(value(i32, 1), -1, extent), end = within(value(i32, 1), 0, extent + 1);
      slice_range(view, axis, begin.e, end.e);
    } else if (random_.chance(35)) {
      shift(view, axis, within(value(i32, random_.number(0, 1)), -2, extent + 1).e);
    }
  }
  return view;
}

// A new tile with a window of some tensor.
bool Generator::load_tile() {
  std::vector<const TensorPlace*> readable;
  for (const TensorPlace& t : tensors_) {
    if ((t.use == Use::read || t.use == Use::owned) && t.defined) readable.push_back(&t);
  }
  if (readable.empty()) return false;
  const TensorPlace tensor = *random_.pick_from(readable);
  const int rank = random_.chance(75) ? tensor.view.rank() : random_.number(0, tensor.view.rank());
  View from = window_of(tensor, static_cast<std::size_t>(rank));
  Shape shape = random_shape(rank);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (random_.chance(50)) shape[d] = std::clamp<std::int64_t>(tensor.extents[d], 1, 40);
  }
  if (!spend(product_of(shape))) return false;
  Nature contract = join(tensor.contract, tensor.contract.dyadic ? dyadic(tensor.contract.step, 0) : Nature(),
                         tensor.buffer->type);
  const DType type = similar_type(tensor.buffer->type);
  contract = stored(contract, type);
  TilePlace& tile = declare(type, shape, contract, random_space());
  Expr filler;
  if (random_.chance(30)) {
    const Value x = constant(compute_type(tensor.buffer->type));
    if (fits(stored(x.nature, tensor.buffer->type), contract, type)) filler = x.e;
  }
  emit(Copy{from, whole(tile.buffer), filler});
  tile.defined = true;
  return true;
}

// A new shared tile that a loop can bring ahead of its steps: a window of a tensor as it is.
bool Generator::bring_tile() {
  std::vector<const TensorPlace*> readable;
  for (const TensorPlace& t : tensors_) {
    if (t.use == Use::read && t.defined && t.view.rank() > 0) readable.push_back(&t);
  }
  if (readable.empty()) return false;
  const TensorPlace tensor = *random_.pick_from(readable);
  const int rank = tensor.view.rank();
  Shape shape = random_shape(rank);
  if (random_.chance(60)) shape.back() = random_.pick({8, 16, 32});
  if (!spend(product_of(shape))) return false;
  const View from = window_of(tensor, static_cast<std::size_t>(rank));
  const Nature zeros = tensor.contract.dyadic ? dyadic(tensor.contract.step, 0) : Nature();
  TilePlace& tile =
      declare(tensor.buffer->type, shape, join(tensor.contract, zeros, tensor.buffer->type), Space::shared);
  emit(Copy{from, whole(tile.buffer), nullptr});
  tile.defined = true;
  tile.writable = random_.chance(20);
  return true;
}

// The type, or another one of its kind.
DType Generator::similar_type(DType type) {
  if (random_.chance(60)) return type;
  switch (type.kind()) {
    case Kind::floating:
      return random_.pick({f32, f32, f16, bf16, e4m3, e5m2, f64});
    case Kind::integer:
      return random_.pick({i8, i16, i32, i64, u8});
    default:
      return type;
  }
}

void Generator::declare_somehow() {
  if (random_.chance(60) && load_tile()) return;
  const DType type = random_type();
  const Shape shape = random_shape(random_.number(0, 3));
  if (!spend(product_of(shape))) return;
  TilePlace& tile = declare(type, shape, random_contract(type, false), random_space());
  const std::size_t index = tiles_.size() - 1;
  if (shape.empty() || random_.chance(40))
    fill(tile);
  else
    parallel_over(index);
}

// A new tile with a window of another one, or a copy into an old one.
void Generator::copy_tiles() {
  std::vector<std::size_t> defined;
  for (std::size_t i = 0; i < tiles_.size(); ++i) {
    if (tiles_[i].defined) defined.push_back(i);
  }
  if (defined.empty()) return;
  const TilePlace from = tiles_[random_.pick_from(defined)];
  Shape extents;
  const View window = tile_window(from, extents, -1);
  if (!spend(product_of(extents))) return;
  for (TilePlace& to : tiles_) {
    const bool same_kind = to.buffer->type.kind() == from.buffer->type.kind();
    if (to.buffer == from.buffer || !to.writable || !same_kind || !random_.chance(60)) continue;
    Shape room;
    const View target = tile_window(to, room, static_cast<int>(extents.size()));
    if (room != extents || !fits(from.contract, to.contract, to.buffer->type)) continue;
    emit(Copy{window, target, nullptr});
    to.defined |= is_whole(target);
    return;
  }
  const DType type = similar_type(from.buffer->type);
  const TilePlace& to = declare(type, extents, stored(from.contract, type), random_space());
  emit(Copy{window, whole(to.buffer), nullptr});
  tiles_.back().defined = true;
}

std::vector<std::size_t> Generator::writable_tensors() {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].use == Use::owned && tensors_[i].writable) result.push_back(i);
  }
  return result;
}

void Generator::copy_out() {
  const auto targets = writable_tensors();
  if (targets.empty()) return;
  const TensorPlace tensor = tensors_[random_.pick_from(targets)];
  for (std::size_t i = tiles_.size(); i-- > 0;) {
    const TilePlace& tile = tiles_[i];
    if (!tile.defined || tile.buffer->type.kind() != tensor.buffer->type.kind()) continue;
    if (!fits(tile.contract, tensor.contract, tensor.buffer->type)) continue;
    if (tile.shape.size() > tensor.extents.size() || !spend(product_of(tile.shape))) continue;
    Shape extents;
    const View from = tile_window(tile, extents, -1);
    if (extents.size() > tensor.extents.size()) continue;
    emit(Copy{from, window_of(tensor, extents.size()), nullptr});
    return;
  }
  write_all(tensor);
}

// Writes all of the view from a new tile.
bool Generator::write_all(const TensorPlace& tensor) {
  const Shape shape = tensor.extents;
  const std::int64_t elements = product_of(shape);
  if (elements == 0 || elements > 600 || !spend(2 * elements)) return false;
  const DType type = tensor.contract.is_exact() ? tensor.buffer->type : compute_type(tensor.buffer->type);
  Nature contract = tensor.contract;
  if (!contract.is_exact()) contract = inexact(type);
  declare(type, shape, contract, random_space());
  const std::size_t index = tiles_.size() - 1;
  if (shape.empty() || shape.size() > 3 || random_.chance(15))
    fill(tiles_[index]);
  else
    parallel_over(index);
  if (!tiles_[index].defined) fill(tiles_[index]);
  emit(Copy{whole(tiles_[index].buffer), tensor.view, nullptr});
  return true;
}

// At the end of a grid: every output is written, and workspaces so that later grids can read them.
void Generator::cover_outputs() {
  for (const std::size_t i : writable_tensors()) {
    if (!random_.chance(80)) continue;
    if (write_all(tensors_[i]) && tensors_[i].covered && !may_exit_) tensors_[i].defined = true;
  }
}

void Generator::block_store() {
  const auto targets = writable_tensors();
  if (!targets.empty() && random_.chance(60)) {
    const TensorPlace tensor = tensors_[random_.pick_from(targets)];
    const Value x = matching(tensor.buffer->type, tensor.contract, 2);
    std::vector<Expr> index;
    for (const std::int64_t e : tensor.extents) index.push_back(any_index(e));
    emit(Store{{tensor.view, index}, x.e});
    return;
  }
  for (TilePlace& tile : tiles_) {
    if (tile.buffer->space != Space::shared || !tile.writable || !random_.chance(50)) continue;
    const Value x = matching(tile.buffer->type, tile.contract, 2);
    std::vector<Expr> index;
    for (const std::int64_t e : tile.shape) index.push_back(index_within(e, false));
    emit(Store{{whole(tile.buffer), index}, x.e});
    return;
  }
}

void Generator::declare_variable() {
  const DType type = random_.pick({f32, f32, i32, i32, u32, i64, f64, boolean});
  const Nature contract = random_contract(type, false);
  const Value first = matching(type, contract, 2);
  const VariablePtr v = variable("var", type, VariableKind::mutable_, contract);
  emit(DeclareVar{v, first.e});
  variables_.push_back({v, contract});
}

void Generator::assign_variable() {
  std::vector<MutablePlace> fitting;
  for (const MutablePlace& v : variables_) {
    if (v.writable) fitting.push_back(v);
  }
  if (fitting.empty()) return declare_variable();
  const MutablePlace v = random_.pick_from(fitting);
  emit(Assign{v.variable, matching(v.variable->type, v.contract, 2).e});
}

void Generator::assertion() {
  const Value x = value(i32, 2);
  const Expr low = make(Op::ge, boolean, {x.e, ir::constant(i32, x.nature.low)});
  const Expr high = make(Op::le, boolean, {x.e, ir::constant(i32, x.nature.high)});
  emit(Assert{make(Op::logical_and, boolean, {low, high}), "in its range"});
}

void Generator::block_statements(int count) {
  for (int i = 0; i < count && left_ > 0; ++i) block_statement();
}

void Generator::block_statement() {
  --left_;
  const int choice = random_.number(0, 99);
  if (choice < 15) return declare_somehow();
  if (choice < 25) return parallel();
  if (choice < 30) return copy_tiles();
  if (choice < 36) return copy_out();
  if (choice < 39) return block_store();
  if (choice < 42) return declare_variable();
  if (choice < 45) return assign_variable();
  if (choice < 46) return assertion();
  if (choice < 52) return gather();
  if (choice < 58) return product();
  if (choice < 64) return random_.chance(25) ? scan() : reduction();
  if (choice < 69) return accumulate();
  if (choice < 72) return atomic();
  if (choice < 74) return histogram();
  if (nesting_ > 3) return copy_out();
  if (choice < 85) return loop(false);
  if (choice < 88) return branch_of_rows();
  if (choice < 93) return branch([&] { block_statements(random_.number(1, 3)); });
  if (choice < 95) return while_loop(false);
  if (choice < 97 && !in_group_) return groups();
  leave();
}

}  // namespace tegula::fuzz
