#include "ops/lists/walk.hpp"

#include "ops/pieces/gradient.hpp"

namespace tegula::ops {

using namespace lang;

TileOfBlocks tile_of_blocks(int block, int wanted) {
  if (block <= wanted) return {block, wanted / block * block};
  const int parts = ceildiv(block, wanted);
  return {block, ceildiv(block, parts)};
}

Expr BlockTile::row(const Expr& r) const { return row_of ? Expr((*row_of)(r)) : first + r; }

Expr BlockTile::counts(const Expr& row) const { return row_of ? row != no_row : row < end; }

Expr BlockTile::place(const Expr& r) const {
  return row_of ? step * (shape.extent / shape.block) + r / shape.block : *entry;
}

Expr BlockTile::ragged() const {
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
  if (pack == 1)
    load_into(tile);
  else
    load_into(tile.reshape({shape.extent, pack, features}));
}

void BlockTile::load_vector(const Tensor& from, Shared& tile, int pack) const {
  if (!row_of) {
    ops::load_vector(from, first, tile, pack);
    return;
  }
  parallel(tile, [&](Index i) {
    Expr at = row(i / pack);
    tile(i) = pack == 1 ? Expr(from(at)) : Expr(from(i % pack, at));
  });
}

void walk_blocks(const TileOfBlocks& shape, const std::function<Expr(const Expr&)>& list, const Expr& count,
                 const std::function<void(const BlockTile&)>& body) {
  if (!shape.gathers()) {
    const int parts = shape.parts();
    pipelined(parts == 1 ? count : count * parts, {.stages = 2}, [&](Index t) {
      Expr entry = parts == 1 ? Expr(t) : t / parts, block = list(entry) * shape.block;
      Expr first = parts == 1 ? block : block + t % parts * shape.extent;
      body({first, block + shape.block, entry, nullptr, t, shape});
    });
    return;
  }
  const int blocks = shape.extent / shape.block;
  pipelined(ceildiv(count, blocks), {.stages = 2}, [&](Index t) {
    Shared row_of({shape.extent}, i32);
    parallel(shape.extent, [&](Index r) {
      Expr n = t * blocks + r / shape.block;
      row_of(r) = select(n < count, list(min(n, count - 1)) * shape.block + r % shape.block, no_row);
    });
    body({t, t, std::nullopt, &row_of, t, shape});
  });
}

}  // namespace tegula::ops
