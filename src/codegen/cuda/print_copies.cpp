// Copies between tensors and shared tiles by all threads of a team.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/zero.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/cuda/moved_elements.hpp"

namespace tegula::codegen {

using namespace ir;

void CudaGridPrinter::operator()(const Copy& n, const Stmt& s) {
  internal_assert(n.from.buffer->space != Space::fragment, "stores by the copy engine are events", s->at);
  if (copy_by_vectors(n, s->at)) return;
  const Body lowered = element_copies(n, s->at);
  // These variables end with the statements: later ones may have their addresses.
  const auto moved = passes::moved_elements(lowered);
  moved_.insert(moved.begin(), moved.end());
  for (const Stmt& own : lowered) stmt(own);
  for (const Variable* v : moved) moved_.erase(v);
}

Body CudaGridPrinter::element_copies(const Copy& n, const Loc& at) const {
  const bool to_tile = n.to.is_tile();
  return passes::over_view(
      to_tile ? n.to : n.from, at, [&](const std::vector<Expr>& index, const Access& own) {
        const Access from = to_tile ? Access{n.from, index} : own, to = to_tile ? own : Access{n.to, index};
        const VariablePtr x =
            passes::new_variable("x", compute_type(n.from.buffer->type), VariableKind::let, at);
        Expr element = variable(x, at);
        if (to_tile && !is_zero(n.fill))
          element = make(Op::select, x->type,
                         {passes::exists(from, at), element, passes::as_stored(n.fill, x->type)}, at);
        return Body{statement(Load{x, from}, at),
                    statement(Store{to, passes::as_stored(element, n.to.buffer->type)}, at)};
      });
}

// The dimension of the tensor that the last axis of a whole tile runs along, if vectors along it can be cut
// only at their end.
std::optional<std::size_t> CudaGridPrinter::vector_dim(const Copy& n, const std::vector<Expr>& at) const {
  if (n.from.is_tile() || n.to.buffer->space != Space::shared || n.to.rank() == 0) return std::nullopt;
  const DType type = n.to.buffer->type;
  if (n.from.buffer->type != type || !is_zero(n.fill)) return std::nullopt;
  const int last = n.to.rank() - 1;
  if (n.to.extent(last) % (vector_bytes / type.bytes()) != 0) return std::nullopt;
  for (std::size_t d = 0; d < at.size(); ++d) {
    const ViewDim& dim = n.from.dims[d];
    if (dim.axis != last) continue;
    const bool begins_inside = values_.is_at_least(at[d], 0) && (!dim.low || is_constant(dim.low, 0));
    return begins_inside ? std::optional(d) : std::nullopt;
  }
  return std::nullopt;
}

bool CudaGridPrinter::copy_by_vectors(const Copy& n, const Loc& at) {
  if (n.from.is_tile() || !n.to.is_tile() || !is_whole(n.to)) return false;
  const Facts before = facts_;
  const int elements = vector_bytes / n.to.buffer->type.bytes();
  std::vector<Expr> index;
  for (int d = 0; d < n.to.rank(); ++d) {
    const VariablePtr i = passes::new_variable("i", i32, VariableKind::index, at);
    facts_.add_range(i, {0, n.to.extent(d) - (d + 1 == n.to.rank() ? elements : 1)});
    index.push_back(variable(i, at));
  }
  const Access from{n.from, index};
  const std::vector<Expr> where = coordinates(from);
  const auto along = vector_dim(n, where);
  if (along) print_vectors(n, from, where, *along, elements, at);
  facts_ = before;
  return along.has_value();
}

// The indices in the tile of the vector with this number.
ElementPrinter::Texts ElementPrinter::name_place_of_vector(const Buffer& tile, const std::vector<Expr>& index,
                                                           const std::string& number, int elements) {
  Texts result(index.size());
  std::int64_t step = 1;
  for (std::size_t d = index.size(); d-- > 0;) {
    const int scale = d + 1 == index.size() ? elements : 1;
    const std::int64_t extent = tile.extent(static_cast<int>(d)) / scale;
    result[d] = name_variable(index[d]->variable);
    out_.line(fmt::format("const int {} = {};", result[d], times(digit_text(number, step, extent), scale)));
    step *= extent;
  }
  return result;
}

void CudaGridPrinter::print_vectors(const Copy& n, const Access& from, const std::vector<Expr>& where,
                                    std::size_t along, int elements, const Loc& at) {
  const Buffer& tile = *n.to.buffer;
  out_.code();
  touch(n.from, MemoryUse::read, false);
  touch(n.to, MemoryUse::write, false);
  out_.open(fmt::format("{{  // {}: by vectors of {} bytes", location_in_folder(at), vector_bytes));
  // Where nothing else is on its way, all of a thread's vectors are, together with those of the next copies.
  // Producers, which have few registers, wait for them at the end: a vector after the other would take as
  // long as each is on its way.
  const bool has_no_other = copy_rings_.empty() && !is_ahead_ && team_.count == 1,
             is_awaited_later = has_no_other && !roles_, is_awaited_here = has_no_other && roles_;
  if (is_awaited_later) brought_.push_back({n.to, n.from});
  out_.line(is_awaited_here    ? "#pragma unroll 1"
            : is_awaited_later ? "#pragma unroll 4"
                               : "#pragma unroll 2");
  const std::string f = names_.unique("f");
  out_.open(fmt::format("for (int {0} = {1}; {0} < {2}; {0} += {3}) {{", f, team_.thread,
                        tile.elements() / elements, team_.threads));
  const Texts tile_at = name_place_of_vector(tile, from.index, f, elements);
  Texts terms, guards;
  std::string count;
  for (std::size_t d = 0; d < where.size(); ++d) {
    const std::string c = names_.unique("c");
    out_.line(fmt::format("const int64_t {} = {};", c, bare(value(where[d]))));
    if (d == along)
      count = vector_count(from.view, d, where[d], c, elements);
    else
      add_limits(from.view, d, where[d], c, guards);
    terms.push_back(fmt::format("{} * {}", c, stride_text(from.view, d)));
  }
  if (!guards.empty()) count = fmt::format("{} ? {} : 0", fmt::join(guards, " && "), count);
  const std::string stride = stride_text(from.view, along);
  out_.line(fmt::format("tg::{}({}, {} + ({}), {}, {});", has_no_other ? "bring" : "copy_vector",
                        element_of(shared_.at(&tile), offset_in(shared_.at(&tile), tile, tile_at)),
                        tensors_.at(from.view.buffer.get()), fmt::join(terms, " + "), stride, count));
  out_.close();
  if (is_awaited_here) wait_for_copies();
  out_.close();
}

// Whether copies into the tile are on their way.
bool CudaGridPrinter::is_brought(const Buffer& tile) const {
  return std::ranges::any_of(brought_, [&](const Brought& own) { return own.tile.buffer.get() == &tile; });
}

// Tiles that copies bring are there: of each thread its own vectors, and after the next barrier all. Until
// then the tensors are being read: where the grid writes them, too, that barrier is between.
void CudaGridPrinter::await_brought() {
  if (brought_.empty()) return;
  out_.code();
  for (const auto& [tile, from] : brought_)
    touch(tile, MemoryUse::write, false), touch(from, MemoryUse::read, false);
  brought_.clear();
  wait_for_copies();
}

void CudaGridPrinter::wait_for_copies() {
  out_.line("tg::commit_copies();");
  out_.line("tg::wait_copies<0>();");
  out_.brings();
}

// How many elements from `text` on exist, at most a vector.
std::string CudaGridPrinter::vector_count(const View& view, std::size_t dim, const Expr& at,
                                          const std::string& text, int elements) {
  const Expr& extent = view.shape[dim];
  const Expr end = make(Op::add, at->held(), {at, constant(at->held(), elements - 1)}, at->at);
  std::string count = std::to_string(elements);
  for (const Expr& limit : {extent, view.dims[dim].high}) {
    if (!limit || (limit != extent && equal(limit, extent)) || values_.is_less(end, limit)) continue;
    count = fmt::format("tg::min<int64_t>({}, int64_t({}) - {})", count, value(limit), text);
  }
  return count == std::to_string(elements) ? count : fmt::format("int(tg::max<int64_t>({}, 0))", count);
}

}  // namespace tegula::codegen
