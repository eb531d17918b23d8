#include "ops/experts/rows.hpp"

#include <algorithm>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int word_bits = 32;
constexpr int most_marks = 8192;       // words of a chunk that say which of its pairs have which expert
constexpr int chunks_at_a_time = 128;  // whose numbers of an expert are added up together

// Each chunk of pairs counts those of every expert; a block for each expert adds up its counts; each chunk
// finds where experts begin and writes its pairs there.
struct Sort {
  const MoeSortKernel& c;
  int words = std::clamp(most_marks / c.lists, 1, word_bits), chunk = words * word_bits;
  Dim pairs{"pairs"};
  Expr groups = scalar("groups", i32), chunks = ceildiv(pairs, chunk);
  Tensor experts = input("experts", {pairs}, i32), order = output("order", {pairs}, i32),
         places = output("places", {pairs}, i32), offsets = output("offsets", {groups + 1}, i32);
  // Pairs of an expert in every chunk, then in all chunks before it; and in all of them.
  Tensor counts = workspace("counts", {c.lists, chunks}, i32), totals = workspace("totals", {c.lists}, i32);

  Shared load_chunk(const Expr& number) const {
    Shared own({chunk}, i32);
    copy(experts.at(number * chunk), own, {.fill = -1});
    return own;
  }

  void count() const {
    grid(chunks, [&](Index n) {
      Shared own = load_chunk(n), numbers({c.lists}, i32);
      assert_that(reduce_max(own).scalar() < groups, "experts are below the number of groups");
      clear(numbers);
      parallel(chunk, [&](Index i) {
        Expr expert = own(i);
        when(expert >= 0 && expert < groups, [&] { atomic_add(numbers(expert), 1); });
      });
      copy(numbers, counts.slice(all, n).at(0));
    });
  }

  void add_chunks() const {
    grid(c.lists, [&](Index expert) {
      Var total = 0;
      serial(ceildiv(chunks, chunks_at_a_time), [&](Index step) {
        const Tensor own = counts.slice(expert);
        Fragment numbers = load(own.at(step * chunks_at_a_time), {chunks_at_a_time});
        Fragment before = scan_sum(numbers, {.exclusive = true});
        parallel(before, [&](Index i) { before(i) += total; });
        copy(before, own.at(step * chunks_at_a_time));
        total += reduce_sum(numbers).scalar();
      });
      totals(expert) = total;
    });
  }

  // Where the pairs of every expert begin.
  Fragment begins() const {
    Fragment numbers = load(totals.at(0), {c.lists});
    return scan_sum(numbers, {.exclusive = true});
  }

  void write() const {
    // Offsets are written even if there are no pairs.
    grid(max(chunks, 1), [&](Index n) {
      Shared own = load_chunk(n), marks({words, c.lists}, u32), before({words, c.lists}, i32);
      Shared first({c.lists}, i32);
      copy(begins(), first);
      Expr total = first(c.lists - 1) + totals(c.lists - 1);
      when(n == 0, [&] {
        copy(first, offsets.slice(range(0, groups)).at(0));
        offsets(groups) = total;
      });
      clear(marks);
      parallel(chunk, [&](Index i) {
        Expr expert = own(i);
        when(expert >= 0 && expert < groups,
             [&] { atomic_or(marks(i / word_bits, expert), u32(1) << u32(i % word_bits)); });
      });
      parallel(c.lists, [&](Index expert) {
        Var at = first(expert) + counts(expert, n);
        for (int w = 0; w < words; ++w) {
          before(w, expert) = at;
          at += i32(popcount(marks(w, expert)));
        }
      });
      parallel(chunk, [&](Index i) {
        Expr pair = n * chunk + i, expert = own(i), word = i / word_bits;
        when(pair < pairs, [&] {
          Var place = -1;
          when(expert >= 0 && expert < groups, [&] {
            Expr earlier = marks(word, expert) & ((u32(1) << u32(i % word_bits)) - 1u);
            place = before(word, expert) + i32(popcount(earlier));
            order(place) = pair;
          });
          places(pair) = place;
          when(pair >= total, [&] { order(pair) = -1; });
        });
      });
    });
  }
};

struct Rows {
  const MoeRowsKernel& c;
  Dim tokens{"tokens"}, pairs{"pairs"}, d{"d"};

  Rows(const MoeRowsKernel& instance) : c(instance) {
    if (c.whole_pieces) d.multiple_of(bytes_of_piece / c.type.bytes());
  }
  // The token of a pair, −1 for no pair.
  Expr token(const Expr& pair) const { return select(pair < 0, -1, pair / c.topk); }
  Tensor at(const Tensor& rows, const Expr& column) const {
    return rows.slice(all, range(column, column + c.columns));
  }
  template <class Body>
  void tiles(const Expr& rows, Body body) const {
    grid(ceildiv(d, c.columns), ceildiv(rows, c.rows),
         [&](Index x, Index y) { body(y * c.rows, x * c.columns); });
  }

  // All rows of some columns before the next, which the second-level cache keeps for the other experts of
  // their tokens.
  void permute() const {
    Tensor x = input("x", {tokens, d}, c.type), order = input("order", {pairs}, i32),
           out = output("out", {pairs, d}, c.type);
    grid(ceildiv(pairs, c.rows), ceildiv(d, c.columns), [&](Index y, Index block) {
      Expr row = y * c.rows, column = block * c.columns;
      Shared own({c.rows, c.columns}, c.type);
      gather(
          at(x, column), [&](Index i) { return select(row + i < pairs, token(order(row + i)), -1); }, own);
      copy(own, out.at(row, column));
    });
  }

  // Every row is read once, and written for each of its pairs.
  void scatter() const {
    Tensor x = input("x", {tokens, d}, c.type), places = input("places", {tokens, c.topk}, i32),
           out = output("out", {pairs, d}, c.type);
    tiles(tokens, [&](const Expr& row, const Expr& column) {
      Fragment own = load(x.at(row, column), {c.rows, c.columns});
      const Tensor to = at(out, column);
      serial(c.topk, [&](Index s) {
        parallel(own, [&](Index i, Index j) {
          Expr place = places(row + i, s);
          when(row + i < tokens && place >= 0, [&] { to(place, j) = own(i, j); });
        });
      });
    });
  }

  void unpermute() const {
    Tensor y = input("y", {pairs, d}, c.type), places = input("places", {tokens, c.topk}, i32);
    Tensor weights = c.weights ? input("weights", {tokens, c.topk}, *c.weights) : y;
    Tensor out = output("out", {tokens, d}, c.type);
    tiles(tokens, [&](const Expr& row, const Expr& column) {
      Fragment sum({c.rows, c.columns}, f32, 0);
      pipelined(c.topk, {.stages = 2}, [&](Index s) {
        Shared own({c.rows, c.columns}, c.type);
        gather(
            at(y, column), [&](Index i) { return select(row + i < tokens, places(row + i, s), -1); }, own);
        if (!c.weights) {
          parallel(sum, [&](Index i, Index j) { sum(i, j) += own(i, j); });
          return;
        }
        Fragment factors = load(weights.slice(all, s).at(row), {c.rows}, f32);
        // A row of zeros stays one, whatever its factor is.
        parallel(sum, [&](Index i, Index j) {
          sum(i, j) += select(places(row + i, s) < 0, 0.f, own(i, j) * factors(i));
        });
      });
      copy(sum, out.at(row, column));
    });
  }

  void gradient() const {
    Tensor y = input("y", {pairs, d}, c.type), dout = input("dout", {tokens, d}, c.type),
           order = input("order", {pairs}, i32), weights = input("weights", {pairs}, *c.weights);
    Tensor dy = output("dy", {pairs, d}, c.type),
           dweights = output("dweights", {pairs}, *c.weights, {.zero = true});
    grid(ceildiv(pairs, c.rows), [&](Index block) {
      Expr row = block * c.rows;
      Fragment dots({c.rows}, f32, 0), factors({c.rows}, f32);
      const auto pair = [&](const Expr& i) { return select(row + i < pairs, order(row + i), -1); };
      parallel(factors, [&](Index i) { factors(i) = select(pair(i) < 0, 0.f, f32(weights(pair(i)))); });
      serial(ceildiv(d, c.columns), [&](Index step) {
        Expr column = step * c.columns;
        Shared given({c.rows, c.columns}, c.type);
        gather(
            at(dout, column), [&](Index i) { return token(pair(i)); }, given);
        Fragment own = load(y.at(row, column), {c.rows, c.columns}, f32);
        // Rows after the last pair hold anything.
        parallel(own,
                 [&](Index i, Index j) { own(i, j) = select(pair(i) < 0, 0.f, own(i, j) * given(i, j)); });
        reduce_sum(own, dots);
        parallel(own, [&](Index i, Index j) { own(i, j) = given(i, j) * factors(i); });
        copy(own, dy.at(row, column));
      });
      parallel(dots, [&](Index i) { when(pair(i) >= 0, [&] { dweights(pair(i)) = dots(i); }); });
    });
  }
};

}  // namespace

MoeSortKernel planned_sort(std::int64_t groups) {
  int lists = 64;
  while (lists < groups) lists *= 2;
  return {lists};
}

Kernel moe_sort_program(const MoeSortKernel& c) {
  return kernel(instance_name("moe_sort", c), [&] {
    const Sort sort{c};
    sort.count();
    sort.add_chunks();
    sort.write();
  });
}

MoeRowsKernel planned_rows(DType type, std::int64_t d, std::int64_t topk, int most_columns) {
  MoeRowsKernel c{.type = type, .topk = static_cast<int>(topk)};
  c.whole_pieces = d % (bytes_of_piece / type.bytes()) == 0;
  c.columns = 128;
  while (c.columns < d && c.columns < most_columns) c.columns *= 2;
  c.rows = 4096 / c.columns;
  return c;
}

Kernel moe_permute_program(const MoeRowsKernel& c) {
  return kernel(instance_name("moe_permute", c), [&] { Rows(c).permute(); });
}

Kernel moe_scatter_program(const MoeRowsKernel& c) {
  return kernel(instance_name("moe_scatter", c), [&] { Rows(c).scatter(); });
}

Kernel moe_unpermute_program(const MoeRowsKernel& c) {
  return kernel(instance_name("moe_unpermute", c), [&] { Rows(c).unpermute(); });
}

Kernel moe_unpermute_gradient(const MoeRowsKernel& c) {
  return kernel(instance_name("moe_unpermute_gradient", c), [&] { Rows(c).gradient(); });
}

Kernel group_sums_program(const GroupSumsKernel& c) {
  return kernel(instance_name("group_sums", c), [&] {
    constexpr int rows = 32, columns = 128;
    Dim m("m"), n("n"), groups("groups");
    Tensor own = input("rows", {m, n}, c.type), offsets = input("offsets", {groups + 1}, i32),
           sums = output("sums", {groups, n}, f32);
    grid(ceildiv(n, columns), groups, [&](Index x, Index group) {
      const Range of_group = range(offsets(group), offsets(group + 1));
      Fragment sum({columns}, f32, 0);
      serial(ceildiv(of_group.end - of_group.begin, rows), [&](Index step) {
        Fragment tile = load(own.slice(of_group).at(step * rows, x * columns), {rows, columns}, f32);
        reduce_sum(tile, sum, 0);
      });
      copy(sum, sums.slice(group).at(x * columns));
    });
  });
}

}  // namespace tegula::ops
