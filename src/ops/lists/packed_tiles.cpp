#include "ops/lists/packed_tiles.hpp"

#include "ops/linear/chunk_owners.hpp"
#include "ops/linear/sequences.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/splits.hpp"

namespace tegula::ops {

using namespace lang;

PackedTiles::PackedTiles(const char* name, const lang::Tensor& fences, int rows)
    : owners_(input(name, {Dim("tiles_of_" + std::string(name))}, i32)), fences_(fences), rows_(rows) {}

// Fences on a GPU are not checked: where they fall, no tile has a negative number.
PackedTiles::Place PackedTiles::place(const Expr& x) const {
  Expr sequence = owners_(x);
  return {sequence, max(x - first_chunk(fences_, sequence, rows_), 0)};
}

namespace {

constexpr int shares_of_gpu = 176, threads_of_shares = 128;

Tensor numbers(const char* name, const Expr& extent) { return workspace(name, {extent}, i32); }

// So many steps of a share, or half as many more.
Expr parts_of(const Expr& steps, const Expr& each) { return max((steps + each / 2) / each, 1); }

}  // namespace

KeyShares::KeyShares(const Tensor& q_begin, const Tensor& k_begin, const Expr& queries, const Expr& columns,
                     int rows, int keys)
    : q_begin_(q_begin),
      k_begin_(k_begin),
      owners_(
          numbers("owners_of_shares", shares_of_gpu / max(columns, 1) + queries / rows + q_begin.extent(0))),
      first_(numbers("first_shares", q_begin.extent(0))),
      parts_(numbers("parts_of_tiles", q_begin.extent(0))),
      columns_(columns),
      rows_(rows),
      keys_(keys) {}

Expr KeyShares::tiles_of(const Expr& n) const {
  Expr next = n + 1;
  return max(ceildiv(q_begin_(next) - q_begin_(n), rows_), 0);
}

Expr KeyShares::steps_of(const Expr& n) const {
  Expr next = n + 1;
  return max(ceildiv(k_begin_(next) - k_begin_(n), keys_), 0);
}

void KeyShares::record_grid() const {
  grid(ceildiv(sequences(), threads_of_shares), {.threads = threads_of_shares},
       [&](Index x) { parallel(threads_of_shares, [&](Index i) { write_shares(x, i); }); });
}

// Each sequence adds up the shares of those before it.
void KeyShares::write_shares(const Expr& x, const Expr& i) const {
  Expr own = x * threads_of_shares + i;
  Var total = 0, most = 0, before = 0, all_shares = 0;
  serial(sequences(), [&](Index n) {
    Expr steps = steps_of(n);
    total += steps * tiles_of(n);
    most = max(most, steps);
  });
  const Var each =
      max(max(ceildiv(total * columns_, shares_of_gpu), ceildiv(most * 2, 2 * most_splits - 1)), 1);
  serial(sequences(), [&](Index n) {
    Expr shares = tiles_of(n) * parts_of(steps_of(n), each);
    before += select(n < own, shares, 0);
    all_shares += shares;
  });
  when(own < sequences(), [&] {
    Expr parts = parts_of(steps_of(own), each);
    first_(own) = before;
    parts_(own) = parts;
    serial(min(tiles_of(own) * parts, max(count() - before, 0)), [&](Index n) { owners_(before + n) = own; });
  });
  when(x == 0, [&] {
    serial(ceildiv(max(count() - all_shares - i, 0), threads_of_shares),
           [&](Index n) { owners_(all_shares + i + n * threads_of_shares) = -1; });
  });
}

KeyShares::Share KeyShares::share(const Expr& x) const {
  Expr owner = owners_(x), sequence = max(owner, 0), parts = max(parts_(sequence), 1),
       number = max(x - first_(sequence), 0);
  return {owner >= 0, sequence, number / parts, number % parts, parts};
}

bool should_share_keys(std::int64_t queries, std::int64_t keys, std::int64_t sequences, std::int64_t columns,
                       int rows) {
  constexpr std::int64_t many_keys = 8;  // for a query: then results of parts are few beside them
  const std::int64_t rounds = keys >= many_keys * queries ? 8 : 2;
  return sequences > 1 && (queries / rows + sequences) * columns <= rounds * gpu_processors;
}

bool should_list_tiles(std::int64_t tokens, std::int64_t sequences, std::int64_t longest, int rows) {
  constexpr double many_more = 1.25;
  const std::int64_t of_grid = (longest + rows - 1) / rows * sequences, needed = tokens / rows + sequences;
  return static_cast<double>(of_grid) > many_more * static_cast<double>(needed);
}

tegula::Tensor list_tiles(Launch& launch, const TensorRef& fences, std::int64_t tokens, int rows) {
  return listed_owners(launch, fences, tokens, {rows});
}

}  // namespace tegula::ops
