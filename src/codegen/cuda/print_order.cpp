// Which block has which index: the order in which blocks begin.
#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/affine.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Blocks beside the heavy ones that begin together, so that what they share stays in the L2 cache. More where
// blocks wait for each other: each waits for fewer that begin with it (measured, causal gradients of 2048
// keys: with 8 they lose 7 %, with 32 3 %).
constexpr int section = 8, section_in_order = 16;

// The index along which the cost changes most plainly, and whether it grows; -1 if none is known.
struct HeavyIndex {
  int index = -1;
  bool grows = false;
};

HeavyIndex heavy_index(const Grid& grid) {
  if (grid.hints.order != GridOrder::heavy_first || !has_affine_form(grid.hints.cost->held())) return {};
  for (const Affine::Term& term : affine(grid.hints.cost).terms) {
    for (std::size_t i = 0; i < grid.index.size(); ++i) {
      if (term.atom->op == Op::variable && term.atom->variable == grid.index[i])
        return {static_cast<int>(i), term.factor > 0};
    }
  }
  return {};
}

bool has_groups(const Grid& grid) { return grid.hints.order == GridOrder::grouped && grid.index.size() > 1; }

// Whether a block's indices are the digits of its number.
bool has_digits(const Grid& grid) { return !has_groups(grid) && heavy_index(grid).index < 0; }

// The indices, those that change fastest first.
std::vector<std::size_t> digits_of(const Grid& grid) {
  std::vector<std::size_t> order(grid.index.size());
  std::iota(order.begin(), order.end(), 0);
  if (grid.hints.order == GridOrder::column && order.size() > 1) std::swap(order[0], order[1]);
  return order;
}

}  // namespace

void CudaGridPrinter::define_index(const Grid& grid, std::size_t i, const std::string& text) {
  out_.line(fmt::format("const int {} = {};", name_variable(grid.index[i]), text));
  facts_.add_index(grid.index[i], constant(grid.extents[i]->held(), 0), grid.extents[i]);
}

// The first of `order` changes fastest.
void CudaGridPrinter::decode_digits(const Grid& grid, const std::vector<std::size_t>& order,
                                    std::string rest) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i + 1 == order.size()) {
      define_index(grid, order[i], rest);
      break;
    }
    const std::string extent = fmt::format("uint32_t({})", value(grid.extents[order[i]]));
    define_index(grid, order[i], fmt::format("{} % {}", rest, extent));
    const std::string next = names_.unique("rest");
    out_.line(fmt::format("const uint32_t {} = {} / {};", next, rest, extent));
    rest = next;
  }
}

// Rows of blocks in groups, down the columns of a group.
void CudaGridPrinter::decode_grouped(const Grid& grid, const std::string& number) {
  const std::string width = fmt::format("uint32_t({})", value(grid.extents[0])),
                    height = fmt::format("uint32_t({})", value(grid.extents[1]));
  std::string plane = number;
  if (grid.index.size() > 2) {
    plane = names_.unique("plane");
    out_.line(fmt::format("const uint32_t {} = {} % ({} * {});", plane, number, width, height));
    define_index(grid, 2, fmt::format("{} / ({} * {})", number, width, height));
  }
  const std::string first = names_.unique("first_row"), rows = names_.unique("rows"),
                    rest = names_.unique("rest");
  out_.line(fmt::format("const uint32_t {} = {} / ({} * {}) * {};", first, plane, grid.hints.group, width,
                        grid.hints.group));
  out_.line(fmt::format("const uint32_t {} = tg::min<uint32_t>({}, {} - {});", rows, grid.hints.group, height,
                        first));
  out_.line(fmt::format("const uint32_t {} = {} - {} * {};", rest, plane, first, width));
  define_index(grid, 0, fmt::format("{} / {}", rest, rows));
  define_index(grid, 1, fmt::format("{} + {} % {}", first, rest, rows));
}

// The heaviest blocks of a section first.
void CudaGridPrinter::decode_heavy(const Grid& grid, std::size_t heavy, bool grows,
                                   const std::string& number) {
  std::vector<std::size_t> others;
  std::string count = "1u";
  for (std::size_t i = 0; i < grid.index.size(); ++i) {
    if (i == heavy) continue;
    others.push_back(i);
    count += fmt::format(" * uint32_t({})", value(grid.extents[i]));
  }
  const std::string extent = fmt::format("uint32_t({})", value(grid.extents[heavy]));
  const std::string first = names_.unique("first"), width = names_.unique("width"),
                    place = names_.unique("place");
  std::string most = std::to_string(hands_over() ? section_in_order : section);
  if (grid.hints.together) {
    most = names_.unique("together");
    out_.line(fmt::format("const uint32_t {} = tg::min<uint32_t>(tg::max<int>({}, 1), {});", most,
                          value(grid.hints.together), count));
  }
  out_.line(fmt::format("const uint32_t {} = {} / ({} * {}) * {};", first, number, most, extent, most));
  out_.line(fmt::format("const uint32_t {} = tg::min<uint32_t>({}, {} - {});", width, most, count, first));
  out_.line(fmt::format("const uint32_t {} = {} - {} * {};", place, number, first, extent));
  define_index(
      grid, heavy,
      grows ? fmt::format("{} - 1 - {} / {}", extent, place, width) : fmt::format("{} / {}", place, width));
  if (others.empty()) return;
  const std::string rest = names_.unique("rest");
  out_.line(fmt::format("const uint32_t {} = {} + {} % {};", rest, first, place, width));
  decode_digits(grid, others, rest);
}

std::string CudaGridPrinter::is_behind_last(const Grid& grid) {
  const std::size_t last = digits_of(grid).back();
  return fmt::format("{} >= {}", variable_text(grid.index[last]), value(grid.extents[last]));
}

void CudaGridPrinter::decode(const Grid& grid, const std::string& number) {
  if (has_groups(grid)) return decode_grouped(grid, number);
  if (const HeavyIndex heavy = heavy_index(grid); heavy.index >= 0)
    return decode_heavy(grid, static_cast<std::size_t>(heavy.index), heavy.grows, number);
  decode_digits(grid, digits_of(grid), number);
}

bool CudaGridPrinter::runs_beside(int number) const {
  const auto at = static_cast<std::size_t>(number);
  return target_.has_wgmma() && at < waits_.size() && waits_[at] == passes::GridWait::at_end;
}

// Grids of a call follow each other closely.
void CudaGridPrinter::between_grids() {
  if (!target_.has_wgmma()) return;
  const bool has_next = static_cast<std::size_t>(number_) + 1 < waits_.size(),
             beside = runs_beside(number_ + 1);
  if (has_next && !beside) out_.line("tg::let_next_grid_begin();");
  if (has_waits() && !runs_beside(number_)) out_.line("tg::wait_for_last_grid();");
  if (beside) out_.line("tg::let_next_grid_begin();");
}

void CudaGridPrinter::end_of_block() {
  if (!runs_beside(number_)) return;
  out_.code();
  out_.line("tg::end_behind_last_grid();");
}

// Consumers that are told their blocks are told the end as well.
std::string CudaGridPrinter::leave_by(const Exit& exit) const {
  const bool told = is_consumer_ && roles_->takes_turns;
  return plan_.exits_of_all.contains(exit.condition.get()) && leave_ == "continue;" && !told ? "break;"
                                                                                             : leave_;
}

// Blocks of a grid with roles that take whichever is left: the producer asks a counter, and tells the
// consumers.
void CudaGridPrinter::in_turns(const schedule::Loop& n) {
  tile_ = names_.unique("tile"), tiles_ = names_.unique("tiles");
  const Facts before = facts_;
  out_.code();
  if (!is_consumer_) {
    if (!has_digits(*grid_)) out_.line(fmt::format("const uint32_t {} = {};", tiles_, blocks_text(*grid_)));
    out_.line(roles_->one_loader ? "bool first = true;" : "uint32_t next = blockIdx.x;");
  }
  out_.line("#pragma unroll 1");
  out_.open_step(StepKind::loop, "for (;;) {");
  const std::string outside = std::exchange(leave_, "continue;");
  events(n.body);
  leave_ = outside;
  has_tile_ = false;
  divisions_.clear();
  out_.close_step();
  facts_ = before;
}

// Neighbours among the grids may run at the same time.
std::string CudaGridPrinter::counters() const {
  return number_ % 2 == 0 ? "call.counters" : fmt::format("call.counters + {}", counter_words / 2);
}

std::string CudaGridPrinter::next_slot() const {
  return fmt::format("*(uint32_t*)(shared_memory + {})", next_slot_);
}

std::string CudaGridPrinter::turn_slot() const {
  return fmt::format("((int4*)(shared_memory + {}))[{}.slot]", rings_.back().tiles[0].begin,
                     cursor_name(static_cast<int>(rings_.size()) - 1));
}

// The consumers need not divide to know their block.
std::string CudaGridPrinter::turn_value() const {
  if (!has_tile_) return "int4{0, 0, 0, 0}";
  Texts index(3, "0");
  for (std::size_t i = 0; i < grid_->index.size(); ++i) index[i] = variable_text(grid_->index[i]);
  return fmt::format("int4{{{}, 1}}", fmt::join(index, ", "));
}

// A block is taken when its loads can begin, not earlier: who holds one while another runs keeps those that
// wait for its turn, and at the end of the grid those that have nothing left.
void CudaGridPrinter::event(const schedule::NextTile&, const schedule::Event&) {
  if (!roles_->one_loader) return;
  sync_line(fmt::format("const uint32_t {} = first ? blockIdx.x : tg::next_block({});", tile_, counters()));
  out_.line("first = false;");
}

void CudaGridPrinter::event(const schedule::SendTile& n, const schedule::Event&) {
  if (n.to.slot.kind == schedule::Slot::Kind::cursor)
    return sync_line(by_loader(fmt::format("{} = {};", turn_slot(), turn_value())));
  // All threads of the producer wait for the number: it is asked for while the block before runs.
  sync_line(fmt::format("if (thread == 0) {} = next;", next_slot()));
  out_.line(fmt::format("if (thread == 0) next = tg::next_block({});", counters()));
}

void CudaGridPrinter::event(const schedule::ReceiveTile&, const schedule::Event&) {
  if (is_consumer_) return sync_line(fmt::format("const int4 {} = {};", tile_, turn_slot()));
  sync_line(fmt::format("const uint32_t {} = {};", tile_, next_slot()));
}

void CudaGridPrinter::event(const schedule::Leave&, const schedule::Event& e) {
  if (e.stmt) return stmt(e.stmt);
  // The number of blocks would be kept for this alone, and a loader has few registers.
  const bool by_digit = !is_consumer_ && has_digits(*grid_);
  out_.code();
  if (by_digit) decode(*grid_, tile_);
  sync_line(is_consumer_ ? fmt::format("if (!{}.w) break;", tile_)
            : by_digit   ? fmt::format("if ({}) break;", is_behind_last(*grid_))
                         : fmt::format("if ({} >= {}) break;", tile_, tiles_));
  out_.leaves();
  has_tile_ = true;
  if (!is_consumer_ && !by_digit) decode(*grid_, tile_);
  for (std::size_t i = 0; is_consumer_ && i < grid_->index.size(); ++i)
    define_index(*grid_, i, fmt::format("{}.{}", tile_, "xyz"[i]));
  name_divisions();
}

}  // namespace tegula::codegen
