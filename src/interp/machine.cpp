#include "interp/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "tegula/error.hpp"

namespace tegula::interp {
namespace {

constexpr std::int64_t unbounded = std::int64_t{1} << 62;

std::uint64_t hash(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

Machine::Machine(const Program& program, const Binding& binding, const RunOptions& options)
    : program_(program),
      options_(options),
      host_(binding.values),
      registers_(program.registers),
      memories_(program.buffers.size()),
      resolved_(program.views.size()),
      scope_moments_(program.scopes, 1) {
  for (std::size_t i = 0; i < host_.size(); ++i) registers_[i] = cell_of(host_[i]);
  bind_tensors(binding);
}

void Machine::run() {
  for (const PreparedGrid& grid : program_.grids) run_grid(grid);
}

Permutation Machine::permutation(std::int64_t count) const {
  if (options_.order == 0 || count < 2) return {};
  if (options_.order == 1) return {count - 1, count - 1};
  const std::uint64_t random =
      hash(options_.order * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(clock_));
  Permutation result{1, static_cast<std::int64_t>((random >> 8) % static_cast<std::uint64_t>(count))};
  for (const std::int64_t prime : {1299709, 104729, 7919, 611953, 15485863}) {
    if (count % prime != 0) {
      result.factor = prime % count;
      break;
    }
  }
  return result;
}

void Machine::run_grid(const PreparedGrid& grid) {
  grid_ = grid.grid;
  std::vector<std::int64_t> extents;
  std::int64_t blocks = 1;
  for (const HostExpr& extent : grid.extents) {
    bool overflow = false;
    const ir::Value value = extent(host_, &overflow);
    if (value.invalid || overflow)
      fail("an extent of the grid cannot be computed for this call", grid.grid->at);
    extents.push_back(std::max<std::int64_t>(value.integer, 0));
    if (__builtin_mul_overflow(blocks, extents.back(), &blocks) || blocks > unbounded / 2) {
      fail("the grid has too many blocks; split the work", grid.grid->at);
    }
  }
  for (const std::uint32_t buffer : grid.accumulated) memories_[buffer].strict = true;
  grid_begin_ = tick();
  const Permutation order = permutation(blocks);
  __int128 next = order.start;
  open({&grid.grid->index, grid.index.data()});
  for (std::int64_t i = 0; i < blocks; ++i, next = (next + order.factor) % blocks) {
    auto remaining = static_cast<std::int64_t>(next);
    for (std::size_t d = 0; d < extents.size(); ++d) {
      registers_[grid.index[d]] = integer_cell(remaining % extents[d]);
      remaining /= extents[d];
    }
    now_.set(Level::blocks, {grid_begin_, tick()});
    begin_scope(grid.scope);
    tick();
    run_body(grid.body);
  }
  close();
  now_ = Now{};
  apply_contributions();
  for (const std::uint32_t buffer : grid.accumulated) memories_[buffer].strict = false;
}

Flow Machine::run_body(const Nodes& body) {
  count_steps(body.size());
  for (const auto& node : body) {
    if (const Flow flow = node->run(*this); flow != Flow::next) return flow;
  }
  return Flow::next;
}

void Machine::count_steps(std::size_t steps) {
  steps_ += static_cast<std::int64_t>(steps) + 1;
  if (options_.step_limit > 0 && steps_ > options_.step_limit) {
    fail(fmt::format("the kernel takes more than the {} steps that TEGULA_INTERPRETER_STEPS allows; look for "
                     "an endless loop, or raise the limit",
                     options_.step_limit),
         program_.signature->kernel().at);
  }
}

std::int64_t Machine::integer(Register r, const char* what, const Loc& at) {
  const Cell& cell = registers_[r];
  if (cell.cause != 0) fail_invalid(what, cell.cause, at);
  return cell.integer;
}

bool Machine::truth(Register r, const char* what, const Loc& at) { return integer(r, what, at) != 0; }

const ResolvedView& Machine::resolve(const PreparedView& view) {
  ResolvedView& resolved = resolved_[view.id];
  if (resolved.resolved < scope_moments_[view.scope]) resolve_now(view, resolved);
  return resolved;
}

void Machine::resolve_now(const PreparedView& view, ResolvedView& resolved) {
  execute(view.code);
  const Memory& memory = memories_[view.buffer];
  Shape shape = memory.shape, strides = memory.strides;
  if (view.reshaped) {
    shape.clear();
    for (const Register r : view.shape) shape.push_back(integer(r, "the shape of a view", view.at));
    strides = row_major_strides(shape);
  }
  resolved.base = memory.origin;
  resolved.empty = false;
  resolved.axes.fill({0, -unbounded, unbounded});
  for (std::size_t d = 0; d < view.dims.size(); ++d) {
    const PreparedView::Dim& dim = view.dims[d];
    const std::int64_t offset = integer(dim.offset, "the offset of a view", view.at);
    std::int64_t low = 0, high = shape[d];
    if (dim.clipped_low) low = std::max(low, integer(dim.low, "the start of a range", view.at));
    if (dim.clipped_high) high = std::min(high, integer(dim.high, "the end of a range", view.at));
    resolved.base += offset * strides[d];
    if (dim.axis < 0) {
      resolved.empty |= offset < low || offset >= high;
    } else {
      ResolvedView::Axis& axis = resolved.axes[static_cast<std::size_t>(dim.axis)];
      axis.step += strides[d];
      axis.low = std::max(axis.low, low - offset);
      axis.high = std::min(axis.high, high - offset);
    }
  }
  resolved.resolved = ++clock_;
}

std::int64_t Machine::locate(const PreparedAccess& access) {
  const ResolvedView& view = resolve(*access.view);
  std::int64_t position = view.base;
  bool inside = !view.empty;
  for (std::size_t axis = 0; axis < access.index.size(); ++axis) {
    const Cell& cell = registers_[access.index[axis]];
    if (cell.cause != 0) fail_invalid("an index", cell.cause, access.view->at);
    inside &= cell.integer >= view.axes[axis].low && cell.integer < view.axes[axis].high;
    position += cell.integer * view.axes[axis].step;
  }
  return inside ? position : outside;
}

void Machine::declare(std::uint32_t tile) {
  Memory& memory = memories_[tile];
  std::fill_n(memory.state, memory.elements, undefined);
  memory.born = tick();  // what was done to earlier tiles of this place is not done to this one
}

void Machine::check_turns(const std::vector<Contribution>& sorted) const {
  std::map<std::pair<std::uint32_t, std::int64_t>, std::int64_t> counts;
  for (const Contribution& c : sorted) {
    for (std::size_t e = 0; c.consecutive && e < c.positions.size(); ++e) {
      const std::int64_t turn = counts[{c.buffer, c.positions[e]}]++;
      if (turn == c.order) continue;
      fail(fmt::format(
               "contribution {} to {} has the order {}; consecutive orders of an element are 0, 1, 2, … "
               "({})",
               turn, element_text(memories_[c.buffer], c.positions[e]), c.order, c.place),
           c.node->at());
    }
  }
}

void Machine::apply_contributions() {
  std::vector<Contribution> all = std::move(contributions_);
  contributions_.clear();
  std::stable_sort(all.begin(), all.end(), [](const Contribution& a, const Contribution& b) {
    return std::pair(a.buffer, a.order) < std::pair(b.buffer, b.order);
  });
  check_turns(all);
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    std::unordered_set<std::int64_t> positions;
    while (end < all.size() && all[end].buffer == all[begin].buffer && all[end].order == all[begin].order)
      ++end;
    for (std::size_t i = begin; i < end; ++i) {
      const Contribution& c = all[i];
      Memory& memory = memories_[c.buffer];
      for (std::size_t e = 0; e < c.positions.size(); ++e) {
        if (end - begin > 1 && !positions.insert(c.positions[e]).second) {
          fail(fmt::format(
                   "two contributions with the order {} go to {}; give each its own order, so that the "
                   "sum is defined ({})",
                   c.order, element_text(memory, c.positions[e]), c.place),
               c.node->at());
        }
        if (c.overwrites && c.order == 0)
          overwrite(memory, c.positions[e], c.values[e], *c.node);
        else
          combine(c.op, memory, c.positions[e], c.values[e], *c.node);
      }
    }
  }
}

}  // namespace tegula::interp
