#include "ops/lists/walk.hpp"

#include "ops/pieces/views.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

TileOfBlocks tile_of_blocks(int block, int wanted) {
  if (block <= wanted) return {block, wanted / block * block};
  const int tiles = ceildiv(block, wanted);
  return {block, ceildiv(block, tiles)};
}

namespace {

// The tensor row of a tile row; blocks start at `begins`.
Expr row_of_joined(const BlockTile& tile, const Expr& r, std::size_t i = 0) {
  Expr own = tile.begins[i] + (r - static_cast<int>(i) * tile.shape.block);
  if (i + 1 == tile.begins.size()) return own;
  return select(r < static_cast<int>(i + 1) * tile.shape.block, own, row_of_joined(tile, r, i + 1));
}

}  // namespace

Expr BlockTile::row(const Expr& r) const {
  if (row_of) return (*row_of)(r);
  return begins.empty() ? first + r : select(r < end, row_of_joined(*this, r), no_row);
}

Expr BlockTile::counts(const Expr& row) const { return shape.gathers() ? row != no_row : row < end; }

Expr BlockTile::place(const Expr& r) const {
  return shape.gathers() ? step * shape.blocks() + r / shape.block : *entry;
}

Expr BlockTile::ragged() const {
  if (!begins.empty()) return end < shape.extent;
  if (row_of) return row(shape.extent - 1) == no_row;
  return shape.block % shape.extent == 0 ? Expr(false) : first + shape.extent > end;
}

void BlockTile::load(const Tensor& from, Shared& tile, int pack) const {
  const int features = tile.extent(1);
  auto load_into = [&](const lang::Target& to) {
    if (row_of)
      gather(
          from, [&](Index r) -> Expr { return row(r); }, to);
    else
      copy(from.at(first), to);
  };
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const int begin = static_cast<int>(i) * shape.block;
    const Subscript rows = range(begin, begin + shape.block);
    if (pack == 1)
      copy(from.at(begins[i]), tile.slice(rows, all));
    else
      copy(from.at(begins[i]), tile.reshape({shape.extent, pack, features}).slice(rows, all, all));
  }
  if (!begins.empty()) return;
  if (pack == 1)
    load_into(tile);
  else
    load_into(tile.reshape({shape.extent, pack, features}));
}

void BlockTile::load_vector(const Tensor& from, Shared& tile, int pack) const {
  const bool side_by_side = from.rank() == 1;
  if (!shape.gathers()) {
    ops::load_vector(from, side_by_side && pack > 1 ? first * pack : first, tile, side_by_side ? 1 : pack);
    return;
  }
  for (std::size_t i = 0; side_by_side && i < begins.size(); ++i) {
    const int rows = shape.block * pack, begin = static_cast<int>(i) * rows;
    Shared of_block = tile.slice(range(begin, begin + rows));
    copy(from.at(pack > 1 ? begins[i] * pack : begins[i]), of_block);
  }
  if (side_by_side && !begins.empty()) return;
  parallel(tile, [&](Index i) {
    Expr at = row(i / pack);
    if (pack == 1)
      tile(i) = from(at);
    else if (side_by_side)
      tile(i) = from(select(at == no_row, -1, at) * pack + i % pack);
    else
      tile(i) = from(i % pack, at);
  });
}

namespace {

using List = std::function<Expr(const Expr&)>;
using Body = std::function<void(const BlockTile&)>;

void walk_divided(const TileOfBlocks& shape, const List& list, const Expr& count, const Body& body) {
  const int tiles = shape.tiles_of_block();
  pipelined(tiles == 1 ? count : count * tiles, {.stages = 2}, [&](Index t) {
    Expr entry = tiles == 1 ? Expr(t) : t / tiles, block = list(entry) * shape.block;
    Expr first = tiles == 1 ? block : block + t % tiles * shape.extent;
    body({first, block + shape.block, entry, nullptr, {}, t, shape});
  });
}

// `end` counts rows of the tile.
void walk_joined(const TileOfBlocks& shape, const List& list, const Expr& count, const Body& body) {
  const int blocks = shape.blocks();
  pipelined(ceildiv(count, blocks), {.stages = 2}, [&](Index t) {
    std::vector<Expr> begins;
    for (int i = 0; i < blocks; ++i) begins.push_back(list(min(t * blocks + i, count - 1)) * shape.block);
    Expr end = (count - t * blocks) * shape.block;
    body({begins.front(), end, std::nullopt, nullptr, begins, t, shape});
  });
}

void walk_rows(const TileOfBlocks& shape, const List& list, const Expr& count, const Body& body) {
  const int blocks = shape.blocks();
  const bool full = blocks * shape.block == shape.extent;
  pipelined(ceildiv(count, blocks), {.stages = 2}, [&](Index t) {
    Shared row_of({shape.extent}, i32);
    parallel(shape.extent, [&](Index r) {
      Expr n = t * blocks + r / shape.block;
      Expr exists = full ? n < count : n < count && r < blocks * shape.block;
      row_of(r) = select(exists, list(min(n, count - 1)) * shape.block + r % shape.block, no_row);
    });
    body({t, t, std::nullopt, &row_of, {}, t, shape});
  });
}

}  // namespace

void walk_blocks(const TileOfBlocks& shape, const List& list, const Expr& count, const Body& body) {
  if (!shape.gathers()) return walk_divided(shape, list, count, body);
  if (shape.joins()) return walk_joined(shape, list, count, body);
  walk_rows(shape, list, count, body);
}

}  // namespace tegula::ops
