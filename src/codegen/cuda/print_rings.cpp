// Slots and barriers of rings, and what waits for them.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/build_schedule.hpp"
#include "passes/cuda/rows_ahead.hpp"

namespace tegula::codegen {

using namespace ir;

void CudaGridPrinter::declare_rings(const passes::Roles& roles) {
  roles_ = &roles;
  for (const passes::RingPlan& ring : roles.rings) {
    RingText text{names_.unique(ring.tiles[0]->name + "_ring"), memory_.allocate(16 * ring.depth, 16), {}};
    for (std::size_t i = 0; i < ring.tiles.size(); ++i) {
      std::int64_t bytes = 0, alignment = 1;
      std::string words;
      for (const BufferPtr& tile : ring.at(i)) {
        bytes = std::max(bytes, passes::slot_bytes(*tile));
        alignment = std::max(alignment, passes::slot_alignment(*tile));
        words += (words.empty() ? "" : ", in its place ") + words_of(*tile);
      }
      const std::int64_t begin =
          memory_.allocate(bytes * ring.depth, alignment, fmt::format("{}, {} slots", words, ring.depth));
      text.tiles.push_back({begin, bytes});
      ahead_bytes_ += bytes * (ring.relayed ? ring.depth - 1 : ring.depth);
    }
    rings_.push_back(std::move(text));
  }
  if (!roles.dynamic_tiles) return;
  RingText tiles{names_.unique("turns"), memory_.allocate(16 * passes::tile_slots, 16), {}};
  tiles.tiles.push_back({memory_.allocate(passes::tile_bytes * passes::tile_slots, 16), passes::tile_bytes});
  next_slot_ = memory_.allocate(4, 16);
  rings_.push_back(std::move(tiles));
}

int CudaGridPrinter::depth_of(std::size_t ring) const {
  return ring < roles_->rings.size() ? roles_->rings[ring].depth : passes::tile_slots;
}

// Rings, and the cursors that they share.
void CudaGridPrinter::print_rings(const std::vector<int>& cursors) {
  cursors_ = cursors;
  for (std::size_t r = 0; r < rings_.size(); ++r) {
    if (cursors[r] == static_cast<int>(r))
      out_.line(fmt::format("tg::Cursor<{}> {};", depth_of(r), cursor_name(static_cast<int>(r))));
    out_.line(fmt::format("const tg::Ring<{}> {}(shared_memory + {}, {});", depth_of(r), rings_[r].name,
                          rings_[r].barriers, cursor_name(static_cast<int>(r))));
  }
}

std::string CudaGridPrinter::cursor_name(int ring) const {
  return "at_" + ring_name(cursors_[static_cast<std::size_t>(ring)]);
}

// For slots that a block fills only once, ptxas does not see in the following loop that they are the same for
// all threads of a warp.
std::string CudaGridPrinter::slot_number(int ring) const {
  const std::string number = cursor_name(ring) + ".slot";
  const bool in_loop = roles_->rings[static_cast<std::size_t>(ring)].in_loop && in_loops_.contains(ring);
  const bool shown = in_loop || !is_consumer_;
  return shown ? number : fmt::format("tg::uniform({})", number);
}

// The slot of each tile of the ring that is in use from here on.
void CudaGridPrinter::name_slots(int ring) {
  const auto r = static_cast<std::size_t>(ring);
  if (r == roles_->rings.size()) return;  // the ring of tiles
  for (std::size_t i = 0; i < rings_[r].tiles.size(); ++i) {
    const auto& [begin, bytes] = rings_[r].tiles[i];
    const std::string slot =
        roles_->rings[r].depth == 1 ? "" : fmt::format(" + {} * {}", slot_number(ring), bytes);
    for (const BufferPtr& tile : roles_->rings[r].at(i)) {
      const TileOrder order =
          plan_.operands.contains(tile.get()) ? passes::swizzled_order(*tile) : TileOrder{};
      const std::string name = names_.unique(tile->name);
      out_.line(definition(name, fmt::format("{0}* const {1} = ({0}*)(shared_memory + {2}{3});",
                                             element_type(tile->type), name, begin, slot)));
      // What consumers write and read themselves, their own barriers order.
      const bool own = roles_->is_told(ring) && is_consumer_;
      shared_[tile.get()] = {name, order, {-1, own ? begin : 0, own ? begin + bytes : 0}};
    }
  }
}

// Where the first products of a step begin as soon as the step does, operands are there before it.
void CudaGridPrinter::carry_operands(int ring) {
  const auto r = static_cast<std::size_t>(ring);
  for (std::size_t i = 0; i < rings_[r].tiles.size(); ++i) {
    const auto& [begin, bytes] = rings_[r].tiles[i];
    for (const BufferPtr& tile : roles_->rings[r].at(i)) {
      if (!plan_.operands.contains(tile.get()) || tile->rank() != 2 || tile->type.bytes() > 2) continue;
      const std::string name = names_.unique(tile->name + "_operand");
      const std::string shape = fmt::format("{}, {}", tile->extent(0), passes::swizzled_order(*tile).columns);
      const int size = tile->type.bytes();
      out_.code();
      out_.line(fmt::format("tg::OperandOfSlots<{}, {}, {}> {}(shared_memory + {}, {});", shape, size, bytes,
                            name, begin, slot_number(ring)));
      carried_.push_back({tile.get(), name, size == 2 ? shape : fmt::format("{}, {}", shape, size)});
    }
  }
}

// The slot of the step before for the tile, which stands for one of a ring.
void CudaGridPrinter::name_slot_before(const BufferPtr& tile) {
  const Buffer* own = plan_.consumers.in_ring(tile.get());
  const int ring = roles_->ring_of(own);
  const auto r = static_cast<std::size_t>(ring);
  const auto& tiles = roles_->rings[r].with(own);
  const auto is_own = [&](const BufferPtr& x) { return x.get() == own; };
  const auto& [begin, bytes] =
      rings_[r]
          .tiles[static_cast<std::size_t>(std::find_if(tiles.begin(), tiles.end(), is_own) - tiles.begin())];
  const TileOrder order = plan_.operands.contains(own) ? passes::swizzled_order(*own) : TileOrder{};
  const std::string name = names_.unique(tile->name), slot = slot_number(ring);
  out_.code();
  out_.line(fmt::format("{0}* const {1} = ({0}*)(shared_memory + {2} + ({3} == 0 ? {4} : {3} - 1) * {5});",
                        element_type(tile->type), name, begin, slot, roles_->rings[r].depth - 1, bytes));
  shared_[tile.get()] = {name, order, {-1, 0, 0}};
}

void CudaGridPrinter::event(const schedule::WaitFull& n, const schedule::Event&) {
  if (n.place.shift == -1) return sync_line(fmt::format("tg::wait_full_last({});", ring_name(n.place.ring)));
  if (n.place.shift == 1) return sync_line(fmt::format("tg::wait_full_next({});", ring_name(n.place.ring)));
  sync_line(fmt::format("tg::wait_full({});", ring_name(n.place.ring)));
  // The producer has acquired its own.
  if (awaits_producer() || roles_->is_told(n.place.ring)) name_slots(n.place.ring);
}

void CudaGridPrinter::event(const schedule::Acquire& n, const schedule::Event&) {
  sync_line(fmt::format("tg::acquire({});", ring_name(n.place.ring)));
  name_slots(n.place.ring);
}

// The ring with a barrier whose address takes the registers in which the statement keeps what it has read.
std::string CudaGridPrinter::behind_rows(int ring, const Stmt& reader) {
  std::string values;
  for (const BufferPtr& rows : passes::kept_rows(reader)) {
    const FragmentTile& own = fragments_.at(rows.get());
    for (std::int64_t r = 0; r < own.layout.register_count(); ++r)
      values += fmt::format(", {}[{}]", own.name, r);
  }
  return fmt::format("tg::behind({}, none{})", ring_name(ring), values);
}

void CudaGridPrinter::event(const schedule::Arrive& n, const schedule::Event& e) {
  const bool of_tiles = n.place.ring < static_cast<int>(roles_->rings.size());
  if (n.side == schedule::Side::full && is_transposer_)
    return sync_line(fmt::format("tg::transposed({});", ring_name(n.place.ring)));
  if (n.side == schedule::Side::full && of_tiles &&
      roles_->is_brought_by_threads(roles_->rings[n.place.ring]))
    return sync_line(fmt::format("tg::filled({}, thread);", ring_name(n.place.ring)));
  if (roles_->is_told(n.place.ring) || roles_->is_relayed(n.place.ring))
    return sync_line(n.side == schedule::Side::full ? fmt::format("tg::tell({});", ring_name(n.place.ring))
                                                    : by_loader(fmt::format("tg::barrier_arrive({}.empty());",
                                                                            ring_name(n.place.ring))));
  if (n.side == schedule::Side::full)
    return sync_line(by_loader(fmt::format("tg::barrier_arrive({}.full());", ring_name(n.place.ring))));
  sync_line(fmt::format("tg::{}{}({});", n.place.shift == 0 ? "release" : "release_last",
                        n.whole_cluster ? "_in_both" : "",
                        n.behind.empty() ? ring_name(n.place.ring) : behind_rows(n.place.ring, e.stmt)));
}

void CudaGridPrinter::event(const schedule::Advance& n, const schedule::Event&) {
  const std::string cursor = cursor_name(n.ring);
  if (roles_) {
    sync_line(fmt::format("{}.advance();", cursor));
    for (const CarriedOperand& own : carried_)
      if (cursor_name(roles_->ring_of(own.tile)) == cursor)
        sync_line(fmt::format("{}.advance({});", own.name, cursor));
    return;
  }
  const int depth = rings_[static_cast<std::size_t>(n.ring)].depth;
  if (n.back) return sync_line(fmt::format("{0} = {0} == 0 ? {1} : {0} - 1;", cursor, depth - 1));
  sync_line(fmt::format("{0} = {0} + 1 == {1} ? 0 : {0} + 1;", cursor, depth));
}

void CudaGridPrinter::event(const schedule::Expect& n, const schedule::Event&) {
  sync_line(by_loader(fmt::format("tg::expect({}, {});", ring_name(n.place.ring), n.bytes)));
}

std::string CudaGridPrinter::registers_text(int count) const {
  const bool more = count > passes::register_shares(*roles_).launch;
  return fmt::format("tg::registers_{}<{}>();", more ? "up" : "down", count);
}

// In front of what only some warps do: the instruction is one of all four warps of a group.
std::string CudaGridPrinter::registers_of_producer() const {
  const int count = passes::register_shares(*roles_).producer;
  return count > 0 ? "    " + registers_text(count) + "\n" : "";
}

// All warps of the producer have the same, and say so once.
void CudaGridPrinter::event(const schedule::SetRegisters& n, const schedule::Event&) {
  if (is_transposer_ || (!is_consumer_ && some_load())) return;
  sync_line(registers_text(n.count));
}

}  // namespace tegula::codegen
