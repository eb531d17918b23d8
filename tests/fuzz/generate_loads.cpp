// What can be read at a place of the program, and where: views, windows and indices.
#include <algorithm>

#include "fuzz/generator.hpp"
#include "fuzz/views.hpp"

namespace tegula::fuzz {

using namespace ir;

namespace {

Shape erased(Shape shape, int axis) {
  shape.erase(shape.begin() + axis);
  return shape;
}

}  // namespace

// An index of a Fragment: made of the indices of `parallel` and constants by + - * / %.
Expr Generator::register_index(std::int64_t extent) {
  std::vector<Scalar> fitting;
  for (const Scalar& s : scalars_) {
    if (s.in_register_index) fitting.push_back(s);
  }
  if (fitting.empty() || random_.chance(10)) return int32(random_.between(0, extent - 1));
  const Scalar& s = random_.pick_from(fitting);
  const Expr i = ir::variable(s.variable), n = int32(extent);
  if (random_.chance(30) && s.nature.high < extent) return make(Op::sub, i32, {int32(extent - 1), i});
  if (s.nature.high < extent && random_.chance(70)) return i;
  if (random_.chance(20)) {
    const std::int64_t by = s.nature.high / extent + 1;
    return make(Op::div, i32, {i, int32(by)});
  }
  if (random_.chance(40))
    return make(Op::mod, i32, {make(Op::add, i32, {i, int32(random_.between(0, 5))}), n});
  if (random_.chance(30))
    return make(Op::mod, i32, {make(Op::mul, i32, {i, int32(random_.between(1, 5))}), n});
  return make(Op::mod, i32, {i, n});
}

Expr Generator::index_within(std::int64_t extent, bool of_register) {
  if (of_register) return register_index(extent);
  std::vector<Scalar> indices;
  for (const Scalar& s : scalars_) {
    if (s.variable->kind == VariableKind::index && s.variable->type == i32) indices.push_back(s);
  }
  const bool simple = !indices.empty() && random_.chance(70);
  const Value x = simple ? value_of(random_.pick_from(indices).variable) : value(i32, random_.number(0, 2));
  return within(x, 0, extent - 1).e;
}

// An index into a tensor view, where an element outside reads as zero.
Expr Generator::any_index(std::int64_t extent) {
  if (extent > 0 && random_.chance(75)) return index_within(extent, false);
  const Value x = within(value(i32, 1), -3, extent + 3);
  if (random_.chance(10)) return checked(Op::cast, i64, {x}).e;
  return random_.chance(20) ? checked(Op::mul, i32, {x, {int32(3), integers(3, 3)}}).e : x.e;
}

Value Generator::load_from(const Source& source, std::vector<Expr> index) {
  Nature nature = source.contract;
  if (!source.view.is_tile())
    nature = join(nature, source.contract.dyadic ? dyadic(source.contract.step, 0) : integers(0, 0),
                  source.view.buffer->type);
  const VariablePtr v = variable("x", compute_type(source.view.buffer->type), VariableKind::let, nature);
  emit(Load{v, {source.view, std::move(index)}});
  scalars_.push_back({v, nature});
  return value_of(v);
}

// A window of the tile, of the given rank or, if that is -1, of any.
View Generator::tile_window(const TilePlace& tile, Shape& extents, int rank) {
  const bool in_registers = tile.buffer->space == Space::fragment;
  View view = whole(tile.buffer);
  extents = tile.shape;
  if (random_.chance(15)) {
    extents =
        random_.chance(50) ? Shape{product_of(tile.shape)} : Shape(tile.shape.rbegin(), tile.shape.rend());
    std::vector<Expr> shape;
    for (const std::int64_t e : extents) shape.push_back(int32(e));
    view = reshaped(tile.buffer, shape);
  }
  for (int axis = 0; axis < view.rank(); ++axis) {
    auto& extent = extents[static_cast<std::size_t>(axis)];
    if (extent < 2 || !random_.chance(20)) continue;
    const std::int64_t begin = random_.between(0, extent - 1), end = random_.between(begin + 1, extent);
    slice_range(view, axis, int32(begin), int32(end));
    extent = end - begin;
  }
  while (view.rank() > rank && (rank >= 0 || (view.rank() > 0 && random_.chance(25)))) {
    const int axis = random_.number(0, view.rank() - 1);
    const std::int64_t extent = extents[static_cast<std::size_t>(axis)];
    const bool constant = in_registers || random_.chance(40);
    fix(view, axis, constant ? int32(random_.between(0, extent - 1)) : index_within(extent, false));
    extents = erased(extents, axis);
  }
  if (view.rank() == 2 && random_.chance(20)) {
    swap_axes(view, 0, 1);
    std::swap(extents[0], extents[1]);
  }
  return view;
}

// Whether elements of the tile can be read or stored one by one here.
bool Generator::reaches(const TilePlace& tile) const {
  return tile.buffer->space == Space::shared || in_parallel_;
}

// By iterations of the loop around this place.
bool Generator::is_written_here(const BufferPtr& buffer) const {
  return std::any_of(own_elements_.begin(), own_elements_.end(),
                     [&](const OwnElement& own) { return own.access.view.buffer == buffer; });
}

std::optional<Source> Generator::source(DType type) {
  std::vector<std::function<Source()>> choices;
  for (const TilePlace& tile : tiles_) {
    if (!tile.defined || !reaches(tile) || !(compute_type(tile.buffer->type) == type) ||
        !tile.contract.is_exact())
      continue;
    if (is_written_here(tile.buffer)) continue;
    choices.push_back([&] {
      Shape extents;
      View view = tile_window(tile, extents, random_.chance(30) ? -1 : static_cast<int>(tile.shape.size()));
      return Source{std::move(view), tile.contract, std::move(extents)};
    });
  }
  for (const TensorPlace& tensor : tensors_) {
    const bool readable = tensor.use == Use::read || tensor.use == Use::owned;
    if (!readable || !tensor.defined || !(compute_type(tensor.buffer->type) == type) ||
        !tensor.contract.is_exact())
      continue;
    if (is_written_here(tensor.buffer)) continue;
    choices.push_back([&] { return Source{tensor.view, tensor.contract, tensor.extents}; });
  }
  if (choices.empty()) return std::nullopt;
  return random_.pick_from(choices)();
}

std::optional<Value> Generator::own_element(DType type) {
  std::vector<const OwnElement*> fitting;
  for (const OwnElement& own : own_elements_) {
    const DType held = compute_type(own.access.view.buffer->type);
    if (own.defined && own.contract.is_exact() && held == type) fitting.push_back(&own);
  }
  if (fitting.empty()) return std::nullopt;
  const OwnElement own = *random_.pick_from(fitting);
  return load_from({own.access.view, own.contract, {}}, own.access.index);
}

std::optional<Value> Generator::load(DType type) {
  if (random_.chance(30)) {
    if (const auto own = own_element(type)) return own;
  }
  if (value_nesting_ > 3) return std::nullopt;  // an index may need a load, and that an index
  ++value_nesting_;
  std::optional<Value> result;
  if (const auto from = source(type)) {
    std::vector<Expr> index;
    const bool of_register = from->view.buffer->space == Space::fragment;
    for (const std::int64_t extent : from->extents) {
      index.push_back(from->view.is_tile() ? index_within(extent, of_register) : any_index(extent));
    }
    result = load_from(*from, std::move(index));
  }
  --value_nesting_;
  return result;
}

// Reads a tile where the index may be outside, and drops the value then.
std::optional<Value> Generator::guarded_load(DType type) {
  const auto from = source(type);
  if (!from || !from->view.is_tile() || from->extents.size() != 1) return std::nullopt;
  if (from->view.buffer->space == Space::fragment) return std::nullopt;
  const std::int64_t extent = from->extents[0];
  const Value i = within(value(i32, 0), -2, extent + 1);
  const Value x = load_from(*from, {i.e});
  scalars_.pop_back();  // not to be used without the condition
  const Expr inside =
      make(Op::logical_and, boolean,
           {make(Op::ge, boolean, {i.e, int32(0)}), make(Op::lt, boolean, {i.e, int32(extent)})});
  return checked(Op::select, type, {{inside, integers(0, 1)}, x, constant(type)});
}

}  // namespace tegula::fuzz
