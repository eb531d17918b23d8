#include "tegula/lang/place.hpp"

#include <algorithm>
#include <memory>

#include "lang/builder.hpp"

namespace tegula::lang {

namespace {

ViewPtr shared_view(ir::View view) { return std::make_shared<const ir::View>(std::move(view)); }

// The loops of `parallel` are spread over threads, and so are the elements of a Fragment: only an index made
// of those loops' indices and constants says at compile time which thread has the element.
bool is_register_index(const Builder& builder, const ir::Expr& e) {
  switch (e->op) {
    case ir::Op::constant:
      return true;
    case ir::Op::variable:
      return builder.is_parallel_index(e->variable);
    case ir::Op::add:
    case ir::Op::sub:
    case ir::Op::mul:
    case ir::Op::div:
    case ir::Op::mod:
      return is_register_index(builder, e->args[0]) && is_register_index(builder, e->args[1]);
    default:
      return false;
  }
}

void check_fragment_access(const Builder& builder, const ir::View& view, const std::vector<ir::Expr>& index,
                           const Loc& at) {
  if (view.rank() == 0) return;
  if (!builder.within(ScopeKind::parallel) && !builder.within(ScopeKind::rows))
    fail(at,
         "elements of a Fragment are distributed over threads; use them inside parallel(), or keep the data "
         "in a Shared tile");
  for (auto& i : index)
    if (!is_register_index(builder, i))
      fail(at,
           "a Fragment can only be indexed by the indices of parallel() and constants, because it is in "
           "registers; for any other index keep the data in a Shared tile");
}

void check_tile_bounds(const ir::View& view, const std::vector<ir::Expr>& index, const Loc& at) {
  for (int axis = 0; axis < view.rank(); ++axis) {
    auto& i = index[static_cast<std::size_t>(axis)];
    if (!ir::is_constant(i)) continue;
    auto value = ir::constant_value(i);
    if (value < 0 || value >= view.extent(axis))
      fail(at, "the index " + std::to_string(value) + " is outside the extent " +
                   std::to_string(view.extent(axis)) + " of the tile declared at " +
                   short_location(view.buffer->at));
  }
}

Expr load(const Element& place) {
  auto& builder = Builder::current(place.at());
  if (!builder.within(ScopeKind::grid))
    fail(
        place.at(),
        "an element of `" + place.view()->buffer->name +
            "` is read outside grid(…); extents and conditions outside a grid may use dims and scalars only");
  auto type = compute_type(place.view()->buffer->type);
  auto variable = builder.define(ir::VariableKind::let, "t", type, place.at());
  builder.add(ir::statement(ir::Load{variable, {*place.view(), place.index()}}, place.at()));
  return Expr(ir::variable(variable, place.at()), false);
}

void store(const Element& place, const Operand& value) {
  auto& builder = Builder::current(value.at);
  auto& buffer = *place.view()->buffer;
  check_kind(value, buffer.type, "an element of " + described(*place.view()), value.at);
  builder.check_writable(*place.view(), "the assignment", place.at());
  if (!builder.within(ScopeKind::grid))
    fail(place.at(), "an element is written outside grid(…); write it in a block");
  auto node = builder.use(value, compute_type(buffer.type), value.at);
  builder.add(ir::statement(ir::Store{{*place.view(), place.index()}, node}, place.at()));
}

}  // namespace

void check_kind(const Expr& value, DType type, const std::string& place, const Loc& at) {
  if (value.type().kind() == type.kind()) return;
  bool literal = value.is_literal() && !type.is_boolean() && !value.type().is_boolean();
  if (literal && (type.is_floating() || !value.type().is_floating())) return;
  fail(at, "a value of type " + std::string(value.type().name()) + " is stored into " + place + " of type " +
               std::string(type.name()) + "; cast it with " + std::string(type.name()) + "(x)");
}

// ---- values from places

Expr::Expr(Element&& place) : Expr(load(place)) {}
Operand::Operand(Element&& place, Loc at) : Expr(load(place)), at(detail::user_place(at)) {}

Operand& Operand::operator=(const Operand& other) {
  if (this != &other) {
    std::destroy_at(this);
    std::construct_at(this, other);
  }
  return *this;
}

Expr::Expr(const Var& variable, Loc written)
    : Expr([&] {
        const Loc at = detail::user_place(written);
        auto& builder = Builder::current(at);
        builder.check_scope(variable.variable(), at);
        auto value = builder.define(ir::VariableKind::let, "t", variable.variable()->type, at);
        builder.add(ir::statement(ir::Let{value, ir::variable(variable.variable(), at)}, at));
        return Expr(ir::variable(value, at), false);
      }()) {}

// ---- elements

Element::Element(const ViewPtr& view, std::span<const Operand> index, Loc at) : view_(view), at_(at) {
  auto& builder = Builder::current(at);
  if (static_cast<int>(index.size()) != view_->rank())
    fail(at, described(*view_) + " has rank " + std::to_string(view_->rank()) + " here and is indexed with " +
                 counted(static_cast<int>(index.size()), "value", "values") +
                 "; give it one index for each dimension" +
                 (view_->rank() == 0 ? ", or read it with .scalar()" : ""));
  builder.check_scope(*view_, at);
  for (auto& i : index) index_.push_back(use_integer("an index", i));
  if (view_->is_tile()) check_tile_bounds(*view_, index_, at);
  if (view_->buffer->space == ir::Space::fragment) check_fragment_access(builder, *view_, index_, at);
}

Element::~Element() = default;

void Element::operator=(const Operand& value) && { store(*this, value); }
void Element::operator=(Element&& value) && { store(*this, Operand(std::move(value), at_)); }
void Element::operator+=(const Operand& value) && {
  store(*this, Operand(Operand(load(*this), value.at) + value, value.at));
}
void Element::operator-=(const Operand& value) && {
  store(*this, Operand(Operand(load(*this), value.at) - value, value.at));
}
void Element::operator*=(const Operand& value) && {
  store(*this, Operand(Operand(load(*this), value.at) * value, value.at));
}
void Element::operator/=(const Operand& value) && {
  store(*this, Operand(Operand(load(*this), value.at) / value, value.at));
}

// ---- tensors

Subscript::Subscript() : what(All{}) {}
Subscript::Subscript(const Range& range) : what(range) {}
Subscript::Subscript(const Expr& index, Loc at) : what(Operand(index, at)) {}
Subscript::Subscript(Element&& index, Loc at) : what(Operand(std::move(index), at)) {}
Subscript::Subscript(const Var& index, Loc at) : what(Operand(index, at)) {}
Subscript::Subscript(const Subscript&) = default;
Subscript& Subscript::operator=(const Subscript&) = default;
Subscript::~Subscript() = default;

Window::Window(ViewPtr view, Loc at) : view(std::move(view)), at(at) {}
Window::Window(const Window&) = default;
Window::~Window() = default;

Tensor::Tensor(ViewPtr view) : view_(std::move(view)) {}
Tensor::Tensor(const Tensor&) = default;
Tensor::Tensor(Tensor&&) noexcept = default;
Tensor& Tensor::operator=(const Tensor&) = default;
Tensor& Tensor::operator=(Tensor&&) noexcept = default;
Tensor::~Tensor() = default;

Tensor Tensor::slice(Subscript a, Subscript b, Subscript c, Subscript d, Subscript e, Subscript f,
                     Loc at) const {
  return Tensor(shared_view(slice_view(*view_, {a, b, c, d, e, f}, at)));
}

Window Tensor::window(std::initializer_list<Operand> offsets, Loc at) const {
  return {shared_view(shift_view(*view_, offsets, at)), at};
}

Tensor Tensor::reshape(const Extents& shape, Loc at) const {
  auto& builder = Builder::current(at);
  for (auto& dim : view_->dims)
    if (dim.axis < 0 || dim.low || !ir::is_constant(dim.offset, 0))
      fail(at,
           "reshape() of a slice of `" + view_->buffer->name + "`; reshape the whole tensor, then slice it");
  ir::View result{view_->buffer, {}, {}, {}};
  auto product = [&](const std::vector<ir::Expr>& extents) {
    ir::Expr n = ir::constant(i64, std::int64_t{1}, at);
    for (auto& e : extents) n = ir::make(ir::Op::mul, i64, {n, ir::make(ir::Op::cast, i64, {e}, at)}, at);
    return n;
  };
  for (auto& extent : shape) {
    auto e = use_integer("an extent", extent);
    if (!is_host(e))
      fail(extent.at, "an extent of reshape() must be known at the launch: use dims, scalars and constants");
    result.dims.push_back({ir::int32(0, at), nullptr, nullptr, static_cast<int>(result.shape.size())});
    result.shape.push_back(e);
  }
  result.extents = result.shape;
  builder.kernel.requirements.push_back(
      {ir::make(ir::Op::eq, boolean, {product(view_->buffer->shape), product(result.shape)}, at),
       "reshape of `" + view_->buffer->name + "` keeps the number of elements", at});
  return Tensor(shared_view(std::move(result)));
}

Expr Tensor::extent(int dim, Loc at) const {
  if (dim < 0 || dim >= view_->rank())
    fail(at, "extent(" + std::to_string(dim) + ") of a tensor of rank " + std::to_string(view_->rank()) +
                 "; its dimensions are counted from 0");
  return Expr(view_->extents[static_cast<std::size_t>(dim)], false);
}
int Tensor::rank() const { return view_->rank(); }
DType Tensor::type() const { return view_->buffer->type; }

// ---- tiles

Tile::Tile(const char* name, Space space, const std::vector<int>& shape, DType type, Loc at)
    : view_(shared_view(ir::whole(Builder::current(at).define_tile(
          name, space == Space::shared ? ir::Space::shared : ir::Space::fragment, shape, type, at)))) {}

Tile::Tile(ViewPtr view) : view_(std::move(view)) {}
Tile::Tile(Tile&&) noexcept = default;
Tile::~Tile() = default;

int Tile::rank() const { return view_->rank(); }
int Tile::extent(int dim) const { return static_cast<int>(view_->extent(dim)); }
DType Tile::type() const { return view_->buffer->type; }
std::vector<int> Tile::shape() const {
  std::vector<int> result;
  for (int d = 0; d < rank(); ++d) result.push_back(extent(d));
  return result;
}

Expr Tile::scalar(Loc at) const {
  if (rank() != 0)
    fail(at, "scalar() of a tile of rank " + std::to_string(rank()) +
                 "; it needs rank 0, such as the reduction of a vector");
  return Element{view_, {}, at};
}

ViewPtr Tile::transposed(Loc at) const {
  if (rank() != 2) fail(at, "T() of a tile of rank " + std::to_string(rank()) + "; it needs rank 2");
  ir::View result = *view_;
  std::swap(result.extents[0], result.extents[1]);
  for (auto& dim : result.dims)
    if (dim.axis >= 0) dim.axis = 1 - dim.axis;
  return shared_view(std::move(result));
}

ViewPtr Tile::sliced(const std::vector<Subscript>& subscripts, Loc at) const {
  return shared_view(slice_view(*view_, subscripts, at));
}

ViewPtr Tile::reshaped(const std::vector<int>& shape, Loc at) const {
  std::int64_t from = view_->buffer->elements(), to = 1;
  for (std::size_t d = 0; d < view_->dims.size(); ++d)
    if (view_->dims[d].axis != static_cast<int>(d) || view_->dims[d].low)
      fail(at, "reshape() of a slice of a tile; reshape the whole tile, then slice or transpose it");
  ir::View result{view_->buffer, {}, {}, {}};
  for (int extent : shape) {
    if (extent <= 0)
      fail(at, "an extent of reshape() is " + std::to_string(extent) + "; it must be positive");
    to *= extent;
    result.dims.push_back({ir::int32(0, at), nullptr, nullptr, static_cast<int>(result.shape.size())});
    result.shape.push_back(ir::int32(extent, at));
  }
  if (from != to)
    fail(at, "reshape() from " + std::to_string(from) + " to " + std::to_string(to) +
                 " elements; the numbers must be equal");
  result.extents = result.shape;
  return shared_view(std::move(result));
}

void Tile::fill_with(const Operand& value, Loc at) {
  auto& builder = Builder::current(at);
  check_kind(value, type(), "a tile", value.at);
  builder.add(ir::statement(ir::Fill{*view_, builder.use(value, compute_type(type()), value.at)}, at));
}

Shared Shared::T(Loc at) const { return Shared(transposed(at)); }
Shared Shared::slice(Subscript a, Subscript b, Subscript c, Subscript d, Loc at) const {
  return Shared(sliced({a, b, c, d}, at));
}
Shared Shared::reshape(const std::vector<int>& shape, Loc at) const { return Shared(reshaped(shape, at)); }

Fragment Fragment::T(Loc at) const { return Fragment(transposed(at)); }
Fragment Fragment::slice(Subscript a, Subscript b, Subscript c, Subscript d, Loc at) const {
  return Fragment(sliced({a, b, c, d}, at));
}
Fragment Fragment::reshape(const std::vector<int>& shape, Loc at) const {
  return Fragment(reshaped(shape, at));
}

// ---- variables

Var::Var(const Expr& value, Loc at) : Var(Operand(value, at)) {}
Var::Var(Element&& value, Loc at) : Var(Operand(std::move(value), at)) {}
Var::~Var() = default;
Var::Var(const Operand& value) {
  auto& builder = Builder::current(value.at);
  if (!builder.within(ScopeKind::grid)) fail(value.at, "a Var must be inside grid(…)");
  DType type = compute_type(value.type());
  auto node = builder.use(value, type, value.at);
  variable_ = builder.define(ir::VariableKind::mutable_, "v", type, value.at);
  builder.add(ir::statement(ir::DeclareVar{variable_, node}, value.at));
}

namespace {

void assign(const ir::VariablePtr& variable, const Operand& value) {
  auto& builder = Builder::current(value.at);
  builder.check_scope(variable, value.at);
  int scope = builder.scope_of(variable);
  if (builder.is_shared_by_iterations(scope))
    fail(value.at,
         "a Var declared outside parallel() or each_group() is shared by all iterations and cannot be "
         "assigned there; use a reduction, or atomic_add() on an element of a Shared tile");
  check_kind(value, variable->type, "a Var", value.at);
  auto node = builder.use(value, variable->type, value.at);
  if (node->held() != variable->type) node = ir::make(ir::Op::cast, variable->type, {node}, value.at);
  builder.add(ir::statement(ir::Assign{variable, node}, value.at));
}

}  // namespace

void Var::operator=(const Operand& value) { assign(variable_, value); }
void Var::operator=(Var& value) { assign(variable_, Operand(value, latest_place(variable_->at))); }
void Var::operator+=(const Operand& value) {
  assign(variable_, Operand(Operand(*this, value.at) + value, value.at));
}
void Var::operator-=(const Operand& value) {
  assign(variable_, Operand(Operand(*this, value.at) - value, value.at));
}
void Var::operator*=(const Operand& value) {
  assign(variable_, Operand(Operand(*this, value.at) * value, value.at));
}
void Var::operator/=(const Operand& value) {
  assign(variable_, Operand(Operand(*this, value.at) / value, value.at));
}
void Var::operator|=(const Operand& value) {
  assign(variable_, Operand(Operand(*this, value.at) | value, value.at));
}
void Var::operator&=(const Operand& value) {
  assign(variable_, Operand(Operand(*this, value.at) & value, value.at));
}
void Var::operator^=(const Operand& value) {
  assign(variable_, Operand(Operand(*this, value.at) ^ value, value.at));
}

}  // namespace tegula::lang
