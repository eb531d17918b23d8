// What a loop over registers loads for several of its elements stands in front of all of them: a thread waits
// for memory once, and not once for each run of neighbours.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/effects.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr std::int64_t most_common_registers = 32;  // for all numbers, and for all pieces

// Whether the last coordinate of a register depends on its place within its run alone.
bool repeats_columns(const layout::Layout& layout, std::int64_t run) {
  std::int64_t before = 1;
  for (const layout::Digit& digit : layout.registers()) {
    if (digit.stride.back() != 0 && before * digit.extent > run) return false;
    before *= digit.extent;
  }
  return true;
}

// Whether the place of the piece is known in front of the loop, and the same for all rows.
bool is_of_columns(const passes::Piece& piece, const For& n, const Effects& inside) {
  std::vector<Expr> place = coordinates(piece.first);
  for (const ViewDim& dim : piece.first.view.dims)
    for (const Expr& limit : {dim.low, dim.high})
      if (limit) place.push_back(limit);
  const auto is_known = [&](const VariablePtr& v) {
    return v == n.index.back() ||
           !(contains(n.index, v) || contains(inside.defined, v) || contains(inside.assigned, v));
  };
  bool all = true;
  for (const Expr& e : place) for_each_variable(e, [&](const VariablePtr& v) { all &= is_known(v); });
  return all;
}

}  // namespace

bool CudaGridPrinter::has_common_loads(const For& n, const Layout& layout, const Vectors& vectors) const {
  const std::int64_t count = layout.register_count(), runs = count / vectors.width;
  if (vectors.steady.empty() || runs < 2 || count % vectors.width != 0 || !part_.is_all()) return false;
  if (runs * static_cast<std::int64_t>(vectors.steady.size()) > most_common_registers) return false;
  for (int d = 0; d < layout.rank(); ++d)
    if (layout.overhangs(d)) return false;
  const Effects inside = all_effects(n.body);
  return !inside.writes_tensors() && !inside.leaves;
}

// Numbers that the elements of a run share, an array of them with an element for each run.
void CudaGridPrinter::load_numbers_of_runs(const For& n, const Layout& layout, const Vectors& vectors,
                                           const std::function<std::string()>& name) {
  const std::int64_t count = layout.register_count();
  std::vector<std::pair<Stmt, std::string>> arrays;
  for (const Stmt& s : n.body) {
    if (!vectors.steady.contains(s.get())) continue;
    arrays.emplace_back(s, names_.unique("of_runs"));
    out_.line(fmt::format("{} {}[{}];", scalar_type(as<Load>(s)->variable->type), arrays.back().second,
                          count / vectors.width));
  }
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int g = 0; g < {}; g += {}) {{", count, vectors.width));
  out_.line("const int r = g;");
  name();
  for (const auto& [s, array] : arrays) {
    body({s});
    out_.line(fmt::format("{}[g / {}] = {};", array, vectors.width, variable_text(as<Load>(s)->variable)));
  }
  out_.close();
  for (const auto& [s, array] : arrays)
    in_front_.emplace(s.get(), fmt::format("{}[g / {}]", array, vectors.width));
}

// Pieces of rows of tensors that all runs need, an array with an element for each place within a run.
void CudaGridPrinter::load_pieces_of_columns(const For& n, const Layout& layout, const Vectors& vectors,
                                             const std::function<std::string()>& name) {
  if (!repeats_columns(layout, vectors.width)) return;
  const Effects inside = all_effects(n.body);
  std::int64_t bytes = 0;
  for (const passes::Piece& piece : pieces_.pieces) {
    bytes += vectors.width * piece.width * piece.first.view.buffer->type.bytes();
    if (!is_of_columns(piece, n, inside)) return;
  }
  if (bytes == 0 || bytes > 4 * most_common_registers) return;
  Texts arrays;
  for (const passes::Piece& piece : pieces_.pieces) {
    arrays.push_back(names_.unique("pieces"));
    out_.line(fmt::format("tg::Pack<{}, {}> {}[{}];", element_type(piece.first.view.buffer->type),
                          piece.width, arrays.back(), vectors.width));
  }
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int e = 0; e < {}; ++e) {{", vectors.width));
  out_.line("const int r = e;");
  name();
  for (std::size_t k = 0; k < arrays.size(); ++k)
    out_.line(fmt::format("{}[e] = {};", arrays[k], loaded_piece(k)));
  out_.close();
  for (const std::string& array : arrays) pieces_in_front_.push_back(array + "[e]");
}

}  // namespace tegula::codegen
