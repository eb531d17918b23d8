#include "ops/latent/topk_kernel.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "ops/pieces/plan.hpp"
#include "ops/pieces/sort_key.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int word = 32;      // columns of a word of bits
constexpr int at_a_time = 4;  // keys whose loads are under way together
constexpr int short_digit = 8;
// Of long rows a sample says which scores may be among the largest: runs of neighbours, as memory brings
// them.
constexpr int sampled_runs = 1024, neighbours = 4, sampled = sampled_runs * neighbours;
constexpr int digits_of_sample = 3;
constexpr int few_candidates = 4096;
// So many words of a row that the scores of all blocks stay in the second-level cache until keys are read.
constexpr int few_words = 512;

// How many of a sample are above the key from which a row of n very likely has more than `count`: five
// standard deviations more than the share of the sample.
float above_least(float count, float n) {
  const float share = count * static_cast<float>(sampled) / n;
  return share + 5.0f * std::sqrt(share) + static_cast<float>(neighbours);
}

// Whether a sample of a row nearly always, by four standard deviations, lets so few through.
bool lets_through(std::int64_t count, std::int64_t columns, int candidates) {
  const float above = above_least(static_cast<float>(count), static_cast<float>(columns));
  return (above + 4.0f * std::sqrt(above)) * static_cast<float>(columns) <=
         static_cast<float>(candidates) * static_cast<float>(sampled);
}

// The key at a position; 0 where nothing is to be chosen.
using Keys = std::function<Expr(const Expr& position)>;

// Positions 0 … n − 1 with their keys, of which several are under way together.
void each_position(const Keys& keys, const Expr& n,
                   const std::function<void(const Expr& key, const Expr& position)>& body) {
  Expr at_once_of_step = ceildiv(n, at_a_time);
  parallel(at_once_of_step, [&](Index p) {
    std::vector<Expr> own;
    for (int i = 0; i < at_a_time; ++i) {
      Expr position = p + i * at_once_of_step;
      own.push_back(select(position < n, keys(position), 0u));
    }
    for (int i = 0; i < at_a_time; ++i) body(own[static_cast<std::size_t>(i)], p + i * at_once_of_step);
  });
}

// The same without those that are not to be chosen.
void each_key(const Keys& keys, const Expr& n,
              const std::function<void(const Expr& key, const Expr& position)>& body) {
  each_position(
      keys, n, [&](const Expr& key, const Expr& position) { when(key != 0u, [&] { body(key, position); }); });
}

// Positions of scores that may be among the largest, ascending, and their keys.
struct Candidates {
  int most;
  Shared positions, keys;

  explicit Candidates(int count) : most(count), positions({count}, i32), keys({count}, u32) {}
};

// The number of bits in the words before each, and returns that of all.
Expr bits_before(const Shared& bits, Shared& before) {
  Fragment number = map(
      bits, [&](Index w) { return i32(popcount(bits(w))); }, i32);
  copy(scan_sum(number, {.exclusive = true}), before);
  return reduce_sum(number).scalar();
}

struct TopkProgram {
  const TopkKernel& c;
  Dim batch{"batch"}, rows{"rows"}, columns{"columns"}, count{"count"};
  Tensor scores = input("scores", {batch, rows, columns}, c.any.value_or(f32)),
         out = output("out", {batch, rows, count}, i32);
  std::optional<Tensor> begins, ends, table;
  std::optional<Expr> page;
  explicit TopkProgram(const TopkKernel& instance) : c(instance) {
    if (c.begins) begins.emplace(input("begins", {batch, rows}, i32));
    if (c.ends) ends.emplace(input("ends", {batch, rows}, i32));
    if (!c.pages) return;
    Dim pages("pages");
    table.emplace(c.own_pages ? input("page_table", {batch, rows, pages}, i32)
                              : input("page_table", {batch, pages}, i32));
    page.emplace(scalar("page_size", i32));
  }

  void block(const Expr& b, const Expr& row) const;
  Expr likely_least(const Tensor& x, const Expr& n, Candidates& sample) const;
  Expr find_candidates(const Tensor& x, const Expr& n, const Expr& least, Candidates& found) const;
  using Take = std::function<void(const Expr& place, const Expr& position)>;
  using Placed = std::function<Expr(const Expr& position)>;
  void choose(const Keys& keys, const Expr& n, int digit, const Tensor& to, const Placed& placed) const;
  void fix_digit(const Keys& keys, const Expr& n, const Expr& shift, int bits, Var& bound, Var& wanted) const;
  Expr collect(const Keys& keys, const Expr& n, const Expr& bound, const Expr& ties, const Take& take) const;
  void keep_ties(Shared& chosen, const Shared& equal, const Shared& before, const Expr& left) const;
  Expr placed(const Expr& b, const Expr& row, const Expr& column) const;
  Expr key(const Expr& score) const { return c.any ? key_of_any(f32(score)) : sort_key(score); }
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
void TopkProgram::fix_digit(const Keys& keys, const Expr& n, const Expr& shift, int bits, Var& bound,
                            Var& wanted) const {
  const int bins = 1 << bits;
  Shared histogram({bins}, i32), found({2}, i32);
  clear(histogram);
  clear(found);
  each_key(keys, n, [&](const Expr& key, const Expr&) {
    Expr bin = bins - 1 - i32((key >> u32(shift)) & static_cast<std::uint32_t>(bins - 1));
    // Two shifts, because the first digit has no bits above it.
    when((key ^ bound) >> u32(shift) >> static_cast<std::uint32_t>(bits) == 0u,
         [&] { atomic_add(histogram(bin), 1); });
  });
  Fragment number = clone(histogram), larger = scan_sum(number, {.exclusive = true});
  Expr rank = wanted;
  parallel(number, [&](Index bin) {
    when(larger(bin) < rank && rank <= larger(bin) + number(bin), [&] {
      found(0) = bins - 1 - bin;
      found(1) = larger(bin);
    });
  });
  bound |= u32(found(0)) << u32(shift);
  wanted -= found(1);
}

// Keeps the first `left` of equal keys, by position: a word keeps all of its ties, none, or the lowest ones.
void TopkProgram::keep_ties(Shared& chosen, const Shared& equal, const Shared& before,
                            const Expr& left) const {
  parallel(c.words, [&](Index w) {
    Expr bits = equal(w), kept = clamp(left - before(w), 0, i32(popcount(bits)));
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

// Positions are marked in words of bits, whose numbers say where each comes to stand. Returns how many are
// taken.
Expr TopkProgram::collect(const Keys& keys, const Expr& n, const Expr& bound, const Expr& ties,
                          const Take& take) const {
  Var left = ties, taken = 0;
  const int at_once = c.words * word;
  serial(ceildiv(n, at_once), [&](Index step) {
    Shared chosen({c.words}, u32), equal({c.words}, u32), before({c.words}, i32);
    Expr first = step * at_once;
    clear(chosen);
    clear(equal);
    const Keys own = [&](const Expr& p) { return keys(first + p); };
    each_key(own, min(n - first, at_once), [&](const Expr& key, const Expr& p) {
      Expr bit = u32(1) << u32(p % word);
      when(key > bound, [&] { atomic_or(chosen(p / word), bit); });
      when(key == bound, [&] { atomic_or(equal(p / word), bit); });
    });
    Expr all_ties = bits_before(equal, before), kept = left;
    keep_ties(chosen, equal, before, kept);
    left -= min(left, all_ties);
    Expr all_chosen = bits_before(chosen, before), earlier = taken;
    parallel(min(n - first, at_once), [&](Index p) {
      Expr w = p / word, bit = u32(1) << u32(p % word), bits = chosen(w);
      when((bits & bit) != 0u,
           [&] { take(earlier + before(w) + i32(popcount(bits & (bit - 1u))), first + p); });
    });
    taken += all_chosen;
  });
  return taken;
}

// Takes the largest of n keys, digit by digit, and fills the row up.
void TopkProgram::choose(const Keys& keys, const Expr& n, int digit, const Tensor& to,
                         const Placed& placed) const {
  Var bound = u32(0), wanted = Expr(count);
  for (int shift = 32; shift > 0;) {
    const int bits = std::min(digit, shift);
    shift -= bits;
    fix_digit(keys, n, shift, bits, bound, wanted);
  }
  Expr chosen = collect(keys, n, bound, wanted,
                        [&](const Expr& place, const Expr& position) { to(place) = placed(position); });
  parallel(count, [&](Index i) { when(i >= chosen, [&] { to(i) = -1; }); });
}

// A key above which a sample has so many that the row very likely has more than `count`, and few more: five
// standard deviations of what it has of them.
Expr TopkProgram::likely_least(const Tensor& x, const Expr& n, Candidates& of) const {
  Expr distance = n / sampled_runs;
  const Keys keys = [&](const Expr& i) { return key(x(i / neighbours * distance + i % neighbours)); };
  each_position(keys, sampled, [&](const Expr& key, const Expr& i) { of.keys(i) = key; });
  Expr share = f32(count) * static_cast<float>(sampled) / f32(n);
  Var bound = u32(0), wanted = i32(share + 5.0f * sqrt(share)) + neighbours;
  for (int i = 1; i <= digits_of_sample; ++i)
    fix_digit([&](const Expr& i) -> Expr { return of.keys(i); }, sampled, 32 - short_digit * i, short_digit,
              bound, wanted);
  return max(Expr(bound), 1u);
}

// Positions of keys from `least` on, ascending, and their number. Where there are more than fit only that
// counts.
Expr TopkProgram::find_candidates(const Tensor& x, const Expr& n, const Expr& least,
                                  Candidates& found) const {
  Var number = 0;
  const int at_once = c.words * word;
  const Var lowest = c.any ? any_score_of(least) : score_of(least);
  serial(ceildiv(n, at_once), [&](Index step) {
    Shared chosen({c.words}, u32), before({c.words}, i32);
    Expr first = step * at_once;
    clear(chosen);
    const int at_once_of_step = c.threads * c.loads;
    serial(ceildiv(min(n - first, at_once), at_once_of_step), [&](Index j) {
      Fragment scores = load(x.at(first + j * at_once_of_step), {at_once_of_step}, f32);
      parallel(scores, [&](Index i) {
        Expr p = j * at_once_of_step + i;
        Expr reaches = c.any ? !(scores(i) < lowest) : scores(i) >= lowest;
        when(reaches && first + p < n, [&] { atomic_or(chosen(p / word), u32(1) << u32(p % word)); });
      });
    });
    Expr all = bits_before(chosen, before), earlier = number;
    parallel(c.words, [&](Index w) {
      Var rest = Expr(chosen(w)), place = earlier + before(w);
      loop_while([&] { return rest != 0u && place < found.most; },
                 [&] {
                   Expr lowest = rest & (~rest + 1u);
                   found.positions(place) = first + w * word + i32(popcount(lowest - 1u));
                   rest ^= lowest;
                   place += 1;
                 });
    });
    // While the scores are still near.
    const Var begin = earlier, end = min(earlier + all, Expr(found.most));
    const Keys keys = [&](const Expr& i) { return key(x(found.positions(min(begin + i, end - 1)))); };
    each_position(keys, end - begin, [&](const Expr& key, const Expr& i) {
      when(begin + i < end, [&] { found.keys(begin + i) = key; });
    });
    number += all;
  });
  return number;
}

void TopkProgram::block(const Expr& b, const Expr& row) const {
  Expr begin = begins ? clamp((*begins)(b, row), 0, columns) : Expr(Operand(0));
  Expr end = ends ? clamp((*ends)(b, row), begin, columns) : Expr(columns);
  Tensor x = scores.slice(b, row, range(begin, end)), to = out.slice(b, row);
  Expr n = end - begin;
  const auto of_row = [&] {
    choose([&](const Expr& p) { return key(x(p)); }, n, c.digit, to,
           [&](const Expr& p) { return placed(b, row, begin + p); });
  };
  if (c.candidates == 0) return of_row();
  Candidates found(c.candidates);
  Var least = u32(1);
  when(n > found.most, [&] { least = likely_least(x, n, found); });
  Expr number = find_candidates(x, n, least, found);
  // All that are to be chosen at all, or enough.
  when(number <= found.most && (least == 1u || number >= count), [&] {
    choose([&](const Expr& i) -> Expr { return found.keys(i); }, number, short_digit, to,
           [&](const Expr& i) { return placed(b, row, begin + found.positions(i)); });
  }).otherwise(of_row);
}

}  // namespace

TopkKernel topk_instance(std::int64_t rows, std::int64_t columns, std::int64_t count, bool begins, bool ends,
                         bool pages) {
  TopkKernel kernel{.begins = begins, .ends = ends, .pages = pages};
  // Blocks of several rows share a processor, so that some wait while others read.
  if (rows > gpu_processors) {
    kernel.loads = 16;
    if (columns <= few_candidates || lets_through(count, columns, few_candidates))
      kernel.threads = 256, kernel.candidates = few_candidates, kernel.words = few_words;
    else
      kernel.threads = 512;
  }
  if (columns <= 2048) kernel.digit = 8, kernel.candidates = 0, kernel.words = 32, kernel.threads = 256;
  return kernel;
}

Kernel topk_kernel(const TopkKernel& c) {
  return kernel(instance_name("topk_select", c), [&] {
    TopkProgram program(c);
    // The candidates of three rows fit a processor's memory. 0: as many blocks as there are registers for.
    const int fit = c.candidates > 0 ? 3 : 4, blocks = c.threads < 1024 ? std::min(1024 / c.threads, fit) : 0;
    grid(program.rows, program.batch, {.threads = c.threads, .blocks_per_processor = blocks},
         [&](Index row, Index b) { program.block(b, row); });
  });
}

}  // namespace tegula::ops
