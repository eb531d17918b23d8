#include "passes/cuda/exchange_registers.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/element_bits.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/fragment_axes.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

using BitSet = std::set<int>;

constexpr std::int64_t computed_neighbours = 8;  // of 16 bits make up the widest piece

// A statement of the body that uses the fragment, and the bits that it needs in registers.
struct TileUse {
  std::size_t at;
  BitSet needed;
};
struct TileRun {
  std::size_t first;  // statement
  BitSet registers;
};

// What a loop over elements needs of the fragment; nothing if it does not spell bits.
std::optional<BitSet> needed_bits(const For& loop, const BufferPtr& tile) {
  std::optional<ElementBits> common;
  bool known = true;
  for_each_stmt(loop.body, [&](const Stmt& s) {
    const Access* access = fragment_access(s);
    if (!access || access->view.buffer != tile) return;
    auto own = element_bits(loop, *access);
    known &= own.has_value();
    if (!own) return;
    if (!common) common = own;
    for (std::size_t i = 0; i < own->size(); ++i) {
      const bool constant = (*own)[i].axis < 0 && (*common)[i].axis < 0;
      known &= constant || (*own)[i] == (*common)[i];
    }
  });
  if (!known || !common) return std::nullopt;
  BitSet result;
  for (std::size_t i = 0; i < common->size(); ++i)
    if ((*common)[i].axis < 0) result.insert(static_cast<int>(i));
  return result;
}

// How many elements of memory that the loop touches make 16 bytes.
std::int64_t vector_of(const For& loop) {
  std::int64_t result = 1;
  for_each_stmt(loop.body, [&](const Stmt& s) {
    for_each_view(s, [&](const View& view) {
      if (view.buffer->space != Space::fragment && !view.buffer->shape.empty())
        result = std::max<std::int64_t>(result, 16 / view.buffer->type.bytes());
    });
  });
  return result;
}

class Exchange {
 public:
  Exchange(const Grid& grid, HeldFragments& held) : threads_(grid.hints.threads), held_(held) {}

  Body body(const Body& statements) {
    Body result;
    for (const Stmt& s : statements) {
      const auto* loop = as<For>(s);
      const bool has_threads = !loop || (loop->kind != LoopKind::parallel && loop->kind != LoopKind::warps &&
                                         loop->kind != LoopKind::warp_groups);
      Mapping mapping;
      mapping.body = [&](const Body& inner) { return body(inner); };
      result.push_back(has_threads ? map(s, mapping) : s);
    }
    Body tiles;
    for (const Stmt& s : result)
      if (const auto* n = as<Declare>(s); n && n->tile->space == Space::fragment) tiles.push_back(s);
    for (const Stmt& s : tiles) divide(as<Declare>(s)->tile, result);
    return result;
  }

 private:
  std::optional<std::vector<TileUse>> uses_of(const BufferPtr& tile, const Body& statements,
                                              std::int64_t& vector) const;
  BitSet first_registers(const BufferPtr& tile, const std::vector<TileUse>& uses, std::int64_t vector) const;
  std::vector<TileRun> runs_of(const BufferPtr& tile, const std::vector<TileUse>& uses,
                               std::int64_t vector) const;
  void divide(const BufferPtr& tile, Body& statements);
  layout::Layout layout_for(const BufferPtr& tile, const BitSet& registers) const;
  int registers_of(const BufferPtr& tile) const { return log2_of(tile->elements() / threads_); }

  const int threads_;
  HeldFragments& held_;
};

// Nothing where a statement uses the fragment in another way, or none needs certain bits.
std::optional<std::vector<TileUse>> Exchange::uses_of(const BufferPtr& tile, const Body& statements,
                                                      std::int64_t& vector) const {
  std::vector<TileUse> result;
  bool any = false;
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const Effects e = all_effects(statements[i]);
    if (as<Declare>(statements[i]) || (!e.reads(tile) && !e.writes(tile))) continue;
    const auto* loop = as<For>(statements[i]);
    const auto* reduce = as<Reduce>(statements[i]);
    TileUse own{i, {}};
    if (loop && loop->kind == LoopKind::parallel) {
      auto needed = needed_bits(*loop, tile);
      if (!needed) return std::nullopt;
      own.needed = std::move(*needed);
      if (result.empty()) vector = vector_of(*loop);
    } else if (!reduce || reduce->to.buffer == tile || !is_whole(reduce->from)) {
      return std::nullopt;
    }
    any |= !own.needed.empty();
    result.push_back(std::move(own));
  }
  return any ? std::optional(std::move(result)) : std::nullopt;
}

// What the uses from this one on need, as many of them as there is room for.
BitSet needed_from(const std::vector<TileUse>& uses, std::size_t first, int room) {
  BitSet result;
  for (std::size_t i = first; i < uses.size(); ++i) {
    BitSet more = result;
    more.insert(uses[i].needed.begin(), uses[i].needed.end());
    if (static_cast<int>(more.size()) > room) break;
    result = std::move(more);
  }
  return result;
}

// What memory gives side by side. A fragment that is computed from others has what its own uses need instead,
// so that it need not move, and neighbours for whichever of the others comes from memory.
BitSet Exchange::first_registers(const BufferPtr& tile, const std::vector<TileUse>& uses,
                                 std::int64_t vector) const {
  const int all = log2_of(tile->elements()), room = registers_of(tile);
  BitSet result;
  if (vector == 1) result = needed_from(uses, 0, room), vector = computed_neighbours;
  for (int bit = 0; bit < log2_of(vector) && static_cast<int>(result.size()) < room; ++bit)
    result.insert(bit);
  for (int bit = all - 1; static_cast<int>(result.size()) < room; --bit) result.insert(bit);
  return result;
}

// Each run but the first takes as many uses as its registers serve.
std::vector<TileRun> Exchange::runs_of(const BufferPtr& tile, const std::vector<TileUse>& uses,
                                       std::int64_t vector) const {
  const int room = registers_of(tile);
  std::vector<TileRun> result{{uses[0].at, first_registers(tile, uses, vector)}};
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const BitSet& now = result.back().registers;
    if (std::includes(now.begin(), now.end(), uses[i].needed.begin(), uses[i].needed.end())) continue;
    BitSet registers = needed_from(uses, i, room);
    if (registers.empty()) return {};
    for (int bit = 0; static_cast<int>(registers.size()) < room; ++bit) registers.insert(bit);
    result.push_back({uses[i].at, std::move(registers)});
  }
  return result;
}

// The other bits are those of the threads: a warp has neighbours.
layout::Layout Exchange::layout_for(const BufferPtr& tile, const BitSet& registers) const {
  BitLayout bits;
  for (int bit = 0; bit < log2_of(tile->elements()); ++bit)
    (registers.contains(bit) ? bits.registers : bits.threads).push_back(bit);
  layout::Coordinates shape;
  for (int d = 0; d < static_cast<int>(tile->shape.size()); ++d) shape.push_back(tile->extent(d));
  return layout_of(shape, bits);
}

void Exchange::divide(const BufferPtr& tile, Body& statements) {
  for (int d = 0; d < static_cast<int>(tile->shape.size()); ++d)
    if (!is_power_of_two(tile->extent(d))) return;
  if (tile->type.bytes() != 4 || !is_power_of_two(threads_) || tile->elements() < 2 * threads_) return;
  std::int64_t vector = 1;
  const auto uses = uses_of(tile, statements, vector);
  if (!uses) return;
  const std::vector<TileRun> runs = runs_of(tile, *uses, vector);
  if (runs.empty()) return;
  held_.emplace(tile.get(), layout_for(tile, runs[0].registers));
  Body result;
  BufferPtr now = tile;
  std::size_t run = 1;
  for (std::size_t i = 0; i < statements.size(); ++i) {
    if (run < runs.size() && runs[run].first == i) {
      const Loc& at = statements[i]->at;
      const BufferPtr next = new_tile(tile->name.c_str(), Space::fragment, tile->type, tile->shape, at);
      held_.emplace(next.get(), layout_for(tile, runs[run++].registers));
      result.push_back(statement(Declare{next}, at));
      for (const Stmt& s : over_view(whole(next), at, [&](const auto&index, const Access&to) {
             const VariablePtr x = new_variable("x", compute_type(tile->type), VariableKind::let, at);
             return Body{statement(Load{x, {whole(now), index}}, at),
                         statement(Store{to, variable(x, at)}, at)};
           }))
        result.push_back(s);
      now = next;
    }
    result.push_back(now == tile ? statements[i] : rename_buffers({statements[i]}, {{tile, now}})[0]);
  }
  statements = std::move(result);
}

}  // namespace

Body exchange_registers(const Grid& grid, HeldFragments& held) {
  bool products = false;
  for_each_stmt(grid.body, [&](const Stmt& s) { products |= as<Gemm>(s) != nullptr; });
  return products ? grid.body : Exchange(grid, held).body(grid.body);
}

}  // namespace tegula::passes
