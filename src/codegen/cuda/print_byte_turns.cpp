// 8-bit elements to tiles of the other order: threads turn four times four bytes of a tensor in registers,
// warps transpose what the copy engine has brought.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/plan_byte_turns.hpp"

namespace tegula::codegen {

using namespace ir;
using passes::turned_columns, passes::turned_rows;

namespace {

// Warps that turn such a tile at once.
std::int64_t warps_of_turn(const For& n) {
  return constant_value(n.end[0]) / passes::rows_of_warp *
         ((constant_value(n.end[1]) + passes::columns_of_warp - 1) / passes::columns_of_warp);
}

std::string pack_type(const passes::ByteTurn& plan) {
  return fmt::format("tg::Pack<{}, {}>", element_type(plan.load->from.view.buffer->type), turned_columns);
}

// Columns that no step fills, of tiles whose rows eight threads share.
bool has_zero_columns(const passes::Transposition& n) {
  return !n.widened.empty() && n.columns < n.to->extent(1) && n.to->extent(0) % 8 == 0;
}

}  // namespace

// The thread's pieces, as many as its number gives.
void RowPrinter::each_turned_piece(const passes::ByteTurn& plan, const PrintPiece& print) {
  const For& n = *plan.loop;
  const std::int64_t columns = constant_value(n.end[1]), threads = 32 * warps_of_turn(n);
  const std::string r = names_.unique("r"), piece = names_.unique("piece");
  if (threads > team_.threads) out_.line("#pragma unroll 2");
  out_.open(
      fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{", r, team_.thread, threads, team_.threads));
  out_.line(fmt::format("const tg::TurnedPiece {} = tg::turned_piece<{}>({});", piece,
                        constant_value(n.end[0]), r));
  const bool divides = columns % passes::columns_of_warp == 0;
  if (!divides) out_.open(fmt::format("if ({}.column < {}) {{", piece, columns));
  print(piece);
  if (!divides) out_.close();
  out_.close();
}

// Where pieces are 16 aligned bytes of a row, each inside the tensor or outside, and where all are inside.
RowPrinter::TurnConditions RowPrinter::conditions_of_turn(const passes::ByteTurn& plan) {
  const For& n = *plan.loop;
  const Access& from = plan.load->from;
  const std::size_t last = from.view.dims.size() - 1;
  const ViewDim& row = from.view.dims[last];
  const Expr& extent = from.view.shape[last];
  std::vector<std::size_t> dims = dims_known_before(n, from);
  TurnConditions result;
  add_conditions(n, from, turned_columns, result.pieces, dims);
  if (row.low || row.high || (is_constant(extent) && constant_value(extent) % turned_columns != 0))
    add_corner_limits(n, from, {last}, result.pieces), std::erase(dims, last);
  else if (!is_constant(extent))
    result.pieces.push_back(fmt::format("{} % {} == 0", value(extent), turned_columns));
  add_corner_limits(n, from, dims, result.all);
  return result;
}

// Pieces outside are zeros.
void RowPrinter::load_turned(const passes::ByteTurn& plan, const std::string& to, const std::string& piece,
                             bool all) {
  const For& n = *plan.loop;
  const auto index = [&](std::size_t d, const std::string& text) {
    out_.line(fmt::format("const {} {} = {}.{};", scalar_type(n.index[d]->type), name_variable(n.index[d]),
                          piece, text));
  };
  loop_ = ElementLoop{&n, nullptr, ""};
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int q = 0; q < {}; ++q) {{", turned_rows));
  index(0, "row + q");
  index(1, "column");
  if (all) unlimited_ = dims_known_before(n, plan.load->from);
  const GuardedAddress from = address(plan.load->from);
  unlimited_.clear();
  const std::string pack = fmt::format("tg::load_pack<{}>({})", turned_columns, from.pointer);
  out_.line(from.guard.empty()
                ? fmt::format("{}[q] = {};", to, pack)
                : fmt::format("{}[q] = {} ? {} : {}{{}};", to, from.guard, pack, pack_type(plan)));
  out_.close();
  loop_.reset();
}

void RowPrinter::store_turned(const passes::ByteTurn& plan, const std::string& packs,
                              const std::string& piece) {
  const Buffer& to = *plan.store->to.view.buffer;
  const SharedTile& tile = shared_.at(&to);
  out_.line(fmt::format("tg::store_turned<{}, {}, {}>({}, {}, {});", to.extent(0), to.extent(1),
                        tile.order.columns, tile.name, packs, piece));
}

void RowPrinter::turn_bytes(const passes::ByteTurn& plan, const std::function<void()>& otherwise) {
  const TurnConditions conditions = conditions_of_turn(plan);
  const auto turn = [&](bool all) {
    each_turned_piece(plan, [&](const std::string& piece) {
      const std::string packs = names_.unique("packs");
      out_.line(fmt::format("{} {}[{}];", pack_type(plan), packs, turned_rows));
      load_turned(plan, packs, piece, all);
      store_turned(plan, packs, piece);
    });
  };
  either(
      conditions.pieces,
      [&] {
        either(
            conditions.all, [&] { turn(true); }, [&] { turn(false); });
      },
      otherwise);
}

// Such columns are cleared in all slots once.
void CudaGridPrinter::clear_zero_columns() {
  std::map<std::pair<int, std::int64_t>, const passes::Transposition*> tiles;  // by ring and place
  for (const auto& [stmt, n] : roles_->transpositions) {
    if (!has_zero_columns(n)) continue;
    const int ring = roles_->ring_of(n.to.get());
    const auto& all = roles_->rings[static_cast<std::size_t>(ring)].tiles;
    tiles[{ring, std::find(all.begin(), all.end(), n.to) - all.begin()}] = &n;
  }
  for (const auto& [place, n] : tiles) {
    const auto ring = static_cast<std::size_t>(place.first);
    const RingText::Slots& slots = rings_[ring].tiles[static_cast<std::size_t>(place.second)];
    for (int slot = 0; slot < depth_of(ring); ++slot)
      out_.line(fmt::format("tg::clear_columns<{}, {}, {}, {}, {}>(({}*)(shared_memory + {}), thread);",
                            n->to->extent(0), n->columns, n->to->extent(1),
                            passes::swizzled_order(*n->to).columns, team_.threads, element_type(n->to->type),
                            slots.begin + slot * slots.bytes));
  }
}

// A whole tile, or of each part the rows that limits leave.
void CudaGridPrinter::widen(const passes::Transposition& n, const Loc& at) {
  const SharedTile &from = shared_.at(n.from.get()), &to = shared_.at(n.to.get());
  const auto call = [&](const std::string& function, const std::string& rows) {
    out_.line(fmt::format("tg::{}<{}, {}, {}, {}, {}>({}, {}, {}{});  // {}", function, n.from->extent(0),
                          n.from->extent(1), from.order.columns, to.order.columns, team_.threads, to.name,
                          from.name, team_.thread, rows, location_in_folder(at)));
  };
  out_.code();
  Texts conditions;
  for (const passes::WidenedRows& own : n.widened) {
    if (own.low) conditions.push_back(fmt::format("{} <= {}", value(own.low), own.first));
    if (own.high) conditions.push_back(fmt::format("{} >= {}", value(own.high), own.first + own.count));
  }
  const auto whole = [&] {
    if (!has_zero_columns(n)) return call("widen_bytes", "");
    out_.line(fmt::format("tg::widen_columns<{}, {}, {}, {}, {}>({}, {}, {});  // {}", n.from->extent(0),
                          n.columns, from.order.columns, to.order.columns, team_.threads, to.name, from.name,
                          team_.thread, location_in_folder(at)));
  };
  if (conditions.empty()) return whole();
  either(conditions, whole, [&] {
    for (const passes::WidenedRows& own : n.widened)
      call("widen_rows", fmt::format(", {}, {}, {}, {}", own.first, own.first + own.count,
                                     own.low ? value(own.low) : std::to_string(own.first),
                                     own.high ? value(own.high) : std::to_string(own.first + own.count)));
  });
}

// Three warps of the producer, each its own pieces.
void CudaGridPrinter::transpose(const passes::Transposition& n, const Loc& at) {
  if (!n.widened.empty()) return widen(n, at);
  const SharedTile &from = shared_.at(n.from.get()), &to = shared_.at(n.to.get());
  out_.code();
  out_.line(fmt::format("tg::transpose_bytes<{}, {}, {}, {}, {}>({}, {}, {});  // {}", n.from->extent(0),
                        n.from->extent(1), from.order.columns, to.order.columns, team_.threads, to.name,
                        from.name, team_.thread, location_in_folder(at)));
}

}  // namespace tegula::codegen
