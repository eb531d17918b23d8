// Random gathers, products, reductions and atomics. Sums are of dyadic numbers, so that their order does not
// show.
#include <algorithm>
#include <cmath>

#include "fuzz/generator.hpp"
#include "fuzz/views.hpp"
#include "ir/bounds.hpp"

namespace tegula::fuzz {

using namespace ir;

namespace {

bool has_atomics(DType type) { return type.bits() >= (type.is_floating() ? 16 : 32) && !type.is_boolean(); }

}  // namespace

// The nature of a few terms of this type.
Nature Generator::small_terms(DType type) {
  if (type.is_floating()) {
    Nature result = dyadic(random_.pick({0, -1}), random_.pick({1, 2, 4}));
    result.loose_zero = true;
    return result;
  }
  return integers(type.is_unsigned() ? 0 : -random_.number(0, 50), random_.number(1, 50));
}

void Generator::gather() {
  std::vector<const TensorPlace*> readable;
  for (const TensorPlace& t : tensors_) {
    const bool is_readable = (t.use == Use::read || t.use == Use::owned) && t.defined;
    if (is_readable && t.view.rank() > 0) readable.push_back(&t);
  }
  if (readable.empty()) return;
  const TensorPlace tensor = *random_.pick_from(readable);
  const int rank = random_.number(1, tensor.view.rank());
  const View from = window_of(tensor, static_cast<std::size_t>(rank));
  const Shape shape = random_shape(rank);
  if (!spend(product_of(shape))) return;
  const DType type = similar_type(tensor.buffer->type);
  const Nature zero = tensor.contract.dyadic ? dyadic(tensor.contract.step, 0) : Nature();
  const TilePlace tile =
      declare(type, shape, stored(join(tensor.contract, zero, tensor.buffer->type), type), random_space());
  Gather node{from,
              whole(tile.buffer),
              variable("r", i32, VariableKind::index, integers(0, shape[0] - 1)),
              {},
              nullptr};
  node.body = body([&] {
    scalars_.push_back({node.index, integers(0, shape[0] - 1)});
    node.row = within(value(i32, 2), -2, tensor.extents[0] + 2).e;
  });
  emit(std::move(node));
  tiles_.back().defined = true;
}

// A new tile, seen with this shape: as it is, transposed, or as a window of a larger one.
std::optional<View> Generator::operand(DType type, const Nature& contract, std::int64_t rows,
                                       std::int64_t columns) {
  Shape shape{rows, columns};
  const bool swapped = random_.chance(35), larger = random_.chance(20);
  if (swapped) std::swap(shape[0], shape[1]);
  if (larger) shape[1] += random_.number(1, 3);
  if (!spend(product_of(shape))) return std::nullopt;
  declare(type, shape, contract, random_space());
  const std::size_t index = tiles_.size() - 1;
  random_.chance(25) ? fill(tiles_[index]) : parallel_over(index);
  View view = whole(tiles_[index].buffer);
  if (larger) {
    const std::int64_t width = swapped ? rows : columns, first = shape[1] - width;
    slice_range(view, 1, int32(first), int32(first + width));
  }
  if (swapped) swap_axes(view, 0, 1);
  return view;
}

// c += a · b, also several times.
void Generator::product() {
  const DType type = random_.pick({i8, i16, i32, u8, e4m3, e5m2, f16, f16, bf16, bf16, f32, f32, f64});
  DType sum = type == f64 ? f64 : type.is_floating() ? f32 : i32;
  std::int64_t m = random_.number(1, 18), n = random_.pick({1, 3, 8, 16, 17, 33}), k = random_.number(1, 20);
  if (limits_.wide) m = random_.pick({16, 64, 64, 128}), n = random_columns(), k = random_.pick({16, 32, 48});
  const std::int64_t trips = random_.pick({1, 1, 2, 3});
  if (!spend(trips * m * n * (k / 4 + 1))) return;
  const Nature a = small_terms(type), b = small_terms(type);
  Nature c = integers(-200'000, 200'000);
  if (sum.is_floating()) {
    c = dyadic(a.step + b.step, a.bound * b.bound * static_cast<double>(k * trips) + 4);
    c.loose_zero = true;
  }
  constexpr double integers_of_f16 = 2048;
  if (type == f16 && c.bound <= std::ldexp(integers_of_f16, c.step) && random_.chance(50)) sum = f16;
  const TilePlace total = declare(sum, {m, n}, c, Space::fragment);
  const Value first{ir::constant(compute_type(sum), random_.chance(60) ? 0 : 2), Nature()};
  emit(Fill{whole(total.buffer), first.e});
  tiles_.back().defined = true;
  tiles_.back().writable = false;  // a copy of it may be written
  const auto multiply = [&] {
    const auto x = operand(type, a, m, k), y = operand(type, b, k, n);
    if (x && y) emit(Gemm{*x, *y, whole(total.buffer), random_.chance(10), random_hints()});
  };
  if (trips == 1) return multiply();
  const Nature turns = integers(0, trips - 1);
  For loop{random_.pick({LoopKind::serial, LoopKind::pipelined}),
           {variable("i", i32, VariableKind::index, turns)},
           {int32(0)},
           {int32(trips)},
           0,
           {}};
  const bool known = std::exchange(turns_known_, false);
  inside_loop(trips, [&] {
    loop.body = maybe([&] {
      scalars_.push_back({loop.index[0], turns});
      multiply();
    });
  });
  turns_known_ = known;
  emit(std::move(loop));
}

GemmHints Generator::random_hints() {
  GemmHints hints;
  if (random_.chance(20)) hints.accumulation = Accumulation::tensor_core;
  hints.warps = random_.pick({Warps::automatic, Warps::rows, Warps::columns, Warps::square});
  if (random_.chance(20)) hints.swap = random_.chance(50);
  if (random_.chance(20)) hints.from_registers = random_.chance(50);
  return hints;
}

// The contract of a reduction's result of this type, if the executors agree about it.
std::optional<Nature> Generator::reduced(ReduceOp op, const Nature& from, std::int64_t count, DType type) {
  Nature result = from;
  const DType held = compute_type(type);
  result.loose_zero = true;
  const double times = static_cast<double>(count) + 1;
  if (op == ReduceOp::sum && type.is_floating()) {
    if (!from.dyadic || from.bound * times > std::ldexp(1.0, from.step + 24)) return std::nullopt;
    result.bound *= times;
  } else if (op == ReduceOp::sum) {
    const double most =
        std::max(std::fabs(static_cast<double>(from.low)), static_cast<double>(from.high)) * times;
    if (held.kind() == Kind::natural) return anything(type);
    if (most > static_cast<double>(values_of(held).high)) return std::nullopt;
    result = integers(from.low * (count + 1), from.high * (count + 1));
  } else if (op == ReduceOp::absmax && !type.is_floating()) {
    if (from.low == values_of(held).low && held.kind() == Kind::integer) return std::nullopt;
    result = integers(std::min<std::int64_t>(from.low, 0), std::max(from.high, -from.low));
  }
  result = stored(result, type);
  if (op == ReduceOp::sum && type.is_floating() && !result.dyadic) return std::nullopt;
  return result;
}

void Generator::reduction() {
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < tiles_.size(); ++i) {
    if (tiles_[i].defined && !tiles_[i].shape.empty()) fitting.push_back(i);
  }
  if (fitting.empty()) return;
  const TilePlace from = tiles_[random_.pick_from(fitting)];
  Shape extents;
  const View window = tile_window(from, extents, -1);
  if (window.rank() == 0 || !spend(product_of(extents))) return;
  const DType source = from.buffer->type;
  DType type = random_.chance(60) ? compute_type(source) : similar_type(source);
  if (compute_type(type).bits() < compute_type(source).bits()) type = source;
  const ReduceOp op =
      source.is_boolean()
          ? random_.pick({ReduceOp::any, ReduceOp::all})
          : random_.pick({ReduceOp::sum, ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::absmax});
  const int dim = random_.number(0, window.rank() - 1);
  const auto contract = reduced(op, from.contract, extents[static_cast<std::size_t>(dim)], type);
  if (!contract) return;
  extents.erase(extents.begin() + dim);
  const TilePlace to = declare(type, extents, *contract, Space::fragment);
  const bool overwrite = random_.chance(30);
  if (!overwrite) emit(Fill{whole(to.buffer), first_of(op, from.contract, type)});
  emit(Reduce{op, window, dim, whole(to.buffer), overwrite});
  tiles_.back().defined = true;
}

// Besides all sums up to an element there may be none.
std::optional<Nature> Generator::scanned(ReduceOp op, const Nature& from, std::int64_t count, DType type) {
  const auto total = reduced(op, from, count, type);
  if (!total || op != ReduceOp::sum || type.is_floating()) return total;
  if (compute_type(type).kind() == Kind::natural) return total;
  return stored(integers(std::min<std::int64_t>(total->low, 0), std::max<std::int64_t>(total->high, 0)),
                type);
}

void Generator::scan() {
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < tiles_.size(); ++i) {
    if (tiles_[i].defined && !tiles_[i].shape.empty() && !tiles_[i].buffer->type.is_boolean())
      fitting.push_back(i);
  }
  if (fitting.empty()) return;
  const TilePlace from = tiles_[random_.pick_from(fitting)];
  Shape extents;
  const View window = tile_window(from, extents, -1);
  if (window.rank() == 0 || !spend(3 * product_of(extents))) return;
  const DType type = compute_type(from.buffer->type);
  const ReduceOp op = random_.pick({ReduceOp::sum, ReduceOp::sum, ReduceOp::max, ReduceOp::min});
  const int dim = random_.number(0, window.rank() - 1);
  const auto contract = scanned(op, from.contract, extents[static_cast<std::size_t>(dim)], type);
  if (!contract) return;
  ir::Scan node{op, window, dim, window, op == ReduceOp::sum && random_.chance(30), random_.chance(30)};
  if (random_.chance(30)) {
    const TilePlace starts = declare(boolean, extents, anything(boolean), random_space());
    const std::size_t index = tiles_.size() - 1;
    random_.chance(30) ? fill(tiles_[index]) : parallel_over(index);
    node.starts = whole(starts.buffer);
  }
  node.to = whole(declare(type, extents, *contract, Space::fragment).buffer);
  emit(std::move(node));
  tiles_.back().defined = true;
}

// What a running reduction starts from: often the identity, always one more term.
Expr Generator::first_of(ReduceOp op, const Nature& term, DType type) {
  const DType held = compute_type(type);
  if (held.is_boolean()) return truth(random_.chance(50) == (op == ReduceOp::all));
  if (random_.chance(50) || term.dyadic || !type.is_floating()) return ir::constant(held, 0);
  return ir::constant(held, op == ReduceOp::min ? HUGE_VAL : op == ReduceOp::max ? -HUGE_VAL : 0.0);
}

// ---- atomics

// A way in which the blocks of a grid may combine into the tensor, if there is one.
bool Generator::combine(TensorPlace& tensor) {
  const DType type = tensor.buffer->type;
  if (!tensor.defined || !has_atomics(type) || !tensor.contract.is_exact()) return false;
  const bool any_float = type.is_floating() && !tensor.contract.dyadic;
  if (type.is_floating() && !tensor.contract.loose_zero && !tensor.is_sum) return false;
  tensor.use = random_.chance(40) ? Use::ordered : Use::atomic;
  const bool adds = tensor.is_sum || (any_float && tensor.use == Use::ordered);
  if (adds)
    tensor.op = AtomicOp::add;
  else if (type.is_integer() && tensor.use == Use::atomic && tensor.contract.low < 0 &&
           fits(anything(type), tensor.contract, type))
    tensor.op = random_.pick({AtomicOp::bit_or, AtomicOp::bit_and, AtomicOp::max});
  else
    tensor.op = random_.pick({AtomicOp::min, AtomicOp::max});
  return true;
}

Nature Generator::contribution(const TensorPlace& tensor) {
  if (tensor.is_sum) return small_terms(tensor.buffer->type);
  return tensor.contract;
}

void Generator::accumulate() {
  std::vector<std::size_t> targets;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Use use = tensors_[i].use;
    if (use == Use::atomic || (use == Use::ordered && turns_known_ && tensors_[i].sites < 8))
      targets.push_back(i);
  }
  if (targets.empty()) return reduction();
  const std::size_t chosen = random_.pick_from(targets);
  const TensorPlace tensor = tensors_[chosen];
  if (tensor.op == AtomicOp::bit_or || tensor.op == AtomicOp::bit_and) return atomic();
  const int rank = random_.number(0, tensor.view.rank());
  Shape shape = random_shape(rank);
  if (!spend(2 * product_of(shape))) return;
  declare(tensor.buffer->type, shape, contribution(tensor), random_space());
  const std::size_t index = tiles_.size() - 1;
  rank == 0 || random_.chance(30) ? fill(tiles_[index]) : parallel_over(index);
  const View window = window_of(tensor, static_cast<std::size_t>(rank));
  Expr order;
  if (tensor.use == Use::ordered) order = turn(tensors_[chosen].sites++);
  emit(Accumulate{tensor.op, window, whole(tiles_[index].buffer), order});
}

// A number that no other execution of an accumulation of this grid has.
Expr Generator::turn(int site) {
  Value result{int32(site), integers(site, site)};
  std::int64_t radix = 8;
  for (const Value& digit : turn_digits_) {
    const std::int64_t width = digit.nature.high - digit.nature.low + 1;
    const Expr from_zero = plus(digit.e, int32(-digit.nature.low));
    result.e = plus(result.e, make(Op::mul, i32, {from_zero, int32(radix)}));
    radix *= width;
  }
  return random_.chance(40) ? make(Op::sub, i32, {int32(radix), result.e}) : result.e;
}

// On an element of a tensor; in `parallel` often the same for many iterations.
void Generator::atomic() {
  std::vector<const TensorPlace*> targets;
  for (const TensorPlace& tensor : tensors_) {
    if (tensor.use == Use::atomic) targets.push_back(&tensor);
  }
  if (targets.empty() || !spend(1)) return shared_atomic();
  const TensorPlace tensor = *random_.pick_from(targets);
  const Value x = matching(tensor.buffer->type, contribution(tensor), 2);
  std::vector<Expr> index;
  for (const std::int64_t e : tensor.extents) index.push_back(any_index(e));
  emit(Atomic{tensor.op, {tensor.view, index}, x.e});
}

// On an element of a tile that is for this alone.
void Generator::shared_atomic() {
  for (const TilePlace& tile : tiles_) {
    if (!tile.is_sum || !tile.writable || !spend(1)) continue;
    const Value x = matching(tile.buffer->type, small_terms(tile.buffer->type), 2);
    std::vector<Expr> index;
    for (const std::int64_t e : tile.shape) index.push_back(index_within(e, false));
    emit(Atomic{AtomicOp::add, {whole(tile.buffer), index}, x.e});
    return;
  }
}

// A tile of sums, and a loop that adds to it.
void Generator::histogram() {
  const DType type = random_.pick({i32, u32, i64, f32, f64});
  const Shape shape = random_shape(random_.number(1, 2)), count = random_shape(random_.number(1, 2));
  if (!spend(2 * product_of(count) + product_of(shape))) return;
  const TilePlace tile = declare(type, shape, sums(type), Space::shared);
  const std::size_t index = tiles_.size() - 1;
  emit(Fill{whole(tile.buffer), ir::constant(type, 0)});
  tiles_[index].is_sum = true;
  For loop = open_parallel(count, false);
  fill_parallel(loop, count, [&] {
    element_statements(random_.number(0, 1));
    shared_atomic();
  });
  tiles_[index].is_sum = tiles_[index].writable = false;
  tiles_[index].defined = true;
}

Nature Generator::sums(DType type) {
  if (!type.is_floating()) return type == u32 ? anything(u32) : integers(-10'000'000, 10'000'000);
  Nature result = dyadic(-2, 0x1p18);
  result.loose_zero = true;
  return result;
}

// ---- groups

// Instances may read what the block has; each writes tiles of its own and its own window of the outputs.
void Generator::groups() {
  const int count = random_.number(1, 4);
  const Nature nature = integers(0, count - 1);
  For loop{random_.pick({LoopKind::warps, LoopKind::warp_groups}),
           {variable("w", i32, VariableKind::index, nature)},
           {int32(0)},
           {int32(count)},
           0,
           {}};
  const std::vector<TensorPlace> tensors = tensors_;
  std::vector<bool> tiles, variables;
  for (TilePlace& tile : tiles_) tiles.push_back(std::exchange(tile.writable, false));
  for (MutablePlace& v : variables_) variables.push_back(std::exchange(v.writable, false));
  for (TensorPlace& tensor : tensors_) {
    if (tensor.use == Use::owned && tensor.writable) split(tensor, ir::variable(loop.index[0]), count);
  }
  in_group_ = true;
  inside_loop(count, [&] {
    in_loop_ = false;
    loop.body = maybe([&] {
      scalars_.push_back({loop.index[0], nature});
      turn_digits_.push_back(value_of(loop.index[0]));
      block_statements(random_.number(1, 3));
      turn_digits_.pop_back();
    });
  });
  in_group_ = false;
  for (std::size_t i = 0; i < tiles.size(); ++i) tiles_[i].writable = tiles[i];
  for (std::size_t i = 0; i < variables.size(); ++i) variables_[i].writable = variables[i];
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const int sites = tensors_[i].sites;
    tensors_[i] = tensors[i];
    tensors_[i].sites = sites;
  }
  emit(std::move(loop));
}

void Generator::split(TensorPlace& tensor, const Expr& instance, int count) {
  tensor.writable = tensor.view.rank() > 0 && random_.chance(70);
  if (!tensor.writable) return;
  const int axis = random_.number(0, tensor.view.rank() - 1);
  auto& extent = tensor.extents[static_cast<std::size_t>(axis)];
  extent = std::max<std::int64_t>(1, (extent + count - 1) / count);
  const Expr first = make(Op::mul, i32, {instance, int32(extent)});
  slice_range(tensor.view, axis, first, plus(first, int32(extent)));
}

}  // namespace tegula::fuzz
