// Grids one after another, and blocks that take whichever index is left.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "codegen/cuda/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

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
  const bool told = awaits_producer() && roles_->dynamic_tiles;
  return plan_.exits_of_all.contains(exit.condition.get()) && leave_ == "continue;" && !told ? "break;"
                                                                                             : leave_;
}

// Blocks of a grid with roles that take whichever is left: the producer asks a counter, and tells the
// consumers.
void CudaGridPrinter::dynamic_tiles(const schedule::Loop& n) {
  tile_ = names_.unique("tile"), tiles_ = names_.unique("tiles");
  const Facts before = facts_;
  out_.code();
  if (!awaits_producer()) {
    if (!has_digits(*grid_)) out_.line(fmt::format("const uint32_t {} = {};", tiles_, blocks_text(*grid_)));
    out_.line(roles_->one_loader ? "bool first = true;" : "uint32_t next = blockIdx.x;");
  }
  out_.line("#pragma unroll 1");
  out_.open_step(StepKind::loop, "for (;;) {");
  const std::string outside = std::exchange(leave_, "continue;");
  events(n.body);
  leave_ = outside;
  has_tile_ = false;
  values_.forget_names();
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

std::string CudaGridPrinter::tile_slot() const {
  return fmt::format("((int4*)(shared_memory + {}))[{}.slot]", rings_.back().tiles[0].begin,
                     cursor_name(static_cast<int>(rings_.size()) - 1));
}

// The consumers need not divide to know their block.
std::string CudaGridPrinter::tile_value() const {
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
    return sync_line(by_loader(fmt::format("{} = {};", tile_slot(), tile_value())));
  // All threads of the producer wait for the number: it is asked for while the block before runs.
  sync_line(fmt::format("if (thread == 0) {} = next;", next_slot()));
  out_.line(fmt::format("if (thread == 0) next = tg::next_block({});", counters()));
}

void CudaGridPrinter::event(const schedule::ReceiveTile&, const schedule::Event&) {
  if (awaits_producer()) return sync_line(fmt::format("const int4 {} = {};", tile_, tile_slot()));
  sync_line(fmt::format("const uint32_t {} = {};", tile_, next_slot()));
}

void CudaGridPrinter::event(const schedule::Leave&, const schedule::Event& e) {
  if (e.stmt) return stmt(e.stmt);
  // The number of blocks would be kept for this alone, and a loader has few registers.
  const bool by_digit = !awaits_producer() && has_digits(*grid_);
  out_.code();
  if (by_digit) order_.decode(*grid_, tile_);
  sync_line(awaits_producer() ? fmt::format("if (!{}.w) break;", tile_)
            : by_digit        ? fmt::format("if ({}) break;", order_.is_behind_last(*grid_))
                              : fmt::format("if ({} >= {}) break;", tile_, tiles_));
  out_.leaves();
  has_tile_ = true;
  if (!awaits_producer() && !by_digit) order_.decode(*grid_, tile_);
  for (std::size_t i = 0; awaits_producer() && i < grid_->index.size(); ++i)
    order_.define_index(*grid_, i, fmt::format("{}.{}", tile_, "xyz"[i]));
  name_divisions();
}

}  // namespace tegula::codegen
