// Programs whose steps multiply what the step before made: tiles that pass from step to step, which consumers
// relay on Hopper where nothing else reads them; and sums of a step, some along other dimensions than others.
#include "fuzz/generator.hpp"
#include "fuzz/views.hpp"

namespace tegula::fuzz {

using namespace ir;

namespace {

constexpr std::int64_t depth = 64, most_steps = 3, most_heads = 2;

}  // namespace

// Rows of ones and minus ones, so that products of 64 of them are numbers of 16 bits, too; what the products
// are stored to, and what steps add to.
void Generator::make_relay_tables() {
  Nature terms = dyadic(0, 1);
  terms.loose_zero = true;
  tables_.rows = make_table(random_.pick({bf16, bf16, f16}), {random_.number(1, 260), depth}, terms);
  tables_.height = random_.pick({64, 128, 128});
  tables_.keys = random_.pick({64, 128, 128});
  make_table_of_sums(tables_.keys);
  const auto extent = [&] { return std::int64_t{random_.pick({1, 3, 20, 64})}; };
  make_tensor(Role::output, f32, {extent(), extent(), random_.pick({16, 64, 128})}, sums(f32), true)
      .is_sum = true;
  tables_.added = tensors_.size() - 1;
}

// A tile that statements made at random do not touch.
TilePlace Generator::declare_apart(DType type, const Shape& shape, const Nature& contract, Space space) {
  const TilePlace tile = declare(type, shape, contract, space);
  tiles_.pop_back();
  return tile;
}

// Elements from the first column on that become those of `from`, or something between both.
void Generator::write_elements(const TilePlace& from, const TilePlace& to, std::int64_t first, bool updates) {
  const Shape count{to.shape[0], to.shape[1] - first};
  For loop = open_parallel(count, true);
  const Expr i = ir::variable(loop.index[0]), j = plus(ir::variable(loop.index[1]), int32(first));
  fill_parallel(loop, count, [&] {
    Expr x = load_from({whole(from.buffer), from.contract, from.shape}, {i, j}).e;
    if (updates) {
      const Expr before = load_from({whole(to.buffer), to.contract, to.shape}, {i, j}).e;
      x = make(Op::select, x->held(), {make(Op::lt, boolean, {x, before}), x, before});
    }
    emit(Store{{whole(to.buffer), {i, j}}, x});
  });
}

// What a step makes for the next one.
void Generator::pass_on(const TilePlace& weights, const TilePlace& carried) {
  const auto copied = [&] {
    const TilePlace rounded =
        declare_apart(carried.buffer->type, carried.shape, carried.contract, Space::fragment);
    emit(Copy{whole(weights.buffer), whole(rounded.buffer), nullptr});
    emit(Copy{whole(rounded.buffer), whole(carried.buffer), nullptr});
  };
  const int way = random_.number(0, 99);
  if (way < 35) return copied();
  if (way < 80) return write_elements(weights, carried, 0, false);
  if (way < 86) return write_elements(weights, carried, random_.pick({8, 16, 32}), false);
  if (way < 93) return write_elements(weights, carried, 0, true);
  branch(copied);
}

// Windows of a tensor that is added to, whichever dimensions they go along.
void Generator::add_in_step(const TilePlace& weights) {
  const TensorPlace& tensor = tensors_[tables_.added];
  if (tensor.use != Use::atomic || tensor.view.rank() < 2) return;  // it may be seen as one row
  for (int n = random_.pick({0, 1, 2, 2, 3}); n > 0; --n)
    emit(Accumulate{tensor.op, window_of(tensor, 2), whole(weights.buffer), nullptr});
}

void Generator::relay_step(const Relay& relay, const Expr& step) {
  const auto& [left, carried, sum] = relay;
  const TilePlace keys =
      declare_apart(left.buffer->type, {tables_.keys, depth}, left.contract, Space::shared);
  const Expr begin = make(Op::mul, i32, {step, int32(random_.pick({0, 16, 64}))});
  emit(Copy{window_from(tables_.rows, begin), whole(keys.buffer), nullptr});
  const TilePlace weights = declare_apart(f32, carried.shape, carried.contract, Space::fragment);
  emit(Fill{whole(weights.buffer), ir::constant(f32, 0)});
  View columns = whole(keys.buffer);
  swap_axes(columns, 0, 1);
  emit(Gemm{whole(left.buffer), columns, whole(weights.buffer), false, {}});
  for (int n = random_.pick({1, 1, 1, 2}); n > 0; --n) multiply_carried(relay);
  if (random_.chance(10)) block_statement();
  pass_on(weights, carried);
  if (random_.chance(8)) multiply_carried(relay);
  add_in_step(weights);
}

void Generator::multiply_carried(const Relay& relay) {
  View before = whole(relay.carried.buffer);
  swap_axes(before, 0, 1);
  emit(Gemm{before, whole(relay.left.buffer), whole(relay.sum.buffer), false, {}});
}

// One loop over steps, with products of the tile around it.
void Generator::relay_steps(const Relay& relay) {
  if (random_.chance(25)) multiply_carried(relay);
  const Nature turns = integers(0, most_steps - 1);
  const Value last = random_.chance(50) ? within(value(i32, 1), 0, most_steps)
                                        : Value{int32(random_.number(1, most_steps)), turns};
  loop_of_steps(LoopKind::pipelined, "i", most_steps, last.e, [&](const Expr& number) {
    if (random_.chance(8)) emit(Break{value(boolean, 2).e});
    const auto step = [&] { relay_step(relay, number); };
    random_.chance(10) ? branch(step) : step();
  });
  for (int n = random_.pick({0, 1, 1, 2}); n > 0; --n) multiply_carried(relay);
}

// Steps of one or two heads, and what all of them add up to.
void Generator::relayed_products() {
  const TensorPlace table = tensors_[tables_.rows];
  const DType type = table.buffer->type;
  const std::int64_t rows = tables_.height, keys = tables_.keys;
  if (!spend(most_steps * most_heads * rows * keys * depth / 16)) return;
  Nature weights = dyadic(0, depth), sums = dyadic(0, 0x1p20);
  weights.loose_zero = sums.loose_zero = true;
  const Relay relay{declare_apart(type, {rows, depth}, table.contract, Space::shared),
                    declare_apart(type, {rows, keys}, weights, Space::shared),
                    declare_apart(f32, {keys, depth}, sums, Space::fragment)};
  emit(Copy{window_from(tables_.rows, within(value(i32, 1), 0, 9).e), whole(relay.left.buffer), nullptr});
  const auto clear = [&](const TilePlace& tile) {
    emit(Fill{whole(tile.buffer), ir::constant(tile.buffer->type, 0)});
  };
  clear(relay.carried), clear(relay.sum);
  if (random_.chance(50)) {
    const Expr last = within(value(i32, 1), 0, most_heads).e;
    loop_of_steps(LoopKind::serial, "h", most_heads, last, [&](const Expr&) {
      if (random_.chance(30)) clear(relay.carried);
      relay_steps(relay);
    });
  } else {
    relay_steps(relay);
    if (random_.chance(20)) relay_steps(relay);
  }
  if (rows == keys && random_.chance(10)) add_carried(relay);
  store_sum(relay.sum);
}

// Threads read the tile, too.
void Generator::add_carried(const Relay& relay) {
  const TilePlace more = declare_apart(f32, relay.sum.shape, relay.sum.contract, Space::fragment);
  For loop = open_parallel(more.shape, true);
  const Expr i = ir::variable(loop.index[0]), j = ir::variable(loop.index[1]);
  fill_parallel(loop, more.shape, [&] {
    const TilePlace& from = relay.carried;
    emit(Store{{whole(more.buffer), {i, j}},
               load_from({whole(from.buffer), from.contract, from.shape}, {i, j}).e});
  });
  const TensorPlace& tensor = tensors_[tables_.added];
  if (tensor.use == Use::atomic && tensor.view.rank() >= 2)
    emit(Accumulate{tensor.op, window_of(tensor, 2), whole(more.buffer), nullptr});
}

}  // namespace tegula::fuzz
