// Sums of products of warp groups to rows of 16-bit tensors: the four threads that share a row exchange
// words, so that each writes 16 bytes of it.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/plan_stores.hpp"

namespace tegula::codegen {

using namespace ir;

const Access* CudaGridPrinter::row_store(const Stmt& s) const {
  const bool dealt = is_consumer_ && roles_->dealt;
  return passes::plan_row_store(s, layouts_, team_.threads, target_, dealt ? roles_->dealt->group : nullptr);
}

// Two rows of a thread, eight apart.
void CudaGridPrinter::store_rows(const For& n, const Access& to, const Loc& at) {
  const BufferPtr& from = as<Load>(n.body[0])->from.view.buffer;
  const FragmentTile& tile = fragments_.at(from.get());
  out_.code();
  touch(to.view, MemoryUse::write, false);
  if (to.view.buffer->role != Role::workspace) require_aligned(to.view.buffer);
  const std::int64_t groups = std::max<std::int64_t>(1, 64 * team_.threads / 128 / from->extent(0)),
                     columns = from->extent(1) / groups;  // of a warp group
  const std::string of_group = groups > 1 ? fmt::format(" + {} / 128 * {}", team_.thread, columns) : "";
  for (int half = 0; half < 2; ++half) {
    out_.open(fmt::format("{{  // {}: 16 bytes of a row by each thread", location_in_folder(at)));
    const Facts before = facts_;
    out_.line(fmt::format("const int {0} = {1} / 4 % 8 + {1} / 32{2} * 16 + {3};", name_variable(n.index[0]),
                          team_.thread, groups > 1 ? " % 4" : "", 8 * half));
    out_.line(fmt::format("const int {} = {} % 4 * 8{};", name_variable(n.index[1]), team_.thread, of_group));
    facts_.add_range(n.index[0], {0, from->extent(0) - 1});
    facts_.add_range(n.index[1], {0, from->extent(1) - columns + passes::quad_columns - 8});
    const GuardedAddress address = this->address(to);
    const std::string row = names_.unique("row"), there = names_.unique("there");
    out_.line(fmt::format("{}* const {} = {};", element_type(to.view.buffer->type), row, address.pointer));
    out_.line(fmt::format("const bool {} = {};", there, address.guard.empty() ? "true" : address.guard));
    for (std::int64_t j = 0; j < columns / passes::quad_columns; ++j)
      out_.line(fmt::format("tg::store_quad({} + {}, {} + {}, {} % 4, {});", row, j * passes::quad_columns,
                            tile.name, 16 * j + 2 * half, team_.thread, there));
    facts_ = before;
    out_.close();
  }
}

}  // namespace tegula::codegen
