// The limits of tensors that pieces of a row are asked for: once for a loop, or each by itself.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/element_limits.hpp"
#include "codegen/cuda/element_printer.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Rows from one that is found when the kernel runs to another.
bool is_range(const ViewDim& d) { return d.low && d.high && !is_constant(d.low); }

}  // namespace

const Access* access_of(const Stmt& s) {
  if (const auto* load = as<Load>(s)) return &load->from;
  if (const auto* atomic = as<Atomic>(s)) return &atomic->to;
  const auto* store = as<Store>(s);
  return store ? &store->to : nullptr;
}

Expr corner(const For& n, const Expr& e, bool largest) {
  Substitution by;
  for (std::size_t d = 0; d < n.index.size(); ++d) {
    const DType held = n.end[d]->held();
    const Expr last = is_constant(n.end[d]) ? constant(held, constant_value(n.end[d]) - 1)
                                            : make(Op::sub, held, {n.end[d], constant(held, 1)}, e->at);
    const Expr value = largest ? last : constant(n.end[d]->held(), 0);
    const DType type = n.index[d]->type;
    by.emplace(n.index[d], value->held() == type ? value : make(Op::cast, type, {value}, e->at));
  }
  return substitute(e, by);
}

bool defines(const Body& body, const VariablePtr& v) {
  bool found = false;
  for_each_stmt(body, [&](const Stmt& s) {
    for_each_definition(s, [&](const VariablePtr& own) { found |= own == v; });
  });
  return found;
}

std::optional<std::int64_t> stride_of_workspace(const Buffer& tensor, std::size_t dim) {
  if (tensor.role != Role::workspace || tensor.is_tile()) return std::nullopt;
  std::int64_t stride = 1;
  for (std::size_t d = dim + 1; d < tensor.shape.size(); ++d) {
    if (!is_constant(tensor.shape[d])) return std::nullopt;
    stride *= constant_value(tensor.shape[d]);
  }
  return stride;
}

bool has_whole_rows(const Buffer& tensor) {
  if (tensor.rank() < 2) return false;
  const auto row = stride_of_workspace(tensor, tensor.shape.size() - 2);
  return row && *row * tensor.type.bytes() % most_bytes == 0;
}

// The dimensions whose coordinates no statement of the loop finds.
std::vector<std::size_t> ElementPrinter::dims_known_before(const For& n, const Access& access) const {
  std::vector<std::size_t> result;
  const std::vector<Expr> at = coordinates(access);
  for (std::size_t d = 0; d < at.size(); ++d) {
    bool found = false;
    for_each_variable(at[d], [&](const VariablePtr& v) { found |= defines(n.body, v); });
    if (!found) result.push_back(d);
  }
  return result;
}

// The row's dimension if its limits divide the row between pieces, so that each is inside or outside.
std::vector<std::size_t> ElementPrinter::dims_of_some_pieces(const For& n, const Access& access,
                                                             int width) const {
  const std::size_t d = access.view.dims.size() - 1;
  const ViewDim& dim = access.view.dims[d];
  const Expr& extent = access.view.shape[d];
  if (access.view.is_tile() || dim.low || dim.high || !is_constant(extent)) return {};
  const Expr at = coordinates(access)[d], least = simplify(corner(n, at, false), facts_),
             most = simplify(corner(n, at, true), facts_);
  if (!is_constant(least) || !is_constant(most)) return {};
  const std::int64_t first = constant_value(least), end = constant_value(extent);
  const bool all = first >= 0 && constant_value(most) < end;
  return all || first % width != 0 || end % width != 0 ? std::vector<std::size_t>() : std::vector{d};
}

// Dimensions whose limits cut off rows of a tile that is stored, such as those of the next group, or that are
// looked up for each row: each piece asks for its own row, and others of the tile are stored as pieces, too.
// What is loaded from rows that are whole in any call needs no other way beside its pieces then.
std::vector<std::size_t> ElementPrinter::dims_of_some_rows(const For& n, const Stmt& s) const {
  const Access* to = access_of(s);
  if (!to || to->view.is_tile()) return {};
  if (as<Load>(s)) {
    if (!has_whole_rows(*to->view.buffer)) return {};
    std::vector<std::size_t> rows = dims_known_before(n, *to);
    std::erase(rows, to->view.dims.size() - 1);
    return rows;
  }
  std::vector<std::size_t> result;
  const std::vector<Expr> at = coordinates(*to);
  const std::vector<VariablePtr> found = rows_found_ ? rows_found_->found() : std::vector<VariablePtr>();
  for (const std::size_t d : dims_known_before(n, *to)) {
    const bool looked_up =
        std::any_of(found.begin(), found.end(), [&](const VariablePtr& v) { return uses(at[d], v); });
    if (d + 1 < to->view.dims.size() && (looked_up || is_range(to->view.dims[d]))) result.push_back(d);
  }
  return result;
}

const Expr& end_of_row(const Access& access) {
  const ViewDim& dim = access.view.dims.back();
  return dim.high ? dim.high : access.view.shape.back();
}

// Whether all of the loop's elements of a row are inside of the tensor or all are outside: their number
// divides both where they begin and where the row ends.
bool ElementPrinter::is_cut_as_a_whole(const For& n, const Access& access) const {
  const Expr at = coordinates(access).back();
  if (!has_affine_form(at->held())) return false;
  const Affine first = affine(corner(n, at, false));
  const auto last = difference(affine(corner(n, at, true)), first);
  if (!last || !last->is_constant() || last->constant < 0) return false;
  const std::int64_t size = last->constant + 1;
  return divisor(first, facts_) % size == 0 && divisor(affine(end_of_row(access)), facts_) % size == 0 &&
         divisor(affine(access.view.shape.back()), facts_) % size == 0;
}

// The row's dimension if its end may cut off pieces: where that is a multiple of their width, each of them
// is inside or outside.
std::vector<std::size_t> ElementPrinter::dims_of_cut_pieces(const For& n, const Access& access,
                                                            int width) const {
  const std::size_t d = access.view.dims.size() - 1;
  const ViewDim& dim = access.view.dims[d];
  if (access.view.is_tile() || !supposes_alignment(*access.view.buffer)) return {};
  if (dim.low && divisor(affine(dim.low), facts_) % width != 0) return {};
  for (const Expr& end : {end_of_row(access), access.view.shape[d]})
    if (is_constant(end) && constant_value(end) % width != 0) return {};
  const std::vector<std::size_t> known = dims_known_before(n, access);
  if (std::find(known.begin(), known.end(), d) == known.end() || is_cut_as_a_whole(n, access)) return {};
  if (values_.is_less(corner(n, coordinates(access)[d], true), end_of_row(access))) return {};
  return {d};
}

// At multiples of how many bytes rows begin, for pieces of so many elements: rows that follow each other, and
// end at multiples of a shorter piece, begin there.
int ElementPrinter::unit_of_pieces(const Buffer& tensor, int width) {
  const int bytes = tensor.type.bytes(), piece = std::min(most_bytes, width * bytes);
  const Expr& row = tensor.shape.back();
  const bool is_cut = is_constant(row) && constant_value(row) * bytes % most_bytes != 0;
  return is_cut ? piece : most_bytes;
}

// Limits that each piece asks for itself.
std::vector<std::size_t> ElementPrinter::dims_limited_by_piece(const For& n, const Stmt& s, int width) const {
  std::vector<std::size_t> result = dims_of_some_rows(n, s);
  for (const std::size_t d : dims_of_cut_pieces(n, *access_of(s), width)) result.push_back(d);
  return result;
}

void ElementPrinter::add_conditions(const For& n, const Access& access, int width, Texts& conditions,
                                    const std::vector<std::size_t>& asked_by_piece) {
  const View& view = access.view;
  const auto add = [&](const std::string& text) {
    if (std::find(conditions.begin(), conditions.end(), text) == conditions.end()) conditions.push_back(text);
  };
  if (view.is_tile()) return;
  if (supposes_alignment(*view.buffer)) {
    require_aligned(view.buffer, unit_of_pieces(*view.buffer, width));
  } else {
    const std::string name = tensors_.at(view.buffer.get());
    const int bytes = view.buffer->type.bytes(), unit = std::min(most_bytes, width * bytes);
    std::string strides;
    for (std::size_t d = 0; d + 1 < view.shape.size(); ++d) strides += fmt::format(", {}_s{}", name, d);
    add(fmt::format("{}_s{} == 1", name, view.shape.size() - 1));
    add(fmt::format("tg::is_aligned<{}>({}{})", unit, name, strides));
  }
  std::vector<std::size_t> dims = dims_known_before(n, access);
  for (const std::size_t d : asked_by_piece) std::erase(dims, d);
  add_corner_limits(n, access, dims, conditions);
}

// Whether the first and the last of the elements are inside, in these dimensions.
void ElementPrinter::add_corner_limits(const For& n, const Access& access,
                                       const std::vector<std::size_t>& dims, Texts& conditions) {
  const std::vector<Expr> at = coordinates(access);
  for (const std::size_t d : dims) {
    for (const bool largest : {false, true}) {
      const Expr c = corner(n, at[d], largest);
      Texts guards;
      add_limits(access.view, d, c, compared(c, value(c)), guards);
      for (const std::string& guard : guards)
        if (std::find(conditions.begin(), conditions.end(), guard) == conditions.end())
          conditions.push_back(guard);
    }
  }
}

}  // namespace tegula::codegen
