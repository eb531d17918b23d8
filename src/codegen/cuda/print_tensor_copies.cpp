// What fills the slots of rings: the copy engine, or the producer's threads.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

std::size_t CudaGridPrinter::tensor_map(CudaProgram::TensorMap map) {
  for (std::size_t i = 0; i < program_.maps.size(); ++i) {
    if (program_.maps[i] == map) return i;
  }
  program_.maps.push_back(std::move(map));
  return program_.maps.size() - 1;
}

// The call's beginning. Of a tile whose rows outside are left out it names the box of the last rows, too.
std::string CudaGridPrinter::load_function(const Copy& n, const passes::TensorCopy& plan) {
  if (plan.halved >= 0) return "tg::load_box_for_both(";
  if (!plan.ends_inside) return "tg::load_box(";
  const std::size_t rest = tensor_map(
      {signature_.position_of(n.from.buffer.get()), plan.box, plan.columns, plan.is_swizzled, true});
  return fmt::format("tg::load_rows_inside<{}, {}>({}, &call.map[{}], ", plan.box.back(),
                     plan.columns * n.to.buffer->type.bytes(), value(n.from.shape[n.from.dims.size() - 2]),
                     rest);
}

// One box for every block of columns.
void CudaGridPrinter::load_boxes(const Copy& n, const passes::TensorCopy& plan, int ring, const Loc& at) {
  const Buffer& tile = *n.to.buffer;
  const std::size_t map =
      tensor_map({signature_.position_of(n.from.buffer.get()), plan.box, plan.columns, plan.is_swizzled});
  Texts rest;
  const std::int64_t half = plan.halved >= 0 ? tile.extent(0) / 2 : 0;  // that this block brings
  for (std::size_t d = n.from.dims.size() - 1; d-- > 0;) {
    rest.push_back(fmt::format("int({})", value(n.from.dims[d].offset)));
    if (static_cast<int>(d) == plan.halved) rest.back() += fmt::format(" + int(blockIdx.x % 2) * {}", half);
  }
  const std::string column = value(n.from.dims.back().offset);
  const std::string function = load_function(n, plan);
  const std::int64_t columns = tile.extent(tile.rank() - 1), block = tile.elements() / columns * plan.columns;
  for (std::int64_t i = 0; i * plan.columns < columns; ++i) {
    std::string first = i == 0 ? column : fmt::format("{} + {}", column, i * plan.columns);
    for (const std::string& text : rest) first += ", " + text;
    const std::int64_t begin = i * block + plan.first_row * plan.columns;
    std::string to = shared_.at(&tile).name;
    if (begin != 0) to += fmt::format(" + {}", begin);
    if (half > 0) to += fmt::format(" + int(blockIdx.x % 2) * {}", half * plan.columns);
    out_.line(fmt::format("{}{}, &call.map[{}], {}.full(), {});", function, to, map, ring_name(ring), first),
              at);
  }
}

void CudaGridPrinter::event(const schedule::Load& n, const schedule::Event& e) {
  out_.code();
  if (!roles_->one_loader) out_.open(fmt::format("if (thread == {}) {{", 32 * e.warp));
  load_boxes(*as<Copy>(e.stmt), roles_->copies.at(e.stmt.get()), n.place.ring, e.stmt->at);
  if (!roles_->one_loader) out_.close();
}

void CudaGridPrinter::event(const schedule::Complete& n, const schedule::Event&) {
  sync_line(fmt::format("if (thread == 0) tg::complete({}, {});", ring_name(n.place.ring), n.bytes));
}

void CudaGridPrinter::event(const schedule::CopyAsync& n, const schedule::Event& e) {
  if (!roles_) return begin_copies(e.stmt, n.to.slot.shift);
  const auto elements = passes::plan_elements(e.stmt);
  rows(elements ? *elements : *passes::plan_pieces(e.stmt), true);
}

void CudaGridPrinter::event(const schedule::CopyArrive& n, const schedule::Event&) {
  sync_line(fmt::format("tg::arrive_with_copies({});", ring_name(n.place.ring)));
}

}  // namespace tegula::codegen
