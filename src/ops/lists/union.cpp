#include "ops/lists/union.hpp"

namespace tegula::ops {

using namespace lang;

Expr TokenTile::limit(const Expr& token) const {
  return c.causal ? clamp(position(token) + 1, 0, keys) : keys;
}

Expr Selection::block(const TokenTile& tile, const Expr& token, const Expr& e) const {
  Expr row = tile.first + token, exists = row < tile.count;
  Expr own = choice(row, e);
  auto checked = [&](const Expr& there, const Expr& number) -> Expr {
    Expr blocks = ceildiv(tile.limit(token), tile.c.block);
    return select(there && number >= 0 && number < blocks, number, no_row);
  };
  Expr listed = exists && e < min(length(row), tile.c.entries);
  if (!tile.c.diagonal) return checked(listed, own);
  Expr position = tile.position(token), is_own_block = e == tile.c.entries;
  return checked(listed || (is_own_block && exists && position >= 0),
                 select(is_own_block, position / tile.c.block, own));
}

Expr Selection::length(const Expr& token) const {
  Expr entries = choice.extent(1);
  return counts ? clamp((*counts)(token), 0, entries) : entries;
}

Selection selection_of_head(const HeadViews& head, const lang::Tensor& choice,
                            const std::optional<lang::Tensor>& counts) {
  Selection result{head.of_queries(choice), {}};
  if (counts) result.counts.emplace(head.of_queries(*counts));
  return result;
}

UnionList::UnionList(const TokenTile& tile, const Selection& selection)
    : c(tile.c),
      width_(c.width()),
      list_({c.queries * width_}, i32),
      times_({c.queries * width_, c.queries}, i32),
      named_({c.queries * width_}, i32),
      first_of_({c.queries * width_}, i32),
      place_({c.queries * width_}, i32),
      count_(0) {
  const int all_entries = c.queries * width_;
  parallel(all_entries, [&](Index n) { named_(n) = selection.block(tile, n / width_, n % width_); });
  parallel(all_entries, [&](Index n) {
    Expr mine = named_(n);
    Var first = Expr(n);
    serial(n, [&](Index m) { first = min(first, select(named_(m) == mine, m, n)); });
    first_of_(n) = first;
  });
  serial(all_entries, [&](Index n) {
    Expr block = named_(n);
    when(block != no_row && first_of_(n) == n, [&] {
      list_(count_) = block;
      place_(n) = count_;
      count_ += 1;
    });
  });
  if (!c.has_times()) return;
  clear(times_);
  parallel(all_entries, [&](Index n) {
    when(named_(n) != no_row, [&] {
      if (c.repeats)
        atomic_add(times_(place(n), n / width_), 1);
      else
        atomic_max(times_(place(n), n / width_), 1);
    });
  });
}

Expr UnionList::is_first(const Expr& entry) {
  Var first = 1;
  serial(range(entry / width_ * width_, entry),
         [&](Index m) { first = select(Expr(named_(m)) == Expr(named_(entry)), 0, first); });
  return Expr(first) == 1;
}

}  // namespace tegula::ops
