// Random loops, branches and ways out of them, of blocks and inside `parallel`.
#include <algorithm>

#include "fuzz/generator.hpp"

namespace tegula::fuzz {

using namespace ir;

void Generator::branch(const std::function<void()>& inside) {
  const Value condition = value(boolean, 2);
  If node{condition.e, {}, {}};
  node.then = maybe(inside);
  if (random_.chance(50)) node.otherwise = maybe(inside);
  emit(std::move(node));
}

// Rows of a fragment, in runs of which each has a condition. Where it is false, the rows keep what they have.
void Generator::branch_of_rows() {
  std::vector<std::pair<std::size_t, std::int64_t>> fitting;
  for (std::size_t i = 0; i < tiles_.size(); ++i) {
    const TilePlace& tile = tiles_[i];
    const std::size_t rank = tile.shape.size();
    if (!tile.defined || !tile.writable || rank < 1 || rank > 3 || tile.buffer->space != Space::fragment)
      continue;
    for (const std::int64_t runs : {1, 2, 3, 4})
      if (tile.shape[0] > 0 && tile.shape[0] % runs == 0) fitting.emplace_back(i, runs);
  }
  if (fitting.empty()) return;
  const auto [index, runs] = random_.pick_from(fitting);
  const TilePlace tile = tiles_[index];
  if (!spend(4 * product_of(tile.shape))) return;
  If node;
  for (std::int64_t run = 0; run < runs; ++run) {
    node.of_rows.push_back(value(boolean, 1).e);
    node.condition =
        run == 0 ? node.of_rows[0] : make(Op::logical_or, boolean, {node.condition, node.of_rows.back()});
  }
  node.then = maybe([&] { change_rows(tile, node.of_rows); });
  emit(std::move(node));
}

void Generator::change_rows(const TilePlace& tile, const std::vector<Expr>& of_rows) {
  For loop = open_parallel(tile.shape, true);
  Access own{whole(tile.buffer), {}};
  for (const VariablePtr& i : loop.index) own.index.push_back(ir::variable(i));
  const std::int64_t rows = tile.shape[0] / std::ssize(of_rows);
  Expr concerned = of_rows.back();
  for (std::size_t run = of_rows.size() - 1; run-- > 0;) {
    const Expr before =
        make(Op::lt, boolean, {own.index[0], int32(rows * (static_cast<std::int64_t>(run) + 1))});
    concerned = make(Op::select, boolean, {before, of_rows[run], concerned});
  }
  fill_parallel(loop, tile.shape, [&] {
    const Value next = matching(tile.buffer->type, tile.contract, 3);
    const VariablePtr kept = variable("x", compute_type(tile.buffer->type), VariableKind::let, tile.contract);
    emit(Load{kept, own});
    emit(Store{own, make(Op::select, next.e->held(), {concerned, next.e, ir::variable(kept)})});
  });
}

// Half-open bounds of a loop with few iterations: constants, or values that only the run knows.
Generator::Range Generator::random_range(bool is_constant) {
  const auto number = [](std::int64_t n) { return Value{int32(n), integers(n, n)}; };
  const Value begin = random_.chance(75) ? number(random_.pick({0, 0, 0, 1, -2}))
                      : is_constant      ? number(random_.number(-3, 3))
                                         : within(value(i32, 1), 0, 2);
  const std::int64_t trips = random_.pick({0, 1, 1, 2, 3, 4});
  if (is_constant || random_.chance(50)) return {begin, number(begin.nature.low + trips)};
  const Value end =
      within(value(i32, 1), begin.nature.low - 1, begin.nature.low + std::max<std::int64_t>(trips, 1));
  return {begin, end};
}

void Generator::loop(bool of_elements) {
  LoopKind kind = random_.pick({LoopKind::serial, LoopKind::serial, LoopKind::unrolled, LoopKind::pipelined});
  if (of_elements && kind == LoopKind::pipelined) kind = LoopKind::serial;
  Range range = random_range(kind == LoopKind::unrolled);
  const bool brings = kind == LoopKind::pipelined && !in_group_ && random_.chance(70);
  if (brings && random_.chance(50)) {
    const std::int64_t steps = random_.number(2, 9);
    range = {{int32(0), integers(0, 0)}, {int32(steps), integers(steps, steps)}};
  }
  const std::int64_t low = range.begin.nature.low, high = std::max(low, range.end.nature.high - 1);
  const Nature nature = integers(low, high);
  For node{kind, {variable("i", i32, VariableKind::index, nature)}, {range.begin.e}, {range.end.e}, 0, {}};
  if (kind == LoopKind::pipelined) node.stages = random_.number(0, 4);
  inside_loop(range.end.nature.high - low, [&] {
    node.body = maybe([&] {
      scalars_.push_back({node.index[0], nature});
      turn_digits_.push_back(value_of(node.index[0]));
      if (brings)
        for (int n = random_.number(1, 2); n > 0; --n) bring_tile();
      of_elements ? element_statements(random_.number(1, 3)) : block_statements(random_.number(1, 4));
      turn_digits_.pop_back();
    });
  });
  emit(std::move(node));
}

// Counts how often the contents run, and makes the loop the one that `break` leaves.
void Generator::inside_loop(std::int64_t most, const std::function<void()>& f) {
  const std::int64_t times = times_;
  times_ *= std::max<std::int64_t>(most, 1);
  const bool outer = std::exchange(in_loop_, true);
  f();
  in_loop_ = outer;
  times_ = times;
}

void Generator::loop_of_steps(LoopKind kind, const char* name, std::int64_t most, const Expr& last,
                              const std::function<void(const Expr& number)>& step) {
  const Nature turns = integers(0, most - 1);
  const int stages = kind == LoopKind::pipelined ? random_.number(0, 3) : 0;
  For loop{kind, {variable(name, i32, VariableKind::index, turns)}, {int32(0)}, {last}, stages, {}};
  const bool known = std::exchange(turns_known_, false);
  inside_loop(most, [&] {
    loop.body = maybe([&] {
      scalars_.push_back({loop.index[0], turns});
      step(ir::variable(loop.index[0]));
    });
  });
  turns_known_ = known;
  emit(std::move(loop));
}

void Generator::while_loop(bool of_elements) {
  const std::int64_t most = random_.number(0, 3);
  const VariablePtr count = variable("count", i32, VariableKind::mutable_, integers(0, 4));
  emit(DeclareVar{count, int32(0)});
  While node;
  const std::size_t scalars = scalars_.size();
  Body* const outer = std::exchange(out_, &node.test);
  const VariablePtr now = variable("n", i32, VariableKind::let, integers(0, 4));
  emit(Let{now, ir::variable(count)});
  scalars_.push_back({now, integers(0, 4)});
  node.condition = make(Op::lt, boolean, {ir::variable(now), int32(most)});
  if (random_.chance(40))
    node.condition = make(Op::logical_and, boolean, {node.condition, value(boolean, 1).e});
  out_ = outer;
  scalars_.resize(scalars);
  inside_loop(most, [&] {
    const bool known = std::exchange(turns_known_, false);
    node.body = maybe([&] {
      const VariablePtr before = variable("n", i32, VariableKind::let, integers(0, 3));
      emit(Let{before, ir::variable(count)});
      emit(Assign{count, make(Op::add, i32, {ir::variable(before), int32(1)})});
      scalars_.push_back({before, integers(0, 3)});
      of_elements ? element_statements(2) : block_statements(random_.number(1, 3));
    });
    turns_known_ = known;
  });
  emit(std::move(node));
}

void Generator::leave() {
  const Value condition = value(boolean, 2);
  if (in_loop_ && random_.chance(80)) {
    emit(Break{condition.e});
  } else if (may_exit_ && !in_parallel_ && !in_group_) {
    emit(Exit{condition.e});
  }
}

}  // namespace tegula::fuzz
