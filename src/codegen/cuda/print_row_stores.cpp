// Sums of products of warp groups to 16-bit workspaces: the four threads that share a row exchange words, so
// that each writes 16 bytes of it.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr int quad_columns = 32;  // that the four threads write with one instruction

bool uses_variable(const Expr& e, const VariablePtr& v) {
  bool found = false;
  for_each_variable(e, [&](const VariablePtr& own) { found |= own == v; });
  return found;
}

bool is_variable(const Expr& e, const VariablePtr& v) { return e->op == Op::variable && e->variable == v; }

// A workspace lies without holes, so its rows begin at multiples of their length. All of a row is shown, and
// the column is the loop's.
bool is_row_of_workspace(const Access& to, const VariablePtr& column) {
  const Buffer& buffer = *to.view.buffer;
  if (buffer.role != Role::workspace || buffer.type.bits() != 16 || !buffer.type.is_floating()) return false;
  if (to.view.shape.size() != buffer.shape.size() || to.view.dims.empty()) return false;
  const ViewDim& last = to.view.dims.back();
  const Expr& extent = to.view.shape.back();
  if (last.axis != to.view.rank() - 1 || !is_constant(last.offset, 0) || last.low || !is_constant(extent))
    return false;
  if (last.high && !equal(last.high, extent)) return false;
  if (constant_value(extent) * buffer.type.bytes() % vector_bytes != 0) return false;
  for (std::size_t d = 0; d + 1 < to.index.size(); ++d) {
    if (uses_variable(to.index[d], column)) return false;
  }
  for (const ViewDim& dim : to.view.dims) {
    if (uses_variable(dim.offset, column)) return false;
  }
  return is_variable(to.index.back(), column);
}

}  // namespace

// A loop that stores such a fragment, a row of its own for each warp group and register.
const Access* CudaGridPrinter::row_store(const Stmt& s) const {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->index.size() != 2 || loop->body.size() != 2)
    return nullptr;
  const auto* load = as<Load>(loop->body[0]);
  const auto* store = as<Store>(loop->body[1]);
  if (!load || !store || load->from.view.buffer->space != Space::fragment || store->to.view.is_tile())
    return nullptr;
  const Buffer& from = *load->from.view.buffer;
  if (from.type != f32 || packed_.contains(&from)) return nullptr;
  if (passes::loop_axes(*loop, load->from) != std::vector<int>{0, 1}) return nullptr;
  const Expr& value = store->value->op == Op::cast ? store->value->args[0] : store->value;
  if (!is_variable(value, load->variable) || !is_row_of_workspace(store->to, loop->index[1])) return nullptr;
  const auto layout = layouts_.fragments.find(&from);
  const std::int64_t m = from.extent(0), n = from.extent(1), groups = team_.threads / 128;
  if (!target_.has_wgmma() || team_.threads % 128 != 0 || m != 64 * groups || n % quad_columns != 0)
    return nullptr;
  if (layout == layouts_.fragments.end() || layout->second != layout::wgmma_accumulator(m, n, {groups, 1}))
    return nullptr;
  return &store->to;
}

// Two rows of a thread, eight apart.
void CudaGridPrinter::store_rows(const For& n, const Access& to, const Loc& at) {
  const BufferPtr& from = as<Load>(n.body[0])->from.view.buffer;
  const FragmentTile& tile = fragments_.at(from.get());
  out_.code();
  touch(to.view, MemoryUse::write, false);
  for (int half = 0; half < 2; ++half) {
    out_.open(fmt::format("{{  // {}: 16 bytes of a row by each thread", short_location(at)));
    const Facts before = facts_;
    out_.line(fmt::format("const int {0} = {1} / 4 % 8 + {1} / 32 * 16 + {2};", name_variable(n.index[0]),
                          team_.thread, 8 * half));
    out_.line(fmt::format("const int {} = {} % 4 * 8;", name_variable(n.index[1]), team_.thread));
    facts_.add_range(n.index[0], {0, from->extent(0) - 1});
    facts_.add_range(n.index[1], {0, quad_columns - 8});
    const GuardedAddress address = this->address(to);
    const std::string row = names_.unique("row"), there = names_.unique("there");
    out_.line(fmt::format("{}* const {} = {};", element_type(to.view.buffer->type), row, address.pointer));
    out_.line(fmt::format("const bool {} = {};", there, address.guard.empty() ? "true" : address.guard));
    for (std::int64_t j = 0; j < from->extent(1) / quad_columns; ++j)
      out_.line(fmt::format("tg::store_quad({} + {}, {} + {}, {} % 4, {});", row, j * quad_columns, tile.name,
                            16 * j + 2 * half, team_.thread, there));
    facts_ = before;
    out_.close();
  }
}

}  // namespace tegula::codegen
