// Products of 8-bit operands of either order in pipelined loops: on Hopper, warps of the producer transpose
// those that do not go along k, and widen those of which the program makes tiles of 16-bit floats.
#include "fuzz/generator.hpp"
#include "fuzz/views.hpp"

namespace tegula::fuzz {

using namespace ir;

// Rows, and elements along k, that tiles may leave.
void Generator::make_byte_tables() {
  const DType type = random_.pick({e4m3, e4m3, e5m2, i8, u8});
  const DType sum = type.is_floating() ? f32 : i32;
  const Nature terms = small_terms(type);
  tables_.wide =
      type.is_floating() && random_.chance(40) ? std::optional(random_.pick({bf16, f16})) : std::nullopt;
  tables_.depth = random_.pick({64, 128, 160, 192, 100});
  for (ByteTable* own : {&tables_.left, &tables_.right}) {
    own->along_k = random_.chance(40);
    Shape shape{random_.pick({64, 80, 96, 128, 72}), tables_.depth};
    if (!own->along_k) std::swap(shape[0], shape[1]);
    own->tensor = make_table(type, shape, terms);
  }
  const double products = 2.0 * 3 * 128;
  Nature sums = type.is_floating() ? dyadic(2 * terms.step, terms.bound * terms.bound * products)
                                   : integers(-2'000'000, 2'000'000);
  sums.loose_zero = true;
  tables_.height = random_.pick({64, 64, 128});
  make_tensor(Role::output, sum, {tables_.height, random_.number(1, 96)}, sums);
  tables_.sums = tensors_.size() - 1;
}

// Halves of the rows of a tile, the second from another place.
void Generator::bring_in_parts(const View& window, const View& to) {
  const std::int64_t half = to.extent(0) / 2;
  for (const std::int64_t first : {std::int64_t{0}, half}) {
    View from = window, part = to;
    if (first > 0) shift(from, 0, within(value(i32, 1), 0, 2 * half).e);
    slice_range(part, 0, int32(first), int32(first + half));
    emit(Copy{from, part, nullptr});
  }
}

// The operand [rows, depth] at a step of a loop, in a tile of the tensor's order or of the other one.
View Generator::bring_bytes(const ByteTable& from, std::int64_t rows, std::int64_t depth, const Expr& step) {
  const TensorPlace table = tensors_[from.tensor];
  const bool turns = random_.chance(25), along_k = from.along_k != turns;
  Shape shape{rows, depth};
  if (!along_k) std::swap(shape[0], shape[1]);
  const Nature zero = table.contract.dyadic ? dyadic(table.contract.step, 0) : integers(0, 0);
  const DType type = tables_.wide ? *tables_.wide : table.buffer->type;
  const TilePlace tile = declare(type, shape, join(table.contract, zero, type), Space::shared);
  View window = whole(table.buffer), to = whole(tile.buffer);
  if (tables_.wide && random_.chance(40)) {
    const Expr begin = within(value(i32, 1), 0, 9).e, end = within(value(i32, 1), 0, rows + depth).e;
    slice_range(window, random_.chance(75) ? 0 : 1, begin, end);
  }
  shift(window, from.along_k ? 1 : 0, make(Op::mul, i32, {step, int32(depth)}));
  if (random_.chance(50)) shift(window, from.along_k ? 0 : 1, within(value(i32, 1), -5, rows).e);
  if (turns) swap_axes(to, 0, 1);
  if (tables_.wide && !turns && random_.chance(30))
    bring_in_parts(window, to);
  else
    emit(Copy{window, to, nullptr});
  tiles_.back().defined = true;
  tiles_.back().writable = random_.chance(10);
  View operand = whole(tile.buffer);
  if (!along_k) swap_axes(operand, 0, 1);
  return operand;
}

// A loop of such products, stored where the block may.
void Generator::byte_products() {
  const std::int64_t rows = tables_.height, columns = random_.pick({32, 64, 64, 96}),
                     depth = random_.pick({32, 64, 64, 128}), most = random_.number(1, 3);
  const TensorPlace out = tensors_[tables_.sums];
  if (!spend(most * rows * columns * depth / 4)) return;
  const TilePlace sum = declare(out.buffer->type, {rows, columns}, out.contract, Space::fragment);
  emit(Fill{whole(sum.buffer), ir::constant(out.buffer->type, 0)});
  tiles_.back().defined = true;
  tiles_.back().writable = false;
  const Nature turns = integers(0, most - 1);
  For loop{LoopKind::pipelined,  {variable("i", i32, VariableKind::index, turns)},
           {int32(0)},           {int32(most)},
           random_.number(0, 3), {}};
  const bool known = std::exchange(turns_known_, false);
  const GemmHints hints = random_.chance(50) ? random_hints() : GemmHints();
  inside_loop(most, [&] {
    loop.body = maybe([&] {
      scalars_.push_back({loop.index[0], turns});
      const auto step = [&] {
        const Expr i = ir::variable(loop.index[0]);
        const View left = bring_bytes(tables_.left, rows, depth, i);
        View right = bring_bytes(tables_.right, columns, depth, i);
        if (random_.chance(20)) block_statement();
        swap_axes(right, 0, 1);
        emit(Gemm{left, right, whole(sum.buffer), false, hints});
        if (random_.chance(20)) emit(Gemm{left, right, whole(sum.buffer), false, hints});
        if (random_.chance(10)) block_statement();
      };
      random_.chance(25) ? branch(step) : step();
    });
  });
  turns_known_ = known;
  emit(std::move(loop));
  if (out.use == Use::owned && out.writable) emit(Copy{whole(sum.buffer), out.view, nullptr});
}

}  // namespace tegula::fuzz
