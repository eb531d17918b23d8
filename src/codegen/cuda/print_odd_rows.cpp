// Pieces of rows of tensors that begin and end at any element, such as those of rows with an odd number of
// features: what a thread loads comes out of the aligned words around it, and what neighbouring lanes store
// goes to memory in aligned words, too.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/element_limits.hpp"
#include "codegen/cuda/element_printer.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr int fewest_bytes_anywhere = 8, most_lanes = 32;

// How many neighbouring lanes hold pieces of a row that follow each other.
int lanes_along_rows(const layout::Layout& layout, int width) {
  if (layout.threads().empty()) return 1;
  const layout::Digit& fastest = layout.threads().front();
  for (std::size_t d = 0; d < fastest.stride.size(); ++d)
    if (fastest.stride[d] != (d + 1 == fastest.stride.size() ? width : 0)) return 1;
  return static_cast<int>(std::min<std::int64_t>(most_lanes, fastest.extent & -fastest.extent));
}

// How many statements of loops over elements read and write workspaces, and other tensors.
struct Traffic {
  int read = 0, written = 0, others_read = 0, others_written = 0;

  void add(const Stmt& s) {
    const Access* access = access_of(s);
    if (access->view.buffer->space != Space::global) return;
    const bool is_workspace = access->view.buffer->role == Role::workspace;
    if (as<Load>(s))
      ++(is_workspace ? read : others_read);
    else
      ++(is_workspace ? written : others_written);
  }
  bool is_to_workspace() const {
    return written == 1 && read == 0 && others_read == 1 && others_written == 0;
  }
  bool is_from_workspace() const { return read == 1 && written == 0 && others_written == 1; }
};

bool is_plain(const Stmt& s) {
  return !as<Gemm>(s) && !as<Gather>(s) && !as<Reduce>(s) && !as<Scan>(s) && !as<Accumulate>(s) &&
         !as<Atomic>(s);
}

// Whether the element is one of a row that the loop goes along, of a tensor's rows of unknown length.
bool is_of_row(const For& n, const Access& access) {
  const std::vector<Expr> at = coordinates(access);
  const bool known = access.view.buffer->space == Space::global && access.view.rank() > 1 &&
                     is_constant(access.view.shape.back());
  return !known && (at.empty() || uses(at.back(), n.index.back()));
}

}  // namespace

bool copies_rows(const Grid& grid) {
  Traffic traffic;
  bool result = true;
  for_each_stmt(grid.body, [&](const Stmt& s) {
    result &= is_plain(s);
    if (const auto* n = as<For>(s); n && n->kind == LoopKind::parallel)
      for (const Stmt& own : n->body) {
        const Access* access = access_of(own);
        if (access) traffic.add(own), result &= is_of_row(*n, *access);
      }
  });
  return result && (traffic.is_to_workspace() || traffic.is_from_workspace());
}

// Whether the piece is one of a tensor's row. All threads run the loop, so that lanes of a warp can exchange
// what they store; the row's first element is inside wherever a piece is.
bool ElementPrinter::may_be_anywhere(const For& n, const Stmt& s, int width) const {
  const Access* access = access_of(s);
  if (!access || as<Atomic>(s) || (any_products_ && !copies_rows_) || roles_ || rows_found_) return false;
  if (!goes_along_row(n, *access)) return false;
  const int bytes = width * access->view.buffer->type.bytes();
  if (access->view.is_tile())
    return as<Load>(s) && plan_.copy_rings.anywhere.contains(access->view.buffer.get()) &&
           bytes % fewest_bytes_anywhere == 0;
  const ViewDim& dim = access->view.dims.back();
  const Expr at = coordinates(*access).back();
  const bool begins =
      values_.is_at_least(at, 0) && (!dim.low || is_constant(dim.low, 0) || values_.is_less(dim.low, at, 0));
  return begins && bytes % fewest_bytes_anywhere == 0 && access->view.buffer->type.bytes() <= 4;
}

// Whether such a piece is loaded and stored wherever it is: no aligned one is known to be there. A program
// with products copies rows because the copy engine does not take them.
bool ElementPrinter::asks_for_no_place(const For& n, const Stmt& s, int width) const {
  if (!may_be_anywhere(n, s, width)) return false;
  const Access& access = *access_of(s);
  const bool by_threads =
      (!target_.copy_engine || any_products_) && access.view.buffer->role != Role::workspace;
  return by_threads || !is_aligned(n, access, width) || ends_within_piece(n, access, width);
}

// Whether the piece begins where the tensor itself would have aligned words: there is one row, of which only
// the end cuts pieces.
bool ElementPrinter::begins_aligned(const For& n, const Access& access, int width) {
  const Buffer& tensor = *access.view.buffer;
  if (tensor.rank() != 1 || !supposes_alignment(tensor) || !is_aligned(n, access, width)) return false;
  require_aligned(access.view.buffer);
  return true;
}

// Whether the row ends within a piece of a tile that reaches beyond it.
bool ElementPrinter::ends_within_piece(const For& n, const Access& access, int width) const {
  const Expr last = corner(n, coordinates(access).back(), true);
  const Expr ends[] = {end_of_row(access), access.view.shape.back()};
  return std::any_of(std::begin(ends), std::end(ends), [&](const Expr& end) {
    return is_constant(end) && constant_value(end) % width != 0 && !values_.is_less(last, end);
  });
}

void ElementPrinter::add_anywhere(const Layout& layout, const Stmt& s, Vectors& vectors) {
  const View& view = access_of(s)->view;
  vectors.names.emplace(s.get(), names_.unique("pack"));
  vectors.anywhere.insert(s.get());
  vectors.lanes = lanes_along_rows(layout, vectors.width);
  if (view.is_tile()) return;
  const std::string neighbours =
      fmt::format("{}_s{} == 1", tensors_.at(view.buffer.get()), view.shape.size() - 1);
  if (!contains(vectors.conditions, neighbours)) vectors.conditions.push_back(neighbours);
}

// Where rows end within pieces. All that the loop touches is then in registers or in such rows, since
// elements of a piece that do not exist take part in everything else.
std::optional<Vectors> ElementPrinter::find_cut_vectors(const For& n, const Layout& layout) {
  const std::int64_t run = run_along_rows(layout, true);
  const auto found = run > 1 ? row_accesses(n) : std::nullopt;
  if (!found || found->empty()) return std::nullopt;
  int least = most_bytes;
  for (const Stmt* s : *found) least = std::min(least, access_of(*s)->view.buffer->type.bytes());
  Vectors result;
  result.width = static_cast<int>(std::min<std::int64_t>(run, most_bytes / least));
  for (const Stmt* s : *found) {
    if (!may_be_anywhere(n, *s, result.width)) return std::nullopt;
    add_anywhere(layout, *s, result);
  }
  return runs_outside(n, &result) ? std::optional(result) : std::nullopt;
}

// How many elements the row has from the piece's first on, of those that a thread or its neighbour has.
std::string ElementPrinter::left_in_row(const For& n, const Access& access, int width) {
  const std::size_t d = access.view.dims.size() - 1;
  const Expr at = coordinates(access)[d];
  Texts limits;
  const auto limit = [&](const Expr& end) {
    if (end && !values_.is_less(at, end))
      limits.push_back(fmt::format("tg::left_of_row({}, {})", bare(value(end)), bare(value(at))));
  };
  limit(access.view.shape[d]);
  limit(access.view.dims[d].high);
  const auto last = static_cast<int>(n.index.size()) - 1;
  if (loop_->layout->overhangs(last))
    limits.push_back(fmt::format("{} - {}", loop_->layout->shape()[static_cast<std::size_t>(last)],
                                 variable_text(n.index.back())));
  if (limits.empty()) return std::to_string(2 * width);
  std::string result = limits[0];
  for (std::size_t i = 1; i < limits.size(); ++i) result = fmt::format("tg::min({}, {})", result, limits[i]);
  return result;
}

// A vector in shared memory begins at a multiple of all units, as does a row that is laid down; a run and the
// rows behind the first begin anywhere.
void ElementPrinter::load_piece_of_tile(const For& n, const Access& access, const std::string& name,
                                        int width, const std::string& exists) {
  const Buffer& tile = *access.view.buffer;
  const passes::CopyRings& rings = plan_.copy_rings;
  const bool is_vector = rings.laid.contains(&tile) || (tile.rank() == 1 && !rings.runs.contains(&tile));
  const std::string load =
      is_vector && begins_aligned_in_row(n, access, width) ? "load_pack_if" : "load_from_run";
  out_.line(fmt::format("const auto {} = tg::{}<{}>({}, {});", name, load, width, address(access).pointer,
                        exists.empty() ? "true" : exists));
}

ElementPrinter::Texts ElementPrinter::begin_piece_anywhere(const For& n, const Vectors& vectors,
                                                           const Stmt& s, const std::string& exists) {
  const Access& access = *access_of(s);
  const std::string& name = vectors.names.at(s.get());
  if (access.view.is_tile()) return load_piece_of_tile(n, access, name, vectors.width, exists), Texts{};
  unlimited_ = {access.view.dims.size() - 1};
  const auto [pointer, within_limits] = address(access);
  unlimited_.clear();
  // Elements beyond the loop's own are never looked at, those beyond a tensor's end are zeros.
  const Expr at = coordinates(access).back();
  const ViewDim& dim = access.view.dims.back();
  const bool exist_all =
      values_.is_less(at, access.view.shape.back()) && (!dim.high || values_.is_less(at, dim.high));
  std::string left = left_in_row(n, access, vectors.width), inside = both(exists, within_limits);
  if (!as<Load>(s)) inside = both(both(inside, only_one()), row_exists_);
  if (!inside.empty()) left = fmt::format("{} ? {} : 0", inside, left);
  if (as<Load>(s)) {
    const char* load = begins_aligned(n, access, vectors.width) ? "load_to_end" : "load_anywhere";
    out_.line(fmt::format("const auto {} = tg::{}<{}, {}>({}, {});", name, load, vectors.width,
                          within_limits.empty() && exist_all ? "false" : "true", pointer, left));
    return {};
  }
  out_.line(fmt::format("tg::Pack<{}, {}> {};", element_type(access.view.buffer->type), vectors.width, name));
  return {fmt::format("tg::store_anywhere<{}>({}, {}, {});", vectors.lanes, pointer, name, left)};
}

}  // namespace tegula::codegen
