// The parameters of a random kernel, and its grids.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fuzz/arguments.hpp"
#include "fuzz/generator.hpp"
#include "fuzz/views.hpp"
#include "ir/bounds.hpp"

namespace tegula::fuzz {

using namespace ir;

DType Generator::random_type() {
  return random_.chance(40)
             ? f32
             : random_.pick({boolean, i8, i16, i32, i32, i64, u8, u32, e4m3, e5m2, f16, bf16, f64});
}

// In wide programs often of as many columns as tiles of products have.
Shape Generator::random_shape(int rank) {
  if (limits_.wide && rank > 0 && random_.chance(30)) {
    Shape shape(static_cast<std::size_t>(rank), 1);
    shape.back() = random_columns();
    if (rank > 1) shape[shape.size() - 2] = random_.number(1, 6);
    return shape;
  }
  Shape shape;
  std::int64_t room = 160;
  for (int d = 0; d < rank; ++d) {
    const std::int64_t most = std::min<std::int64_t>(room, random_.pick({3, 9, 9, 20, 40}));
    shape.push_back(random_.between(1, most));
    room /= shape.back();
  }
  for (std::size_t d = shape.size(); d > 1; --d)
    std::swap(shape[d - 1],
              shape[static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(d) - 1))]);
  return shape;
}

// Not only of whole warp groups and swizzle blocks.
std::int64_t Generator::random_columns() {
  return random_.pick({24, 32, 40, 48, 64, 72, 96, 104, 128, 136, 160, 192, 200, 224, 248, 256});
}

// A tensor may be empty.
Shape Generator::tensor_shape(int rank) {
  Shape shape = random_shape(rank);
  if (rank > 0 && random_.chance(3)) shape[static_cast<std::size_t>(random_.number(0, rank - 1))] = 0;
  return shape;
}

Nature Generator::random_contract(DType type, bool is_input) {
  if (type.is_boolean()) return integers(0, 1);
  if (!type.is_floating()) {
    const Interval all = values_of(type);
    const std::int64_t most = random_.pick({1, 8, 100, 100'000});
    if (random_.chance(25)) return anything(type);
    return integers(std::max(all.low, random_.chance(40) ? 0 : -most), std::min(all.high, most));
  }
  const int kind = random_.number(0, 9);
  if (kind == 0 && !is_input) return inexact(type);
  Nature result = anything(type);
  if (kind >= 4) {
    int step = random_.pick({0, -1, -2});
    // As large as scores that nothing has scaled.
    if ((type == f32 || type == f64 || type == bf16) && random_.chance(12)) step += random_.pick({6, 14, 22});
    result = dyadic(step, std::ldexp(type.bits() == 8 ? 1 : random_.pick({2, 4, 16, 64}), step + 2));
  }
  result.loose_zero = !is_input && random_.chance(70);
  result.product = !is_input && !result.dyadic && random_.chance(50);
  return result;
}

// A constant, or a dim of the call that has this value.
Expr Generator::extent_expr(std::int64_t value, bool is_parameter) {
  if (random_.chance(55)) return int32(value);
  for (const Dim& dim : kernel_.dims) {
    if (program_.contracts.variables.at(dim.variable.get()).low == value && random_.chance(60))
      return ir::variable(dim.variable);
  }
  if (!is_parameter || kernel_.dims.size() > 3 || random_.chance(30)) return int32(value);
  const std::int64_t multiple = value % 4 == 0 && random_.chance(50) ? 4 : 1;
  const VariablePtr v = variable("N", i32, VariableKind::dim, integers(value, value));
  kernel_.dims.push_back({v, multiple});
  scalars_.push_back({v, integers(value, value)});
  return ir::variable(v);
}

TensorPlace& Generator::make_tensor(Role role, DType type, const Shape& shape, const Nature& contract,
                                    bool cleared) {
  std::vector<Expr> extents;
  for (const std::int64_t e : shape) extents.push_back(extent_expr(e, role != Role::workspace));
  const char* names[] = {"A", "Out", "IO", "W"};
  const bool zero = (role == Role::output || role == Role::workspace) && (cleared || random_.chance(35));
  auto buffer = std::make_shared<const Buffer>(
      Buffer{std::string(names[static_cast<int>(role)]) + std::to_string(next_name_++), Space::global, role,
             type, extents, zero, Loc()});
  program_.contracts.buffers[buffer.get()] = contract;
  TensorPlace place;
  place.buffer = buffer;
  place.contract = contract;
  place.shape = shape;
  place.defined = role == Role::input || role == Role::inout || zero;
  if (role == Role::workspace) {
    kernel_.workspaces.push_back(buffer);
  } else {
    kernel_.parameters.push_back({buffer, nullptr});
    program_.arguments.push_back(random_tensor(random_, type, shape, contract));
  }
  place.is_dense = role == Role::workspace || program_.arguments.back().layout == 0;
  tensors_.push_back(std::move(place));
  return tensors_.back();
}

// An output or workspace that blocks add to.
void Generator::make_sum() {
  const DType type = random_.pick({i32, u32, i64, f32, f32, f64});
  const Role role = random_.pick({Role::output, Role::output, Role::workspace});
  make_tensor(role, type, tensor_shape(random_.number(1, 3)), sums(type), true).is_sum = true;
}

// Seen with one dimension, or its dimensions in the other order.
void Generator::reshape(TensorPlace& tensor) {
  const std::int64_t elements =
      std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
  tensor.extents = random_.chance(50) ? Shape{elements} : Shape(tensor.shape.rbegin(), tensor.shape.rend());
  std::vector<Expr> shape;
  for (const std::int64_t e : tensor.extents) shape.push_back(int32(e));
  tensor.view = reshaped(tensor.buffer, shape);
}

void Generator::make_scalars() {
  for (int n = random_.number(0, 2); n > 0; --n) {
    const DType type = random_.pick({i32, i32, f32, f64, i64, u32, boolean});
    Nature contract = random_contract(type, true);
    if (type.is_floating()) contract = dyadic(-2, 16);
    const VariablePtr v = variable("s", type, VariableKind::scalar, contract);
    kernel_.parameters.push_back({nullptr, v});
    program_.arguments.push_back(random_number(random_, type, contract));
    scalars_.push_back({v, contract});
  }
}

void Generator::make_signature() {
  make_scalars();
  for (int n = random_.number(1, 3); n > 0; --n) {
    const DType type = random_type();
    make_tensor(Role::input, type, tensor_shape(random_.number(1, 3)), random_contract(type, true));
  }
  // Rows for gather, bounds for loops.
  if (random_.chance(50))
    make_tensor(Role::input, i32, random_shape(1), integers(random_.pick({0, -2}), random_.number(1, 9)));
  for (int n = random_.number(1, 3); n > 0; --n) {
    const DType type = random_type();
    const Role role = random_.pick({Role::output, Role::output, Role::inout, Role::workspace});
    make_tensor(role, type, tensor_shape(random_.number(1, 3)), random_contract(type, role == Role::inout));
  }
  tables_.of_bytes = limits_.looks_up && random_.chance(30);
  tables_.of_relays = limits_.looks_up && !tables_.of_bytes && random_.chance(40);
  if (tables_.of_bytes)
    make_byte_tables();
  else if (tables_.of_relays)
    make_relay_tables();
  else if (limits_.looks_up)
    make_tables();
  if (random_.chance(25)) make_sum();
  if (std::none_of(tensors_.begin(), tensors_.end(), [](const TensorPlace& t) {
        return t.buffer->role == Role::output || t.buffer->role == Role::inout;
      }))
    make_tensor(Role::output, f32, random_shape(2), random_contract(f32, false));
}

void Generator::add_hints(Grid& grid) {
  GridHints& hints = grid.hints;
  hints.order = random_.pick(
      {GridOrder::automatic, GridOrder::row, GridOrder::column, GridOrder::grouped, GridOrder::heavy_first});
  if (grid.index.size() < 2 && hints.order != GridOrder::heavy_first) hints.order = GridOrder::automatic;
  if (hints.order == GridOrder::grouped) hints.group = random_.number(1, 3);
  if (hints.order == GridOrder::heavy_first) {
    const Expr i = ir::variable(grid.index.back());
    hints.cost = random_.chance(50) ? i : make(Op::mod, i32, {make(Op::mul, i32, {i, int32(7)}), int32(3)});
  }
  if (random_.chance(30)) hints.threads = random_.pick({32, 64, 128});
  hints.persistent = random_.chance(15);
  if (random_.chance(15)) hints.blocks_per_processor = random_.number(1, 2);
}

// The window of the tensor that belongs to a block: ranges along as many dimensions as the grid has indices.
void Generator::own(TensorPlace& tensor, const Grid& grid, const Shape& extents) {
  tensor.view = whole(tensor.buffer);
  tensor.extents = tensor.shape;
  std::vector<int> dims(tensor.shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  for (std::size_t d = dims.size(); d > 1; --d)
    std::swap(dims[d - 1],
              dims[static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(d) - 1))]);
  tensor.covered = true;
  for (std::size_t g = 0; g < extents.size(); ++g) {
    if (extents[g] == 1) continue;
    const int dim = dims.back();
    dims.pop_back();
    auto& extent = tensor.extents[static_cast<std::size_t>(dim)];
    const std::int64_t needed = std::max<std::int64_t>((extent + extents[g] - 1) / extents[g], 1);
    const std::int64_t width =
        random_.chance(70) ? needed : random_.between(1, std::max<std::int64_t>(extent, 1));
    tensor.covered &= width >= needed;
    const Expr first = make(Op::mul, i32, {ir::variable(grid.index[g]), int32(width)});
    slice_range(tensor.view, dim, first, plus(first, int32(width)));
    extent = width;
  }
  tensor.use = Use::owned;
  tensor.writable = true;
}

void Generator::prepare_tensors(const Grid& grid, const Shape& extents) {
  const auto needed = std::count_if(extents.begin(), extents.end(), [](std::int64_t e) { return e > 1; });
  for (TensorPlace& tensor : tensors_) {
    tensor.use = tensor.defined ? Use::read : Use::none;
    tensor.writable = tensor.covered = false;
    tensor.view = whole(tensor.buffer);
    tensor.extents = tensor.shape;
    tensor.sites = 0;
    if (tensor.is_dense && tensor.use == Use::read && random_.chance(15)) reshape(tensor);
    if (!tensor.buffer->is_writable() || (tensor.defined && random_.chance(15))) continue;
    if (tables_.of_relays && &tensor == &tensors_[tables_.added]) {
      tensor.use = Use::atomic, tensor.op = AtomicOp::add;
      continue;
    }
    if ((tensor.is_sum || random_.chance(20)) && combine(tensor)) {
      if (tensor.use == Use::ordered && dynamic_tiles(grid) && random_.chance(50)) tensor.use = Use::in_turns;
      continue;
    }
    if (!tensor.is_sum && static_cast<int>(tensor.shape.size()) >= needed) own(tensor, grid, extents);
  }
}

void Generator::make_grid() {
  Grid grid;
  Shape extents;
  const std::size_t scalars = scalars_.size();
  for (int n = random_.pick({1, 1, 2, 2, 3}); n > 0; --n) {
    extents.push_back(random_.pick({1, 2, 2, 3, 4}));
    const Nature nature = integers(0, extents.back() - 1);
    grid.index.push_back(variable("g", i32, VariableKind::index, nature));
    scalars_.push_back({grid.index.back(), nature});
    turn_digits_.push_back(value_of(grid.index.back()));
    grid.extents.push_back(grid_extent(extents.back()));
  }
  if (limits_.looks_up) few_blocks(grid, extents);
  add_hints(grid);
  may_exit_ = random_.chance(10);
  prepare_tensors(grid, extents);
  std::vector<bool> defined;
  for (const TensorPlace& tensor : tensors_) defined.push_back(tensor.defined);
  times_ = std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
  grid.body = body([&] {
    if (tables_.of_bytes)
      byte_products();
    else if (tables_.of_relays)
      relayed_products();
    else if (limits_.looks_up)
      looked_up_products();
    block_statements(left_);
    cover_outputs();
    contribute_in_turns(grid, extents);
  });
  times_ = 1;
  turn_digits_.clear();
  scalars_.resize(scalars);
  if (random_.chance(3)) {  // no block runs, so that nothing is written
    grid.extents[static_cast<std::size_t>(random_.between(0, std::ssize(extents) - 1))] = int32(0);
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].defined = defined[i];
  }
  kernel_.grids.push_back(std::move(grid));
}

// A constant, or the quotient of a dim.
Expr Generator::grid_extent(std::int64_t value) {
  for (const Dim& dim : kernel_.dims) {
    const std::int64_t n = program_.contracts.variables.at(dim.variable.get()).low;
    const std::int64_t by = n / value;
    if (by > 0 && (n + by - 1) / by == value && random_.chance(50))
      return make(Op::ceildiv, i32, {ir::variable(dim.variable), int32(by)});
  }
  return int32(value);
}

Program Generator::run() {
  kernel_.name = fmt::format("fuzz_{}", program_.seed);
  make_signature();
  const int grids = random_.pick({1, 1, 1, 2, 3});
  for (int n = grids; n > 0; --n) {
    left_ = (limits_.statements + grids - 1) / grids;
    make_grid();
  }
  program_.kernel = std::make_shared<const Kernel>(std::move(kernel_));
  return std::move(program_);
}

Limits limits_of(std::uint64_t seed) {
  constexpr std::uint64_t all_look_up = 1'000'000'000;  // from this seed on
  if (seed % 40 == 7 || seed >= all_look_up) return {2, 2, 1'500'000, false, true};
  if (seed % 20 == 0) return {14, 3, 20'000};
  if (seed % 20 == 10) return {3, 2, 200'000, true};
  if (seed % 4 == 0) return {6, 3, 6'000};
  return {3, 2, 3'000};
}

Program generate(std::uint64_t seed) { return Generator(seed, limits_of(seed)).run(); }

}  // namespace tegula::fuzz
