#include "ops/latent/topk_kernel.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "ops/pieces/sort_key.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

TopkKernel topk_instance(std::int64_t columns, bool begins, bool ends, bool pages) {
  TopkKernel kernel{.begins = begins, .ends = ends, .pages = pages};
  if (columns <= 2048) kernel.digit = 8, kernel.runs = 8, kernel.length = 4, kernel.threads = 256;
  return kernel;
}

namespace {

constexpr int word = 32;      // columns of a word of bits
constexpr int at_a_time = 4;  // scores whose loads are under way together

// The keys of x[begin … begin + n − 1], with their positions after `begin`; those that are not to be chosen
// are left out.
void each_key(const Tensor& x, const Expr& begin, const Expr& n,
              const std::function<void(const Expr& key, const Expr& position)>& body) {
  Expr part = ceildiv(n, at_a_time);
  parallel(part, [&](Index p) {
    std::vector<Expr> keys;
    for (int i = 0; i < at_a_time; ++i) {
      Expr position = p + i * part;
      keys.push_back(select(position < n, sort_key(x(begin + position)), 0u));
    }
    for (int i = 0; i < at_a_time; ++i) {
      const Expr& key = keys[static_cast<std::size_t>(i)];
      when(key != 0u, [&] { body(key, p + i * part); });
    }
  });
}

// Numbers in runs, each of which a thread adds up. In memory a run has one more, so that the runs of a warp
// are in different banks.
struct Runs {
  int count, length;
  Shared numbers;

  Runs(int runs, int run_length) : count(runs), length(run_length), numbers({runs, run_length + 1}, i32) {}

  // before(run): the numbers of all earlier runs.
  void add_up(Shared& before, Shared& total) {
    Shared of_run({count}, i32);
    parallel(count, [&](Index r) {
      Var sum = 0;
      serial(length, [&](Index i) { sum += numbers(r, i); });
      of_run(r) = sum;
    });
    parallel(count, [&](Index r) {
      Var sum = 0;
      serial(count, [&](Index other) { sum += select(other < r, of_run(other), 0); });
      before(r) = sum;
      when(r == count - 1, [&] { total(0) = sum + of_run(r); });
    });
  }
  // Numbers become the sums of those before them; returns the sum of all.
  Expr sums_before() {
    Shared before({count}, i32), total({1}, i32);
    add_up(before, total);
    parallel(count, [&](Index r) {
      Var sum = Expr(before(r));
      serial(length, [&](Index i) {
        Expr own = numbers(r, i);
        numbers(r, i) = sum;
        sum += own;
      });
    });
    return total(0);
  }
};

struct TopkProgram {
  const TopkKernel& c;
  Dim batch{"batch"}, rows{"rows"}, columns{"columns"}, count{"count"};
  Tensor scores = input("scores", {batch, rows, columns}, f32),
         out = output("out", {batch, rows, count}, i32);
  std::optional<Tensor> begins, ends, table;
  std::optional<Expr> page;
  int words = c.runs * c.length;

  explicit TopkProgram(const TopkKernel& instance) : c(instance) {
    if (c.begins) begins.emplace(input("begins", {batch, rows}, i32));
    if (c.ends) ends.emplace(input("ends", {batch, rows}, i32));
    if (!c.pages) return;
    Dim pages("pages");
    table.emplace(c.own_pages ? input("page_table", {batch, rows, pages}, i32)
                              : input("page_table", {batch, pages}, i32));
    page.emplace(scalar("page_size", i32));
  }

  void block(const Expr& b, const Expr& row);
  void fix_digit(const Tensor& x, const Expr& n, int shift, int bits, Var& bound, Var& wanted);
  void collect(const Tensor& x, const Expr& n, const Expr& bound, const Expr& ties,
               const std::function<void(const Expr& place, const Expr& position)>& take, Var& taken);
  void keep_ties(Shared& chosen, Shared& equal, Runs& ties, const Expr& left);
  Expr placed(const Expr& b, const Expr& row, const Expr& column) const;
};

// What stands for a column in the result.
Expr TopkProgram::placed(const Expr& b, const Expr& row, const Expr& column) const {
  if (!table) return column;
  Expr number = column / *page;
  Expr own = c.own_pages ? (*table)(b, row, number) : (*table)(b, number);
  return select(number < table->extent(c.own_pages ? 2 : 1) && own >= 0, own * *page + column % *page, -1);
}

// `bound` has the digits above of the wanted-th largest key; of `wanted` stay those with the digit that is
// found.
void TopkProgram::fix_digit(const Tensor& x, const Expr& n, int shift, int bits, Var& bound, Var& wanted) {
  const int bins = 1 << bits, length = bins / word;
  Runs histogram(word, length);
  Shared found({2}, i32), before({word}, i32), total({1}, i32);
  clear(histogram.numbers);
  clear(found);
  const bool is_first = shift + bits == 32;
  each_key(x, 0, n, [&](const Expr& key, const Expr&) {
    Expr bin = bins - 1 - i32((key >> u32(shift)) & static_cast<std::uint32_t>(bins - 1));
    const auto count_one = [&] { atomic_add(histogram.numbers(bin / length, bin % length), 1); };
    if (is_first)
      count_one();
    else
      when((key ^ bound) >> u32(shift + bits) == 0u, count_one);
  });
  histogram.add_up(before, total);
  Expr rank = wanted;
  parallel(word, [&](Index r) {
    Var larger = Expr(before(r));
    serial(length, [&](Index i) {
      Expr own = histogram.numbers(r, i);
      when(larger < rank && rank <= larger + own, [&] {
        found(0) = bins - 1 - (r * length + i);
        found(1) = larger;
      });
      larger += own;
    });
  });
  bound |= u32(found(0)) << u32(shift);
  wanted -= found(1);
}

// Keeps the first `left` of equal keys, by column: a word keeps all of its ties, none, or the lowest ones.
void TopkProgram::keep_ties(Shared& chosen, Shared& equal, Runs& ties, const Expr& left) {
  parallel(words, [&](Index w) {
    Expr bits = equal(w),
         kept = clamp(left - ties.numbers(w / c.length, w % c.length), 0, i32(popcount(bits)));
    when(kept > 0, [&] {
      Var rest = bits, taken = u32(0), number = 0;
      loop_while([&] { return number < kept; },
                 [&] {
                   Expr lowest = rest & (~rest + 1u);
                   taken |= lowest;
                   rest ^= lowest;
                   number += 1;
                 });
      chosen(w) = chosen(w) | taken;
    });
  });
}

// Columns are marked in words of bits, whose numbers say where each comes to stand.
void TopkProgram::collect(const Tensor& x, const Expr& n, const Expr& bound, const Expr& ties,
                          const std::function<void(const Expr& place, const Expr& position)>& take,
                          Var& taken) {
  Var left = ties;
  const int at_once = words * word;
  serial(ceildiv(n, at_once), [&](Index step) {
    Shared chosen({words}, u32), equal({words}, u32);
    Runs numbers(c.runs, c.length);
    Expr first = step * at_once;
    clear(chosen);
    clear(equal);
    each_key(x, first, min(n - first, at_once), [&](const Expr& key, const Expr& p) {
      Expr bit = u32(1) << u32(p % word);
      when(key > bound, [&] { atomic_or(chosen(p / word), bit); });
      when(key == bound, [&] { atomic_or(equal(p / word), bit); });
    });
    parallel(words, [&](Index w) { numbers.numbers(w / c.length, w % c.length) = i32(popcount(equal(w))); });
    Expr all_ties = numbers.sums_before(), kept = left;
    keep_ties(chosen, equal, numbers, kept);
    left -= min(left, all_ties);
    parallel(words, [&](Index w) { numbers.numbers(w / c.length, w % c.length) = i32(popcount(chosen(w))); });
    Expr all_chosen = numbers.sums_before(), before = taken;
    parallel(min(n - first, at_once), [&](Index p) {
      Expr w = p / word, bit = u32(1) << u32(p % word), bits = chosen(w);
      when((bits & bit) != 0u, [&] {
        take(before + numbers.numbers(w / c.length, w % c.length) + i32(popcount(bits & (bit - 1u))),
             first + p);
      });
    });
    taken += all_chosen;
  });
}

void TopkProgram::block(const Expr& b, const Expr& row) {
  Expr begin = begins ? clamp((*begins)(b, row), 0, columns) : Expr(Operand(0));
  Expr end = ends ? clamp((*ends)(b, row), begin, columns) : columns;
  Tensor x = scores.slice(b, row, range(begin, end)), to = out.slice(b, row);
  Expr n = end - begin;
  Var bound = u32(0), wanted = Expr(count), taken = 0;
  for (int shift = 32; shift > 0;) {
    const int bits = std::min(c.digit, shift);
    shift -= bits;
    fix_digit(x, n, shift, bits, bound, wanted);
  }
  collect(
      x, n, bound, wanted,
      [&](const Expr& place, const Expr& position) { to(place) = placed(b, row, begin + position); }, taken);
  Expr chosen = taken;
  parallel(count, [&](Index i) { when(i >= chosen, [&] { to(i) = -1; }); });
}

}  // namespace

Kernel topk_kernel(const TopkKernel& c) {
  return kernel(instance_name("topk_select", c), [&] {
    TopkProgram program(c);
    grid(program.rows, program.batch, {.threads = c.threads},
         [&](Index row, Index b) { program.block(b, row); });
  });
}

}  // namespace tegula::ops
