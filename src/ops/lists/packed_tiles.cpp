#include "ops/lists/packed_tiles.hpp"

#include "ops/linear/chunk_owners.hpp"
#include "ops/linear/sequences.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/splits.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

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

KeyShares::KeyShares(Lengths lengths, const Expr& columns)
    : lengths_(std::move(lengths)),
      columns_(columns),
      owners_(numbers("owners_of_shares", shares_of_gpu / max(columns, 1) + lengths_.most_tiles)),
      first_(numbers("first_shares", lengths_.sequences)),
      parts_(numbers("parts_of_tiles", lengths_.sequences)) {}

KeyShares::Lengths KeyShares::of_packed(const Tensor& q_begin, const Tensor& k_begin, const Expr& queries,
                                        int rows, int keys) {
  const auto of = [](const Tensor& begin, const Expr& n, int each) {
    Expr next = n + 1;
    return max(ceildiv(begin(next) - begin(n), each), 0);
  };
  Expr sequences = q_begin.extent(0) - 1;
  return {sequences, queries / rows + sequences, [=](const Expr& n) { return of(q_begin, n, rows); },
          [=](const Expr& n) { return of(k_begin, n, keys); }};
}

void KeyShares::record_grid() const {
  grid(ceildiv(lengths_.sequences, threads_of_shares), {.threads = threads_of_shares},
       [&](Index x) { parallel(threads_of_shares, [&](Index i) { write_shares(x, i); }); });
}

// Each sequence adds up the shares of those before it.
void KeyShares::write_shares(const Expr& x, const Expr& i) const {
  Expr own = x * threads_of_shares + i;
  Var total = 0, most = 0, before = 0, all_shares = 0;
  serial(lengths_.sequences, [&](Index n) {
    Expr steps = lengths_.steps(n);
    total += steps * lengths_.tiles(n);
    most = max(most, steps);
  });
  const Var each =
      max(max(ceildiv(total * columns_, shares_of_gpu), ceildiv(most * 2, 2 * most_splits - 1)), 1);
  serial(lengths_.sequences, [&](Index n) {
    Expr shares = lengths_.tiles(n) * parts_of(lengths_.steps(n), each);
    before += select(n < own, shares, 0);
    all_shares += shares;
  });
  when(own < lengths_.sequences, [&] {
    Expr parts = parts_of(lengths_.steps(own), each);
    first_(own) = before;
    parts_(own) = parts;
    serial(min(lengths_.tiles(own) * parts, max(count() - before, 0)),
           [&](Index n) { owners_(before + n) = own; });
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

bool are_uneven(std::int64_t tokens, std::int64_t sequences, std::int64_t longest) {
  return longest * sequences >= 2 * tokens;
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
