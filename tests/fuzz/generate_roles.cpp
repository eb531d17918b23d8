// Programs whose blocks have a producer and consumers on Hopper: products in pipelined loops whose operands
// are looked up in tiles that the loop brings as well, or are made of them.
#include "fuzz/arguments.hpp"
#include "fuzz/generator.hpp"
#include "fuzz/views.hpp"

namespace tegula::fuzz {

using namespace ir;

namespace {

constexpr std::int64_t columns_of_table = 64, most_blocks = 3;

}  // namespace

// As the copy engine takes it: constant columns, and nearly always dense.
std::size_t Generator::make_table(DType type, const Shape& shape, const Nature& contract) {
  constexpr int dense_percent = 95;
  std::vector<Expr> extents;
  for (const std::int64_t e : shape) extents.push_back(int32(e));
  auto buffer = std::make_shared<const Buffer>(Buffer{"Table" + std::to_string(next_name_++), Space::global,
                                                      Role::input, type, extents, false, Loc()});
  program_.contracts.buffers[buffer.get()] = contract;
  TensorPlace place;
  place.buffer = buffer;
  place.contract = contract;
  place.shape = shape;
  kernel_.parameters.push_back({buffer, nullptr});
  program_.arguments.push_back(random_tensor(random_, type, shape, contract, dense_percent));
  place.is_dense = program_.arguments.back().layout == 0;
  tensors_.push_back(std::move(place));
  return tensors_.size() - 1;
}

// Rows, and numbers of rows in a vector and by fours; what the products are stored to.
void Generator::make_tables() {
  const DType type = random_.pick({bf16, bf16, f16});
  const std::int64_t rows = random_.number(1, 90);
  const Nature numbers = integers(random_.pick({0, -2}), rows + 1);
  tables_.rows = make_table(type, {rows, columns_of_table}, small_terms(type));
  tables_.numbers = make_table(i32, {random_.number(1, 300)}, numbers);
  tables_.fours = make_table(i32, {random_.number(1, 80), 4}, numbers);
  tables_.height = random_.pick({16, 24, 64, 64, 64});
  make_table_of_sums(tables_.height);
}

void Generator::make_table_of_sums(std::int64_t rows) {
  Nature sums = anything(f32);
  sums.loose_zero = true;
  make_tensor(Role::output, f32, {rows, random_.number(1, 64)}, sums);
  tables_.sums = tensors_.size() - 1;
}

// Where the block may.
void Generator::store_sum(const TilePlace& sum) {
  const TensorPlace& out = tensors_[tables_.sums];
  if (out.use == Use::owned && out.writable) emit(Copy{whole(sum.buffer), out.view, nullptr});
}

// A window of a tensor, from a place that it may leave on either side.
View Generator::window_from(std::size_t table, const Expr& begin) {
  View view = whole(tensors_[table].buffer);
  shift(view, 0, begin);
  return view;
}

// A new vector of numbers, or of fours, that comes in one of many ways.
std::size_t Generator::bring_numbers(std::int64_t count, const std::optional<std::size_t>& older) {
  const Nature contract = join(tensors_[tables_.numbers].contract, integers(0, 0), i32);
  const bool by_fours = random_.chance(40);
  declare(i32, by_fours ? Shape{count / 4, 4} : Shape{count}, contract, Space::shared);
  const std::size_t index = tiles_.size() - 1;
  const TilePlace tile = tiles_[index];
  const std::int64_t extent = tensors_[by_fours ? tables_.fours : tables_.numbers].shape[0];
  const int way = random_.number(0, 9);
  if (older && way < 3) {
    For loop = open_parallel(tile.shape, true);
    Access own{whole(tile.buffer), {}};
    for (const VariablePtr& i : loop.index) own.index.push_back(ir::variable(i));
    fill_parallel(loop, tile.shape, [&] {
      const Value x = number_in(tiles_[*older]);
      emit(Store{own, within(x, contract.low, contract.high).e});
    });
  } else if (way < 5) {
    parallel_over(index);
  } else if (way < 8 || !by_fours) {
    const Value begin = older && random_.chance(50) ? number_in(tiles_[*older]) : value(i32, 1);
    emit(Copy{window_from(by_fours ? tables_.fours : tables_.numbers, within(begin, -3, extent).e),
              whole(tile.buffer), nullptr});
  } else {
    gather_rows(tables_.fours, tile, older);
  }
  tiles_[index].defined = true;
  return index;
}

// An element of a tile of numbers.
Value Generator::number_in(const TilePlace& tile) {
  std::vector<Expr> index;
  for (const std::int64_t extent : tile.shape) index.push_back(index_within(extent, false));
  return load_from({whole(tile.buffer), tile.contract, tile.shape}, std::move(index));
}

void Generator::gather_rows(std::size_t table, const TilePlace& tile,
                            const std::optional<std::size_t>& numbers) {
  const Nature rows = integers(0, tile.shape[0] - 1);
  Gather node{whole(tensors_[table].buffer),
              whole(tile.buffer),
              variable("r", i32, VariableKind::index, rows),
              {},
              nullptr};
  node.body = body([&] {
    scalars_.push_back({node.index, rows});
    const Value row = numbers ? number_in(tiles_[*numbers]) : value(i32, 2);
    node.row = within(row, -2, tensors_[table].shape[0] + 2).e;
  });
  emit(std::move(node));
}

// A new tile of rows of the table.
std::size_t Generator::bring_rows(std::int64_t count, const std::optional<std::size_t>& numbers) {
  const TensorPlace table = tensors_[tables_.rows];
  const TilePlace tile =
      declare(table.buffer->type, {count, columns_of_table}, table.contract, Space::shared);
  const std::size_t index = tiles_.size() - 1;
  if (random_.chance(60)) {
    gather_rows(tables_.rows, tile, numbers);
  } else {
    const Value begin = numbers ? number_in(tiles_[*numbers]) : value(i32, 1);
    emit(Copy{window_from(tables_.rows, within(begin, -5, table.shape[0]).e), whole(tile.buffer), nullptr});
  }
  tiles_[index].defined = true;
  return index;
}

// The same with its columns in another order, or negative.
std::size_t Generator::convert_rows(std::size_t raw) {
  const TilePlace from = tiles_[raw];
  const TilePlace tile = declare(from.buffer->type, from.shape, from.contract, Space::shared);
  const std::size_t index = tiles_.size() - 1;
  For loop = open_parallel(tile.shape, true);
  const Expr i = ir::variable(loop.index[0]), d = ir::variable(loop.index[1]);
  const bool transposed = random_.chance(50);
  fill_parallel(loop, tile.shape, [&] {
    const Expr column = transposed ? make(Op::sub, i32, {int32(columns_of_table - 1), d}) : d;
    const Value x = load_from({whole(from.buffer), from.contract, from.shape}, {i, column});
    emit(Store{{whole(tile.buffer), {i, d}}, make(Op::neg, x.e->held(), {x.e})});
  });
  tiles_[index].defined = true;
  return index;
}

// The sum, negative where a number is even.
void Generator::choose_signs(const TilePlace& sum, const TilePlace& numbers) {
  For loop = open_parallel(sum.shape, true);
  Access own{whole(sum.buffer), {ir::variable(loop.index[0]), ir::variable(loop.index[1])}};
  fill_parallel(loop, sum.shape, [&] {
    const Value number = number_in(numbers);
    const VariablePtr before = variable("x", f32, VariableKind::let, sum.contract);
    emit(Load{before, own});
    const Expr x = ir::variable(before), parity = make(Op::bit_and, i32, {number.e, int32(1)});
    const Expr is_odd = make(Op::ne, boolean, {parity, int32(0)});
    emit(Store{own, make(Op::select, f32, {is_odd, x, make(Op::neg, f32, {x})})});
  });
}

void Generator::look_up_and_multiply(const TilePlace& queries, const TilePlace& sum,
                                     const std::optional<std::size_t>& older) {
  const std::int64_t count = sum.shape[1];
  std::optional<std::size_t> numbers = older;
  for (int n = random_.pick({0, 1, 1, 2}); n > 0; --n) numbers = bring_numbers(count, numbers);
  if (random_.chance(20)) block_statement();
  std::size_t rows = bring_rows(count, numbers);
  const std::size_t raw = rows;
  if (random_.chance(30)) rows = convert_rows(raw);
  View first = whole(queries.buffer), columns = whole(tiles_[rows].buffer);
  if (random_.chance(30)) {
    const std::int64_t from = random_.pick({0, 8, 16, 32});
    for (View* window : {&first, &columns}) slice_range(*window, 1, int32(from), int32(from + 32));
  }
  swap_axes(columns, 0, 1);
  emit(Gemm{first, columns, whole(sum.buffer), false, {}});
  if (rows != raw && random_.chance(50)) {
    View others = whole(tiles_[raw].buffer);
    swap_axes(others, 0, 1);
    emit(Gemm{whole(queries.buffer), others, whole(sum.buffer), false, {}});
  }
  // The same tile along its rows, as keys that are values as well.
  if (count == columns_of_table && random_.chance(30))
    emit(Gemm{whole(queries.buffer), whole(tiles_[rows].buffer), whole(sum.buffer), false, {}});
  if (numbers && random_.chance(60)) choose_signs(sum, tiles_[*numbers]);
  if (random_.chance(20)) block_statement();
}

// A loop of such products, stored where the block may.
void Generator::looked_up_products() {
  const Nature terms = tensors_[tables_.rows].contract;
  const std::int64_t count = random_.pick({32, 64, 64}), most = random_.number(1, 3);
  if (!spend(most * tables_.height * count * columns_of_table / 4)) return;
  Nature sums = dyadic(2 * terms.step, terms.bound * terms.bound * 64 * 3 * 3);
  sums.loose_zero = true;
  const TilePlace queries =
      declare(tensors_[tables_.rows].buffer->type, {tables_.height, columns_of_table}, terms, Space::shared);
  emit(Copy{window_from(tables_.rows, within(value(i32, 1), 0, 9).e), whole(queries.buffer), nullptr});
  tiles_.back().defined = true;
  tiles_.back().writable = false;
  const TilePlace sum = declare(f32, {tables_.height, count}, sums, Space::fragment);
  emit(Fill{whole(sum.buffer), ir::constant(f32, 0)});
  tiles_.back().defined = true;
  tiles_.back().writable = false;
  std::optional<std::size_t> before;
  if (random_.chance(50)) before = bring_numbers(count, std::nullopt);
  const Value last = before && random_.chance(40) ? within(number_in(tiles_[*before]), 0, most)
                                                  : Value{int32(most), integers(most, most)};
  loop_of_steps(LoopKind::pipelined, "i", most, last.e, [&](const Expr&) {
    if (random_.chance(20)) emit(Break{value(boolean, 2).e});
    const auto step = [&] { look_up_and_multiply(queries, sum, before); };
    random_.chance(35) ? branch(step) : step();
  });
  store_sum(sum);
}

// Few blocks, in which a producer can be one of the roles.
void Generator::few_blocks(Grid& grid, Shape& extents) {
  extents.assign(extents.size(), 1);
  extents[0] = random_.between(1, most_blocks);
  for (std::size_t i = 0; i < extents.size(); ++i) grid.extents[i] = int32(extents[i]);
}

}  // namespace tegula::fuzz
