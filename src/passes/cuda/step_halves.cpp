#include "passes/cuda/step_halves.hpp"

#include <algorithm>
#include <functional>

#include "ir/effects.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/operand_place.hpp"
#include "passes/cuda/own_columns.hpp"
#include "passes/cuda/plan_rows.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool touches(const Stmt& s, const BufferPtr& tile) {
  const Effects e = all_effects(s);
  return std::any_of(e.regions.begin(), e.regions.end(),
                     [&](const Region& r) { return r.view->buffer == tile; });
}

BufferPtr half_of(const Buffer& tile, const char* which, std::int64_t columns) {
  const std::vector<Expr> shape{tile.shape[0], constant(tile.shape[1]->held(), columns, tile.at)};
  return new_tile((tile.name + which).c_str(), tile.space, tile.type, shape, tile.at);
}

}  // namespace

StepHalves::StepHalves(const StepShares& step, const Roles& roles, VariablePtr group)
    : tile_(step.product().b.buffer), group_(std::move(group)), columns_(tile_->extent(1) / dealt_groups) {
  int fills = 0;
  for_each_stmt(roles.producer, [&](const Stmt& s) {
    const auto found = roles.fills.find(s.get());
    if (found != roles.fills.end() && found->second == tile_) fill_ = s, ++fills;
  });
  if (fills != 1) fill_ = nullptr;
  own_ = half_of(*tile_, "_own", columns_);
  other_ = half_of(*tile_, "_other", columns_);
}

// Rows of a tensor come as they are, and each half fills blocks of columns alone.
bool StepHalves::is_divisible(const Roles& roles) const {
  if (!fill_) return false;
  const layout::TileOrder all = swizzled_order(*tile_), part = swizzled_order(*own_);
  if (!part.is_swizzled() || part.columns != all.columns || columns_ % part.columns != 0) return false;
  const RingPlan& ring = roles.rings[static_cast<std::size_t>(roles.ring_of(tile_.get()))];
  if (ring.by_rows) {
    const auto rows = plan_rows(fill_);
    return rows && is_whole(rows->store->to.view) && !rows->may_be_cut;
  }
  const auto* copy = as<Copy>(fill_);
  const auto plan = roles.copies.find(fill_.get());
  if (!copy || !is_whole(copy->to) || plan == roles.copies.end() || plan->second.is_clipped) return false;
  return copy->from.dims.back().axis == 1;
}

// The columns of an operand along k that belong to the half: all of those of the half itself.
std::optional<View> StepHalves::half(const View& operand, int along_k, bool of_own) const {
  const auto at = std::find_if(operand.dims.begin(), operand.dims.end(),
                               [&](const ViewDim& dim) { return dim.axis == along_k; });
  if (at == operand.dims.end() || !is_constant(at->offset, 0) || at->low || at->high) return std::nullopt;
  const auto d = static_cast<std::size_t>(at - operand.dims.begin());
  if (!is_constant(operand.shape[d], 2 * columns_)) return std::nullopt;
  if (operand.buffer != tile_) {
    const Expr group = variable(group_);
    const Expr which = of_own ? group : make(Op::sub, i32, {int32(1), group}, {});
    return part_of(operand, along_k, {which, dealt_groups});
  }
  if (!is_own_shape(operand) || d != 1) return std::nullopt;
  View result = operand;
  result.buffer = of_own ? own_ : other_;
  result.shape = result.buffer->shape;
  result.extents[static_cast<std::size_t>(along_k)] = int32(columns_);
  return result;
}

std::optional<Gemm> StepHalves::product(const Gemm& whole, bool of_own) const {
  const auto a = half(whole.a, 1, of_own), b = half(whole.b, 0, of_own);
  if (!a || !b || whole.metadata || whole.c.buffer == tile_) return std::nullopt;
  if (whole.a.buffer->space != Space::shared || whole.b.buffer->space != Space::shared) return std::nullopt;
  Gemm result = whole;
  result.a = *a, result.b = *b;
  result.overwrite = whole.overwrite && of_own;
  return result;
}

bool StepHalves::divide_work(const StepShares& step, const CudaTarget& target) {
  for (const Stmt& s : step.own) {
    if (!touches(s, tile_)) {
      work_.push_back(s);
      continue;
    }
    const auto* gemm = as<Gemm>(s);
    for (const bool of_own : {true, false}) {
      const auto part = gemm ? product(*gemm, of_own) : std::nullopt;
      if (!part) return false;
      const GemmPlan plan = plan_gemm(*part, threads_of_group, target);
      if (plan.instruction != GemmInstruction::wgmma || needs_promotion(*part, plan)) return false;
      work_.push_back(statement(*part, s->at));
    }
  }
  return !touches(step.made, tile_);
}

std::optional<StepHalves> StepHalves::of(const StepShares& step, const Roles& roles, VariablePtr group,
                                         const CudaTarget& target) {
  const View& operand = step.product().b;
  if (!is_whole(operand) || operand.rank() != 2 || operand.extent(1) % dealt_groups != 0) return std::nullopt;
  StepHalves result(step, roles, std::move(group));
  if (!result.is_divisible(roles) || !result.divide_work(step, target)) return std::nullopt;
  return result;
}

Stmt StepHalves::fill(bool of_own, const Expr& first) const {
  const BufferPtr& tile = of_own ? own_ : other_;
  const auto moved = [&](ViewDim& columns) {
    const DType type = columns.offset->held();
    const Expr more = as_stored(first, type);
    columns.offset = simplify(make(Op::add, type, {columns.offset, more}, fill_->at), Facts());
  };
  if (const auto* copy = as<Copy>(fill_)) {
    Copy half = *copy;
    half.to = ir::whole(tile);
    moved(half.from.dims.back());
    half.from.extents[1] = half.to.extents[1];
    return statement(std::move(half), fill_->at);
  }
  const Stmt copied = fresh_copy({fill_}).front();
  const RowCopy rows = *plan_rows(copied);
  For half = *as<For>(copied);
  half.end.back() = constant(half.end.back()->held(), columns_, fill_->at);
  Load load = *rows.load;
  moved(load.from.view.dims[rows.dim]);
  half.body[rows.lookups] = statement(std::move(load), fill_->at);
  Store store = *rows.store;
  store.to.view = ir::whole(tile);
  half.body.back() = statement(std::move(store), fill_->at);
  return statement(std::move(half), fill_->at);
}

// Steps are dealt in turn, so that the number of the step's group is that of the step modulo two.
Body StepHalves::fills(const For& loop, Roles& roles) const {
  const DType type = loop.begin[0]->held();
  const auto op = [&](Op op, const Expr& a, const Expr& b) { return make(op, type, {a, b}, fill_->at); };
  const auto number = [&](std::int64_t n) { return constant(type, n, fill_->at); };
  const Expr step = op(Op::sub, variable(loop.index[0], fill_->at), loop.begin[0]);
  const Expr group = op(Op::floormod, step, number(dealt_groups));
  const auto plan = roles.copies.find(fill_.get());
  Body result;
  for (const bool of_own : {true, false}) {
    const Expr which = of_own ? group : op(Op::sub, number(1), group);
    result.push_back(fill(of_own, op(Op::mul, which, number(columns_))));
    roles.fills.emplace(result.back().get(), of_own ? own_ : other_);
    if (plan != roles.copies.end()) roles.copies.emplace(result.back().get(), TensorCopy(plan->second));
  }
  return result;
}

void StepHalves::divide(Roles& roles) const {
  const auto ring = roles.rings.begin() + roles.ring_of(tile_.get());
  RingPlan first = *ring;
  first.by_one_group = true;
  first.tiles = {own_};
  ring->by_one_group = true;
  std::replace(ring->tiles.begin(), ring->tiles.end(), tile_, other_);
  roles.rings.insert(ring, std::move(first));
  const For* loop = nullptr;
  const std::function<void(const Body&, const For*)> find = [&](const Body& body, const For* around) {
    for (const Stmt& s : body) {
      if (s == fill_) loop = around;
      const auto* own = as<For>(s);
      for_each_body(
          s, [&](const Body& inner) { find(inner, own && own->kind == LoopKind::pipelined ? own : around); });
    }
  };
  find(roles.producer, nullptr);
  roles.producer = map_body(roles.producer, [&](const Stmt& s) -> Body {
    const auto* declared = as<Declare>(s);
    if (declared && declared->tile == tile_)
      return {statement(Declare{own_}, s->at), statement(Declare{other_}, s->at)};
    return s == fill_ ? fills(*loop, roles) : Body{s};
  });
  roles.fills.erase(fill_.get());
  roles.copies.erase(fill_.get());
}

}  // namespace tegula::passes
