// Operations on whole tiles that keep or look at the places of elements: scans, where extremes stand,
// printing.
#include "lang/builder.hpp"
#include "tegula/lang/tile_ops.hpp"

namespace tegula::lang {

namespace {

int dim_of(const char* what, const Tile& tile, int dim, const Loc& at) {
  const int rank = tile.rank(), result = dim < 0 ? dim + rank : dim;
  if (result < 0 || result >= rank)
    fail(at, std::string(what) + " along dim " + std::to_string(dim) + " of a tile of rank " +
                 std::to_string(rank) + "; " +
                 (rank == 0 ? "a tile of rank 0 is one value, which .scalar() reads"
                            : "its dims are 0 to " + std::to_string(rank - 1) + ", and -1 is the last one"));
  return result;
}

void check_starts(const char* what, const Tile& tile, const Tile& starts, const Loc& at) {
  if (!starts.type().is_boolean())
    fail(at, std::string(what) + ": the starts are " + std::string(starts.type().name()) +
                 "; give a tile of boolean, true where a segment begins");
  if (starts.shape() != tile.shape())
    fail(at, std::string(what) + ": the starts are " + shape_text(*starts.view()) + "; they have the shape " +
                 shape_text(*tile.view()) + " of the tile");
}

Fragment scan(ir::ReduceOp op, const Tile& tile, const Tile* starts, const ScanOptions& options,
              const Loc& at) {
  const std::string what = "scan_" + std::string(ir::name_of(op));
  auto& builder = Builder::current(at);
  builder.need_block(what.c_str(), at);
  builder.check_scope(*tile.view(), at);
  if (starts) builder.check_scope(*starts->view(), at);
  const int dim = dim_of(what.c_str(), tile, options.dim, at);
  if (tile.type().is_boolean()) fail(at, what + " of boolean; write select(tile(i), 1, 0) to a tile of i32");
  if (starts) check_starts(what.c_str(), tile, *starts, at);
  Fragment result(tile.shape(), compute_type(tile.type()), at);
  ir::Scan node{op, *tile.view(), dim, *result.view(), options.exclusive, options.reverse};
  if (starts) node.starts = *starts->view();
  builder.add(ir::statement(std::move(node), at));
  return result;
}

// The element at `index`, whatever the tile's rank.
Expr element(const Tile& tile, const std::vector<Index>& index, const Loc& at) {
  std::vector<Operand> operands;
  for (const Index& i : index) operands.emplace_back(i, at);
  return Element{tile.view(), operands, at};
}

std::vector<Operand> extents_of(const Tile& tile, const Loc& at) {
  std::vector<Operand> extents;
  for (const int extent : tile.shape()) extents.emplace_back(extent, at);
  return extents;
}

// A tile of rank 0 has no index to loop over: it is filled with the value that it has, or with the other one.
void replace(Fragment& tile, int from, int to, const Loc& at) {
  const auto instead_of = [&](const Operand& value) {
    return Operand(select(value == Operand(from, at), Operand(to, at), value), at);
  };
  if (tile.rank() == 0) return fill(tile, instead_of(Operand(tile.scalar(at), at)), at);
  detail::parallel(extents_of(tile, at), at, [&](const std::vector<Index>& index) {
    std::vector<Operand> here;
    for (const Index& i : index) here.emplace_back(i, at);
    Element(tile.view(), here, at) = instead_of(Operand(element(tile, index, at), at));
  });
}

// The least place among those whose element is the extreme one.
Fragment place_of(const char* what, const Tile& tile, int dim, bool largest, const Loc& at) {
  const Trace trace(what, at);
  dim = dim_of(what, tile, dim, at);
  if (tile.type().is_boolean()) fail(at, std::string(what) + " of boolean; use reduce_any or reduce_all");
  if (tile.rank() > 3) fail(at, std::string(what) + " of a tile of rank 4 or more; use slice() or reshape()");
  const Fragment best = largest ? reduce_max(tile, dim, at) : reduce_min(tile, dim, at);
  Fragment places(tile.shape(), i32, at);
  const int none = std::numeric_limits<int>::max();
  detail::parallel(extents_of(tile, at), at, [&](const std::vector<Index>& index) {
    std::vector<Index> row;
    for (int d = 0; d < tile.rank(); ++d)
      if (d != dim) row.push_back(index[static_cast<std::size_t>(d)]);
    const Expr is_best = Operand(element(tile, index, at), at) == Operand(element(best, row, at), at);
    std::vector<Operand> here;
    for (const Index& i : index) here.emplace_back(i, at);
    Element(places.view(), here, at) =
        Operand(select(is_best, Operand(index[static_cast<std::size_t>(dim)], at), Operand(none, at)), at);
  });
  Fragment result = reduce_min(places, dim, at);
  replace(result, none, 0, at);
  return result;
}

void print_elements(const std::string& label, const Tile& tile, std::vector<Index>& index, const Loc& at) {
  const int dim = static_cast<int>(index.size());
  if (dim == tile.rank()) return print(label, Operand(element(tile, index, at), at));
  const Range range{Operand(0, at), Operand(tile.extent(dim), at)};
  detail::loop(detail::Loop::serial, range, 0, [&](const Index& i) {
    index.push_back(i);
    print_elements(label, tile, index, at);
    index.pop_back();
  });
}

}  // namespace

// clang-format off
Fragment scan_sum(const Tile& t, ScanOptions o, Loc at) { return scan(ir::ReduceOp::sum, t, nullptr, o, at); }
Fragment scan_max(const Tile& t, ScanOptions o, Loc at) { return scan(ir::ReduceOp::max, t, nullptr, o, at); }
Fragment scan_min(const Tile& t, ScanOptions o, Loc at) { return scan(ir::ReduceOp::min, t, nullptr, o, at); }
Fragment scan_sum(const Tile& t, const Tile& s, ScanOptions o, Loc at) { return scan(ir::ReduceOp::sum, t, &s, o, at); }
Fragment scan_max(const Tile& t, const Tile& s, ScanOptions o, Loc at) { return scan(ir::ReduceOp::max, t, &s, o, at); }
Fragment scan_min(const Tile& t, const Tile& s, ScanOptions o, Loc at) { return scan(ir::ReduceOp::min, t, &s, o, at); }
Fragment reduce_argmax(const Tile& t, int dim, Loc at) { return place_of("reduce_argmax", t, dim, true, at); }
Fragment reduce_argmin(const Tile& t, int dim, Loc at) { return place_of("reduce_argmin", t, dim, false, at); }
// clang-format on

// Uses a copy in shared memory, where every thread can read every element.
void print(const std::string& label, const Tile& tile, Loc at) {
  Builder::current(at).need_block("print() of a tile", at);
  Shared all(tile.shape(), tile.type(), at);
  copy(tile, all, {}, at);
  std::vector<Index> index;
  print_elements(label, all, index, at);
}

}  // namespace tegula::lang
