// 8-bit elements of tensors to tiles of the other order: threads turn four times four bytes in registers. Those of a
// producer hold what they have loaded for the next step while they wait for a slot.
#include <fmt/format.h>

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

}  // namespace

// The thread's piece, by its number among all that turn the tile.
void CudaGridPrinter::each_turned_piece(const For& n, const std::string& number,
                                        const PrintPiece& print) {
  const std::int64_t rows = constant_value(n.end[0]), columns = constant_value(n.end[1]);
  const std::string piece = names_.unique("piece");
  out_.line(fmt::format("const tg::TurnedPiece {} = tg::turned_piece<{}>({});", piece, rows, number));
  const bool divides = columns % passes::columns_of_warp == 0;
  if (!divides) out_.open(fmt::format("if ({}.column < {}) {{", piece, columns));
  print(piece);
  if (!divides) out_.close();
}

void CudaGridPrinter::load_turned(const For& n, const passes::ByteTurn& plan, const std::string& packs,
                                  const std::string& piece) {
  const auto index = [&](std::size_t d, const std::string& text) {
    out_.line(fmt::format("const {} {} = {}.{};", scalar_type(n.index[d]->type), name_variable(n.index[d]), piece, text));
  };
  loop_ = ElementLoop{&n, nullptr, ""};
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int q = 0; q < {}; ++q) {{", turned_rows));
  index(0, "row + q");
  index(1, "column");
  unlimited_ = dims_known_before(n, plan.load->from);
  out_.line(fmt::format("{}[q] = tg::load_pack<{}>({});", packs, turned_columns,
                        address(plan.load->from).pointer));
  unlimited_.clear();
  out_.close();
  loop_.reset();
}

void CudaGridPrinter::store_turned(const passes::ByteTurn& plan, const std::string& packs, const std::string& piece) {
  const Buffer& to = *plan.store->to.view.buffer;
  const SharedTile& tile = shared_.at(&to);
  out_.line(fmt::format("tg::store_turned<{}, {}, {}>({}, {}, {});", to.extent(0), to.extent(1), tile.order.columns,
                        tile.name, packs, piece));
}

void CudaGridPrinter::turn_bytes(const For& n, const passes::ByteTurn& plan) {
  const std::string f = names_.unique("f"), packs = names_.unique("packs");
  out_.line("#pragma unroll 2");
  out_.open(fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{", f, team_.thread, 32 * warps_of_turn(n),
                        team_.threads));
  each_turned_piece(n, f, [&](const std::string& piece) {
    out_.line(fmt::format("{} {}[{}];", pack_type(plan), packs, turned_rows));
    load_turned(n, plan, packs, piece);
    store_turned(plan, packs, piece);
  });
  out_.close();
}

// All pieces of a thread, where all threads have as many.
std::optional<CudaGridPrinter::HeldLoop> CudaGridPrinter::held_turn(const For& step, const Stmt& s) {
  const Stmt elements = elements_of(s);
  const auto plan = elements ? passes::plan_byte_turn(elements) : std::nullopt;
  if (!plan) return std::nullopt;
  const For& loop = *as<For>(elements);
  const std::int64_t count = 32 * warps_of_turn(loop) / team_.threads, words = turned_rows * turned_columns / 4;
  if (count * team_.threads != 32 * warps_of_turn(loop) || count * words > words_to_convert() ||
      !can_hold(step, loop) || !is_aligned(loop, plan->load->from, turned_columns))
    return std::nullopt;
  HeldLoop result{.stmt = s, .loop = elements, .count = count, .element = names_.unique("packs"), .turn = plan};
  result.registers.words = words;
  result.registers.declarations = {fmt::format("{} {}[{}][{}]", pack_type(*plan), result.element, count, turned_rows)};
  return result;
}

// Each round of all threads, where the tile's pieces can be loaded.
void CudaGridPrinter::each_held_piece(const HeldLoop& own, const PrintHeld& print,
                                      const std::function<void()>& otherwise) {
  const For& loop = *as<For>(own.loop);
  Texts conditions;
  add_conditions(loop, own.turn->load->from, turned_columns, conditions, {});
  either(
      conditions,
      [&] {
        out_.line("#pragma unroll");
        out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", own.count));
        each_turned_piece(loop, fmt::format("{} + r * {}", team_.thread, team_.threads),
                          [&](const std::string& piece) { print(own.element + "[r]", piece); });
        out_.close();
      },
      otherwise);
}

}  // namespace tegula::codegen
