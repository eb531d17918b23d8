// Declarations, copies, reductions and products of tiles.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/run_copies.hpp"

namespace tegula::codegen {

using namespace ir;

std::string words_of(const Buffer& tile) {
  std::string extents;
  for (const Expr& extent : tile.shape)
    extents += fmt::format("{}{}", extents.empty() ? "" : ", ", constant_value(extent));
  return fmt::format("{}[{}], {}", tile.type.name(), extents, short_location(tile.at));
}

void CudaGridPrinter::declare_fragment(const std::string& name, DType type, const Layout& layout,
                                       const Loc& at) {
  out_.line(fmt::format("{} {}[{}];", scalar_type(type), name, layout.register_count()), at);
}

void CudaGridPrinter::declare_shared(const BufferPtr& tile, const Loc& at) {
  if (plan_.consumers.before.contains(tile.get())) return name_slot_before(tile);
  if (const int ring = roles_ ? roles_->ring_of(tile.get()) : -1; ring >= 0 && roles_->is_relayed(ring)) {
    out_.code();
    return name_slots(ring);
  }
  refuse_to_spread(fmt::format("tile {} is in shared memory", passes::named(*tile)),
                   "use a Fragment, or load the tile in a `pipelined` loop that only reads it");
  const TileOrder order = plan_.operands.contains(tile.get()) ? passes::swizzled_order(*tile) : TileOrder{};
  const std::int64_t alignment = order.is_swizzled() ? 1024 : 128;
  // Behind the last piece of its rows there is memory that is read with it.
  const std::int64_t behind = plan_.copy_rings.anywhere.contains(tile.get()) ? passes::bytes_beside_run : 0,
                     all_bytes = tile->elements() * tile->type.bytes() + behind,
                     each = (all_bytes + alignment - 1) / alignment * alignment;
  const auto alternation = alternating_.find(tile.get());
  const bool alternates = alternation != alternating_.end();
  const std::int64_t all = each * team_.count * (alternates ? 2 : 1);
  const std::int64_t begin = memory_.allocate(all, alignment, words_of(*tile));
  if (alternates) ahead_bytes_ += all / 2;
  const std::string name = names_.unique(tile->name);
  // Of messages the schedule has the barriers.
  shared_[tile.get()] = {name, order, is_message(*tile) ? Memory{} : Memory{-1, begin, begin + all},
                         alternates};
  out_.code();
  std::string offset = std::to_string(begin);
  if (!team_.slot.empty()) offset += fmt::format(" + {} * {}", team_.slot, each);
  if (alternates) {
    out_.alternate(begin);
    offset += fmt::format(" + {}.slot % 2 * {}", cursor_name(alternation->second), each);
  }
  out_.line(
      fmt::format("{0}* const {1} = ({0}*)(shared_memory + {2});", element_type(tile->type), name, offset),
      at);
}

void CudaGridPrinter::clear_registers(const FragmentTile& tile) {
  out_.line("#pragma unroll");
  out_.line(fmt::format("for (int r = 0; r < {}; ++r) {}[r] = 0;",
                        tile.layout.register_count() / (tile.is_packed ? 2 : 1), tile.name));
}

}  // namespace tegula::codegen
