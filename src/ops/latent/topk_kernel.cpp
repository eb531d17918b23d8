#include "ops/latent/topk_kernel.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "ops/latent/key_digits.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/pieces/sort_key.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int word = 32;      // columns of a word of bits
constexpr int at_a_time = 4;  // keys whose loads are under way together
constexpr int held_digit = 11, least_held = 64, most_held = 2048;
constexpr std::uint32_t largest_key = 0xffffffffu;  // above that of every score but NaN
// Of long rows a sample says which scores may be among the largest: runs of neighbours, as memory brings
// them.
constexpr int sampled_runs = 1024, neighbours = 4, sampled = sampled_runs * neighbours;
constexpr int few_sampled = 16;
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

// What a row chooses from, at 0 … n − 1.
struct Columns {
  Tensor scores;
  Expr n, begin, row;
};

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
  Expr q_block = of_diagonal("q_block_size"), k_block = of_diagonal("k_block_size"),
       offset = of_diagonal("key_offset");
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
  Expr likely_least(const Columns& from, Candidates& sample) const;
  Expr find_candidates(const Columns& from, const Expr& least, Candidates& found) const;
  using Take = std::function<void(const Expr& place, const Expr& position)>;
  using Placed = std::function<Expr(const Expr& position)>;
  void choose(const Keys& keys, const Expr& n, const Tensor& to, const Placed& placed) const;
  void choose_held(const Fragment& keys, const Expr& low, const Tensor& to, const Placed& placed) const;
  Expr collect(const Keys& keys, const Expr& n, const Expr& bound, const Expr& ties, const Take& take) const;
  void keep_ties(Shared& chosen, const Shared& equal, const Shared& before, const Expr& left) const;
  Expr placed(const Expr& b, const Expr& row, const Expr& column) const;
  Expr of_diagonal(const char* name) const { return c.diagonal ? scalar(name, i32) : Expr(1); }
  // Whether a column is chosen before all others, as far as it may be chosen; nothing if none is.
  std::optional<Expr> keeps(const Columns& from, const Expr& position) const;
  Expr is_candidate(const Expr& score, const Columns& from, const Expr& position, const Expr& lowest) const;
  Expr key(const Columns& from, const Expr& position) const {
    return key(from.scores(position), from, position);
  }
  Expr key(const Expr& score, const Columns& from, const Expr& position) const;
};

std::optional<Expr> TopkProgram::keeps(const Columns& from, const Expr& position) const {
  if (!c.first && !c.diagonal) return {};
  Expr column = from.begin + position;
  if (!c.diagonal) return column == 0;
  Expr last = (from.row + 1) * q_block - 1 + offset,
       own = column == min(floordiv(last, k_block), columns - 1);
  return c.first ? column == 0 || own : own;
}

// What may not be chosen is none, since candidates are counted.
Expr TopkProgram::is_candidate(const Expr& score, const Columns& from, const Expr& position,
                               const Expr& lowest) const {
  const Expr reaches = c.any ? !(score < lowest) : score >= lowest;
  const std::optional<Expr> keep = keeps(from, position);
  if (!keep) return reaches;
  return reaches || (c.any ? *keep : *keep && score > -inf);
}

Expr TopkProgram::key(const Expr& score, const Columns& from, const Expr& position) const {
  Expr key = c.any ? key_of_any(f32(score)) : sort_key(score);
  const std::optional<Expr> keep = keeps(from, position);
  return keep ? select(*keep && key != 0u, largest_key, key) : key;
}

// What stands for a column in the result.
Expr TopkProgram::placed(const Expr& b, const Expr& row, const Expr& column) const {
  if (!table) return column;
  Expr number = column / *page;
  Expr own = c.own_pages ? (*table)(b, row, number) : (*table)(b, number);
  return select(number < table->extent(c.own_pages ? 2 : 1) && own >= 0, own * *page + column % *page, -1);
}

// Takes the largest of keys that threads hold, all above `low` or 0, and fills the row up. Differences of
// keys have fewer bits than keys.
void TopkProgram::choose_held(const Fragment& keys, const Expr& low, const Tensor& to,
                              const Placed& placed) const {
  constexpr int ties =
      1 << 16;  // a word counts keys that are taken, and above them those that equal the bound
  Expr top = reduce_max(keys).scalar();
  Var bound = u32(0), wanted = Expr(count);
  const auto relative = [&](const Index& i) { return select(keys(i) != 0u, keys(i) - low, 0u); };
  find_bound([&](const auto& body) { parallel(keys, [&](Index i) { body(relative(i)); }); },
             {c.held > 0 ? c.digit : held_digit, bits_of(max(top, low) - low), 0}, bound, wanted);
  Fragment counted = map(
      keys,
      [&](Index i) {
        return select(relative(i) > bound, 1, select(relative(i) == bound && keys(i) != 0u, ties, 0));
      },
      i32);
  Fragment before = scan_sum(counted, {.exclusive = true});
  Expr left = wanted, all = reduce_sum(counted).scalar();
  parallel(counted, [&](Index i) {
    Expr place = before(i) % ties + min(before(i) / ties, left);
    when(counted(i) == 1 || (counted(i) == ties && before(i) / ties < left), [&] { to(place) = placed(i); });
  });
  Expr chosen = all % ties + min(all / ties, left);
  parallel(count, [&](Index i) { when(i >= chosen, [&] { to(i) = -1; }); });
}

// Keeps the first `left` of equal keys, by position: a word keeps all of its ties, none, or the lowest ones.
void TopkProgram::keep_ties(Shared& chosen, const Shared& equal, const Shared& before,
                            const Expr& left) const {
  parallel(chosen.extent(0), [&](Index w) {
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
void TopkProgram::choose(const Keys& keys, const Expr& n, const Tensor& to, const Placed& placed) const {
  Var bound = u32(0), wanted = Expr(count);
  find_bound(
      [&](const auto& body) { each_position(keys, n, [&](const Expr& key, const Expr&) { body(key); }); },
      {c.digit, 32, 0}, bound, wanted);
  Expr chosen = collect(keys, n, bound, wanted,
                        [&](const Expr& place, const Expr& position) { to(place) = placed(position); });
  parallel(count, [&](Index i) { when(i >= chosen, [&] { to(i) = -1; }); });
}

// A key above which a sample has so many that the row very likely has more than `count`, and few more: five
// standard deviations of what it has of them.
Expr TopkProgram::likely_least(const Columns& from, Candidates& of) const {
  Expr distance = from.n / sampled_runs;
  const Keys keys = [&](const Expr& i) { return key(from, i / neighbours * distance + i % neighbours); };
  each_position(keys, sampled, [&](const Expr& key, const Expr& i) { of.keys(i) = key; });
  Expr share = f32(count) * static_cast<float>(sampled) / f32(from.n);
  Var bound = u32(0), wanted = i32(share + 5.0f * sqrt(share)) + neighbours, within = 0;
  const EachKey all = [&](const auto& body) { parallel(sampled, [&](Index i) { body(of.keys(i)); }); };
  fix_digits(all, {held_digit, 32, few_sampled}, bound, wanted, within);
  return max(Expr(bound), 1u);
}

// Positions of keys from `least` on, ascending, and their number. Where there are more than fit only that
// counts.
Expr TopkProgram::find_candidates(const Columns& from, const Expr& least, Candidates& found) const {
  const Expr& n = from.n;
  Var number = 0;
  const int at_once = c.words * word;
  const Var lowest = c.any ? any_score_of(least) : score_of(least);
  serial(ceildiv(n, at_once), [&](Index step) {
    Shared chosen({c.words}, u32), before({c.words}, i32);
    Expr first = step * at_once;
    clear(chosen);
    const int at_once_of_step = c.threads * c.loads;
    serial(ceildiv(min(n - first, at_once), at_once_of_step), [&](Index j) {
      Fragment scores = load(from.scores.at(first + j * at_once_of_step), {at_once_of_step}, f32);
      parallel(scores, [&](Index i) {
        Expr p = j * at_once_of_step + i;
        when(is_candidate(scores(i), from, first + p, lowest) && first + p < n,
             [&] { atomic_or(chosen(p / word), u32(1) << u32(p % word)); });
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
    const Keys keys = [&](const Expr& i) { return key(from, found.positions(min(begin + i, end - 1))); };
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
  Tensor to = out.slice(b, row);
  const Columns from{scores.slice(b, row, range(begin, end)), end - begin, begin, row};
  const auto of_row = [&] {
    choose([&](const Expr& p) { return key(from, p); }, from.n, to,
           [&](const Expr& p) { return placed(b, row, begin + p); });
  };
  if (c.held > 0) {
    Fragment scores = load(from.scores.at(0), {c.held}, f32);
    Fragment keys = map(
        scores, [&](Index i) { return select(i < from.n, key(scores(i), from, i), 0u); }, u32);
    return choose_held(keys, u32(0), to, [&](const Expr& i) { return placed(b, row, begin + i); });
  }
  if (c.candidates == 0) return of_row();
  Candidates found(c.candidates);
  Var least = u32(1);
  when(from.n > found.most, [&] { least = likely_least(from, found); });
  Expr number = find_candidates(from, least, found);
  // All that are to be chosen at all, or enough.
  when(number <= found.most && (least == 1u || number >= count), [&] {
    Fragment keys = map(
        found.keys, [&](Index i) { return select(i < number, found.keys(i), 0u); }, u32);
    choose_held(keys, least - 1u, to,
                [&](const Expr& i) { return placed(b, row, begin + found.positions(i)); });
  }).otherwise(of_row);
}

}  // namespace

TopkKernel topk_instance(std::int64_t rows, std::int64_t columns, std::int64_t count, bool begins, bool ends,
                         bool pages) {
  TopkKernel kernel{.begins = begins, .ends = ends, .pages = pages};
  // Candidates of three rows fit a processor, so that some blocks wait while others read.
  const bool few = columns <= few_candidates || lets_through(count, columns, few_candidates);
  if (few) kernel.threads = 512, kernel.loads = 16, kernel.blocks = 1, kernel.candidates = few_candidates;
  if (rows > gpu_processors) {
    kernel.loads = 16;
    kernel.threads = few ? 256 : 512, kernel.blocks = few ? 3 : 2;
    if (few) kernel.words = few_words;
  }
  if (columns <= most_held) {
    kernel.held = least_held, kernel.candidates = 0, kernel.digit = 8;
    while (kernel.held < columns) kernel.held *= 2;
    kernel.threads = std::clamp(kernel.held / 8, 32, 256), kernel.blocks = std::min(768 / kernel.threads, 8);
  }
  return kernel;
}

Kernel topk_kernel(const TopkKernel& c) {
  return kernel(instance_name("topk_select", c), [&] {
    TopkProgram program(c);
    grid(program.rows, program.batch, {.threads = c.threads, .blocks_per_processor = c.blocks},
         [&](Index row, Index b) { program.block(b, row); });
  });
}

}  // namespace tegula::ops
