#include "tegula/lang/tile_ops.hpp"

#include "ir/bounds.hpp"
#include "lang/builder.hpp"

namespace tegula::lang {

namespace {

// Extents of a tile operand that another one must match.
void check_same_shape(const char* what, const ir::View& a, const ir::View& b, const Loc& at) {
  for (int axis = 0; axis < a.rank(); ++axis)
    if (a.extent(axis) != b.extent(axis))
      fail(at, std::string(what) + ": the shapes " + shape_text(a) + " and " + shape_text(b) +
                   " differ; slice() the larger one");
}

void check_same_kind(const char* what, DType from, DType to, const Loc& at) {
  if (from.kind() != to.kind())
    fail(at, std::string(what) + " from " + std::string(from.name()) + " to " + std::string(to.name()) +
                 " changes the kind; convert in parallel() with a cast");
}

ir::Expr fill_value(DType type, double fill, const Loc& at) {
  DType held = compute_type(type);
  if (held.is_floating()) return ir::constant(held, fill, at);
  auto integer = static_cast<std::int64_t>(fill);
  if (static_cast<double>(integer) != fill)
    fail(at, "copy: the fill value must be an integer for a tensor of " + std::string(type.name()));
  return ir::constant(held, integer, at);
}

void check_ranks(const char* what, const ir::View& a, const ir::View& b, const Loc& at) {
  if (a.rank() != b.rank())
    fail(at, std::string(what) + ": " + described(a) + " has rank " + std::to_string(a.rank()) + ", " +
                 described(b) + " has rank " + std::to_string(b.rank()) + "; use slice() to drop dimensions");
}

std::string name_of_reduction(ir::ReduceOp op) { return "reduce_" + std::string(ir::name_of(op)); }

int dim_of(const ir::View& view, int dim, const Loc& at) {
  int result = dim < 0 ? dim + view.rank() : dim;
  if (view.rank() == 0)
    fail(at, "a reduction of a tile of rank 0, which is one value; read it with .scalar()");
  if (result < 0 || result >= view.rank())
    fail(at, "a reduction over dim " + std::to_string(dim) + " of a tile of rank " +
                 std::to_string(view.rank()) + "; its dims are 0 to " + std::to_string(view.rank() - 1) +
                 ", and -1 is the last one");
  return result;
}

void check_reduce(ir::ReduceOp op, const ir::View& from, const ir::View& to, int dim, const Loc& at) {
  const std::string what = name_of_reduction(op);
  bool logical = op == ir::ReduceOp::any || op == ir::ReduceOp::all;
  if (from.buffer->type.is_boolean() != logical)
    fail(at, what + " of " + std::string(from.buffer->type.name()) +
                 (logical ? "; it needs boolean" : "; use reduce_any or reduce_all"));
  ir::View fitting = from;
  fitting.extents.erase(fitting.extents.begin() + dim);
  if (to.rank() != from.rank() - 1)
    fail(at,
         what + ": the result must have one rank less than " + shape_text(from) + ": " + shape_text(fitting));
  for (int axis = 0; axis < to.rank(); ++axis)
    if (fitting.extent(axis) != to.extent(axis))
      fail(at, what + " over dim " + std::to_string(dim) + ": " + shape_text(from) + " does not fit " +
                   shape_text(to) + "; the result is " + shape_text(fitting));
  if (compute_type(from.buffer->type).kind() != to.buffer->type.kind())
    fail(at, what + ": the result of " + std::string(from.buffer->type.name()) + " cannot be " +
                 std::string(to.buffer->type.name()) + "; give the destination a type of the same kind");
}

void reduce_into(ir::ReduceOp op, const Tile& tile, Fragment& into, int dim, bool overwrite, const Loc& at) {
  auto &from = *tile.view(), &to = *into.view();
  auto& builder = begin_op(name_of_reduction(op).c_str(), {&from, &to}, at);
  dim = dim_of(from, dim, at);
  check_reduce(op, from, to, dim, at);
  builder.check_writable(to, "the reduction", at);
  if (from.buffer == to.buffer) fail(at, "a reduction into its own source; use another tile");
  builder.add(ir::statement(ir::Reduce{op, from, dim, to, overwrite}, at));
}

Fragment reduce_new(ir::ReduceOp op, const Tile& tile, int dim, const Loc& at) {
  begin_op(name_of_reduction(op).c_str(), {tile.view().get()}, at);
  auto shape = tile.shape();
  shape.erase(shape.begin() + dim_of(*tile.view(), dim, at));
  Fragment result(shape, compute_type(tile.type()), at);
  reduce_into(op, tile, result, dim, true, at);
  return result;
}

void check_atomic_type(ir::AtomicOp op, DType type, const Loc& at) {
  bool bits = op == ir::AtomicOp::bit_or || op == ir::AtomicOp::bit_and;
  bool good = type.is_integer() ? type.bits() >= 32 : type.is_floating() && type.bits() >= 16 && !bits;
  if (!good)
    fail(at, "atomic " + std::string(ir::name_of(op)) + " on " + std::string(type.name()) +
                 (bits ? "; it needs i32, u32 or i64" : "; it needs i32, u32, i64, f16, bf16, f32 or f64"));
}

void atomic(ir::AtomicOp op, Element&& place, const Operand& value) {
  auto& builder = Builder::current(value.at);
  auto& buffer = *place.view()->buffer;
  check_atomic_type(op, buffer.type, place.at());
  check_kind(value, buffer.type, "an element of " + described(*place.view()), value.at);
  if (buffer.space == ir::Space::fragment)
    fail(place.at(), "an atomic on an element of a Fragment, which belongs to one thread; use a Shared tile");
  builder.check_writable(*place.view(), "the atomic", place.at());
  builder.contributions.check(buffer, builder.kernel.grids.size(), false, place.at());
  if (!builder.within(ScopeKind::grid)) fail(place.at(), "an atomic must be inside grid(…)");
  auto node = builder.use(value, compute_type(buffer.type), value.at);
  builder.add(ir::statement(ir::Atomic{op, {*place.view(), place.index()}, node}, place.at()));
}

// Words for every tile of the tensor, of this grid alone, which all statements that add to the tensor share.
ir::Access turn_of(Builder& builder, const ir::View& window, const ir::View& tile, const Loc& at) {
  std::vector<ir::Expr> extents, index;
  std::vector<std::int64_t> of_tile;
  for (std::size_t d = 0; d < window.dims.size(); ++d) {
    const ir::ViewDim& dim = window.dims[d];
    const std::int64_t extent = dim.axis < 0 ? 1 : tile.extent(dim.axis);
    of_tile.push_back(extent);
    if (extent > 1 && ir::divisor(ir::affine(dim.offset), ir::Facts{}) % extent != 0)
      fail(at,
           "consecutive orders are counted per tile of the tensor: the window must begin at a multiple of "
           "the tile's extent, such as .at(j * extent)");
    const auto divided = [&](ir::Op op, const ir::Expr& e) {
      return extent == 1 ? e : ir::make(op, e->held(), {e, ir::constant(e->held(), extent)}, at);
    };
    extents.push_back(divided(ir::Op::ceildiv, window.shape[d]));
    index.push_back(divided(ir::Op::div, dim.offset));
  }
  const auto times_parts = [&](const ir::Expr& e) {
    return ir::make(ir::Op::mul, e->held(), {e, ir::constant(e->held(), ir::turn_parts)}, at);
  };
  extents.back() = times_parts(extents.back());
  index.back() = times_parts(index.back());
  ir::BufferPtr& known = builder.contributions.turn_words(window, of_tile, at);
  if (known) return {ir::whole(known), std::move(index)};
  ir::Buffer words{window.buffer->name + "_turns" + std::to_string(builder.kernel.workspaces.size()),
                   ir::Space::global,
                   ir::Role::workspace,
                   i32,
                   std::move(extents),
                   true,
                   at};
  known = std::make_shared<const ir::Buffer>(std::move(words));
  builder.kernel.workspaces.push_back(known);
  return {ir::whole(known), std::move(index)};
}

void accumulate_window(ir::AtomicOp op, const Window& window, const Tile& tile, const ir::Expr& order,
                       const AccumulateOptions& options, const Loc& at) {
  auto& builder = begin_op("accumulate", {window.view.get(), tile.view().get()}, at);
  check_ranks("accumulate", *window.view, *tile.view(), at);
  check_atomic_type(op, window.view->buffer->type, at);
  check_same_kind("accumulate", tile.type(), window.view->buffer->type, at);
  builder.check_writable(*window.view, "accumulate", at);
  builder.contributions.check(*window.view->buffer, builder.kernel.grids.size(), order != nullptr, at);
  ir::Accumulate node{op, *window.view, *tile.view(), order};
  if (options.overwrite && !options.consecutive)
    fail(at,
         "a first contribution that overwrites without consecutive orders; give accumulate() .consecutive = "
         "true");
  node.overwrite = options.overwrite;
  if (options.consecutive) {
    if (!order) fail(at, "consecutive orders without an order; give accumulate() an order too");
    node.turn = turn_of(builder, *window.view, *tile.view(), at);
  }
  builder.add(ir::statement(std::move(node), at));
}

}  // namespace

void copy(const Source& from, const Target& to, CopyOptions options, Loc at) {
  auto &source = *from.view, &target = *to.view;
  auto& builder = begin_op("copy", {&source, &target}, at);
  if (!source.is_tile() && !target.is_tile())
    fail(at, "copy from tensor to tensor: no tile determines the size; copy through a tile");
  check_ranks("copy", source, target, at);
  if (source.is_tile() && target.is_tile()) check_same_shape("copy", source, target, at);
  check_same_kind("copy", source.buffer->type, target.buffer->type, at);
  builder.check_writable(target, "copy", at);
  if (source.buffer == target.buffer) fail(at, "copy inside one tile; use another tile");
  builder.add(ir::statement(ir::Copy{source, target, fill_value(source.buffer->type, options.fill, at)}, at));
}

Fragment load(const Source& from, std::initializer_list<int> shape, Loc at) {
  return load(from, shape, from.view->buffer->type, at);
}

Fragment load(const Source& from, std::initializer_list<int> shape, DType type, Loc at) {
  begin_op("load", {from.view.get()}, at);
  Fragment result(std::vector<int>(shape), type, at);
  copy(from, result, {}, at);
  return result;
}

Fragment clone(const Tile& tile, Loc at) {
  begin_op("clone", {tile.view().get()}, at);
  Fragment result(tile.shape(), tile.type(), at);
  copy(tile, result, {}, at);
  return result;
}

Fragment Fragment::to(DType type, Loc at) const {
  begin_op(".to()", {view().get()}, at);
  Fragment result(shape(), type, at);
  copy(*this, result, {}, at);
  return result;
}

void fill(const Target& tile, const Operand& value, Loc at) {
  auto& view = *tile.view;
  auto& builder = begin_op("fill", {&view}, at);
  if (!view.is_tile())
    fail(at, "fill of a tensor; fill a tile and copy it, or declare the output with {.zero = true}");
  check_kind(value, view.buffer->type, "a tile", value.at);
  builder.check_writable(view, "fill", at);
  builder.add(
      ir::statement(ir::Fill{view, builder.use(value, compute_type(view.buffer->type), value.at)}, at));
}

void clear(const Target& tile, Loc at) {
  if (tile.view->buffer->type.is_boolean())
    fill(tile, Operand(false, at), at);
  else
    fill(tile, Operand(0, at), at);
}

Source::Source(const Window& window) : view(window.view) {}
Source::Source(const Tensor& tensor) : view(tensor.view()) {}
Source::Source(const Tile& tile) : view(tile.view()) {}
Source::Source(const Source&) = default;
Source::~Source() = default;

Target::Target(const Window& window) : view(window.view) {}
Target::Target(const Tensor& tensor) : view(tensor.view()) {}
Target::Target(Tile& tile) : view(tile.view()) {}
Target::Target(Tile&& tile) : view(tile.view()) {}
Target::Target(const Target&) = default;
Target::~Target() = default;

namespace detail {

void gather(const Tensor& from, FunctionRef<Expr(const Index&)> row, const Target& to, Loc at) {
  auto &source = *from.view(), &target = *to.view;
  auto& builder = begin_op("gather", {&source, &target}, at);
  if (!target.is_tile()) fail(at, "gather into a tensor; gather into a tile and copy it");
  if (target.rank() < 1) fail(at, "gather into a tile of rank 0; its first dimension is that of the rows");
  check_ranks("gather", source, target, at);
  check_same_kind("gather", source.buffer->type, target.buffer->type, at);
  builder.check_writable(target, "gather", at);
  ir::Gather node{source, target, builder.define_index("p", at), {}, nullptr};
  builder.inside(ScopeKind::rows, node.body, [&] {
    node.row = use_integer("the row of gather()", Operand(row(Index(ir::variable(node.index, at))), at));
  });
  builder.add(ir::statement(std::move(node), at));
}

}  // namespace detail

namespace {

// A vector that is too short would name row 0, as which it reads outside.
void check_count_of_rows(const ir::View& rows, const Target& tile, const Loc& at) {
  if (rows.rank() != 1 || tile.view->rank() < 1 || !ir::is_constant(rows.extents[0])) return;
  if (rows.extent(0) < tile.view->extent(0))
    fail(at, "gather of " + std::to_string(tile.view->extent(0)) + " rows by a vector of " +
                 std::to_string(rows.extent(0)) + "; give it the number of each row, -1 for a row of zeros");
}

}  // namespace

void gather(const Tensor& from, const Tensor& rows, const Target& tile, Loc at) {
  check_count_of_rows(*rows.view(), tile, at);
  detail::gather(
      from, [&](Index i) -> Expr { return rows(Operand(i, at)); }, tile, at);
}
void gather(const Tensor& from, const Tile& rows, const Target& tile, Loc at) {
  check_count_of_rows(*rows.view(), tile, at);
  detail::gather(
      from, [&](Index i) -> Expr { return rows(Operand(i, at)); }, tile, at);
}

// clang-format off
void reduce_sum(const Tile& t, Fragment& into, int dim, Loc at) { reduce_into(ir::ReduceOp::sum, t, into, dim, false, at); }
void reduce_max(const Tile& t, Fragment& into, int dim, Loc at) { reduce_into(ir::ReduceOp::max, t, into, dim, false, at); }
void reduce_min(const Tile& t, Fragment& into, int dim, Loc at) { reduce_into(ir::ReduceOp::min, t, into, dim, false, at); }
void reduce_absmax(const Tile& t, Fragment& into, int dim, Loc at) { reduce_into(ir::ReduceOp::absmax, t, into, dim, false, at); }
void reduce_any(const Tile& t, Fragment& into, int dim, Loc at) { reduce_into(ir::ReduceOp::any, t, into, dim, false, at); }
void reduce_all(const Tile& t, Fragment& into, int dim, Loc at) { reduce_into(ir::ReduceOp::all, t, into, dim, false, at); }
Fragment reduce_sum(const Tile& t, int dim, Loc at) { return reduce_new(ir::ReduceOp::sum, t, dim, at); }
Fragment reduce_max(const Tile& t, int dim, Loc at) { return reduce_new(ir::ReduceOp::max, t, dim, at); }
Fragment reduce_min(const Tile& t, int dim, Loc at) { return reduce_new(ir::ReduceOp::min, t, dim, at); }
Fragment reduce_absmax(const Tile& t, int dim, Loc at) { return reduce_new(ir::ReduceOp::absmax, t, dim, at); }
Fragment reduce_any(const Tile& t, int dim, Loc at) { return reduce_new(ir::ReduceOp::any, t, dim, at); }
Fragment reduce_all(const Tile& t, int dim, Loc at) { return reduce_new(ir::ReduceOp::all, t, dim, at); }

void atomic_add(Element&& place, const Operand& value) { atomic(ir::AtomicOp::add, std::move(place), value); }
void atomic_max(Element&& place, const Operand& value) { atomic(ir::AtomicOp::max, std::move(place), value); }
void atomic_min(Element&& place, const Operand& value) { atomic(ir::AtomicOp::min, std::move(place), value); }
void atomic_or(Element&& place, const Operand& value) { atomic(ir::AtomicOp::bit_or, std::move(place), value); }
void atomic_and(Element&& place, const Operand& value) { atomic(ir::AtomicOp::bit_and, std::move(place), value); }

void atomic_add(const Window& w, const Tile& t, Loc at) { accumulate_window(ir::AtomicOp::add, w, t, nullptr, {}, at); }
void atomic_max(const Window& w, const Tile& t, Loc at) { accumulate_window(ir::AtomicOp::max, w, t, nullptr, {}, at); }
void atomic_min(const Window& w, const Tile& t, Loc at) { accumulate_window(ir::AtomicOp::min, w, t, nullptr, {}, at); }
// clang-format on

void accumulate(const Window& window, const Tile& tile, AccumulateOptions options, Loc at) {
  ir::Expr order;
  if (options.order) order = use_integer("the order of accumulate()", Operand(*options.order, at));
  accumulate_window(ir::AtomicOp::add, window, tile, order, options, at);
}

}  // namespace tegula::lang
