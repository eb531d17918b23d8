// The list of sequences of any lengths beside a plain loop: the order, the parts and their number, and that
// what is nobody's is marked.
#include "ops/decode/sequence_list.hpp"

#include <algorithm>
#include <numeric>

#include "ops/decode/testing/call.hpp"
#include "tegula/runtime.hpp"

namespace tegula::ops {
namespace sequence_list_test {

using Numbers = std::vector<std::int32_t>;
using Entry = std::array<std::int32_t, 4>;  // sequence, length, part, parts

constexpr int step = 16;  // keys
constexpr Entry nobody = {0, 0, 0, 0};

// Writes the list, with the marks of `most` entries of merges behind it.
lang::Kernel program(bool shared) {
  return lang::kernel(shared ? "shared" : "ordered", [shared] {
    using namespace lang;
    Dim sequences("sequences"), most("most");
    lang::Tensor lengths = input("lengths", {sequences}, i32), out = output("out", {most, 4}, i32),
                 merged = output("firsts", {most}, i32);
    std::optional<Expr> shares;
    if (shared) shares.emplace(scalar("shares", i32));
    const SequenceList list(
        SequenceList::Sequences{lengths, [](const Expr& n) -> Expr { return ceildiv(n, step); }}, shares);
    list.record_grid();
    grid(most, [&](Index x) {
      const SequenceList::Entry entry = list.entry(min(x, list.count() - 1));
      parallel(4, [&](Index i) {
        Expr value = select(i == 0, entry.sequence,
                            select(i == 1, entry.length, select(i == 2, entry.part, entry.parts)));
        out(x, i) = select(x < list.count(), value, -2);
      });
      merged(x) = shared
                      ? select(x < list.most_merged(), list.first_entry(min(x, list.most_merged() - 1)), -2)
                      : Expr(Operand(-2));
    });
  });
}

std::vector<Entry> expected(const Numbers& lengths, std::int32_t shares) {
  const auto count = static_cast<std::int32_t>(lengths.size());
  std::vector<std::int32_t> steps, parts;
  for (const std::int32_t n : lengths) steps.push_back((n + step - 1) / step);
  const std::int32_t total = std::accumulate(steps.begin(), steps.end(), 0),
                     longest = *std::max_element(steps.begin(), steps.end());
  const auto up = [](std::int32_t a, std::int32_t b) { return (a + b - 1) / b; };
  std::vector<std::int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  if (shares > 0) {
    const std::int32_t each = std::max({up(total, shares), up(longest * 2, 127), 1}),
                       whole = std::max(shares <= count ? up(total * 2, count) : 0, each + each / 2);
    for (const std::int32_t own : steps) parts.push_back(own > whole ? (own + each / 2) / each : 1);
  } else {
    parts.assign(lengths.size(), 1);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
    return up(steps[x], parts[x]) > up(steps[y], parts[y]);
  });
  std::vector<Entry> result;
  for (const std::int32_t b : order) {
    const auto own = static_cast<std::size_t>(b);
    for (std::int32_t part = 0; part < parts[own]; ++part)
      result.push_back({b, lengths[own], part, parts[own]});
  }
  return result;
}

void expect_list(const Numbers& lengths, std::int32_t shares, Target target) {
  const auto count = static_cast<std::int32_t>(lengths.size()), most = count + shares;
  Tensor out = Tensor::full({most, 4}, i32, 77), merged = Tensor::full({most}, i32, 77);
  std::vector<Argument> arguments{Tensor::from(lengths), out, merged};
  if (shares > 0) arguments.emplace_back(shares);
  compile(program(shares > 0), target).call_in_order(arguments);
  const std::vector<Entry> entries = expected(lengths, shares);
  ASSERT_LE(entries.size(), static_cast<std::size_t>(most)) << "no list is too short";
  std::vector<std::int32_t> firsts(lengths.size(), -1);
  for (std::int32_t x = 0; x < most; ++x) {
    const Entry own{out.at<std::int32_t>(x, 0), out.at<std::int32_t>(x, 1), out.at<std::int32_t>(x, 2),
                    out.at<std::int32_t>(x, 3)};
    const auto place = static_cast<std::size_t>(x);
    EXPECT_EQ(own, place < entries.size() ? entries[place] : nobody) << x;
    if (own[3] > 1 && own[2] == 0) firsts[static_cast<std::size_t>(own[0])] = x;
  }
  std::erase(firsts, -1);
  if (shares == 0) return;
  const std::int32_t merges = std::min(count, shares * 2 / 3 + 1);
  ASSERT_LE(firsts.size(), static_cast<std::size_t>(merges)) << "no sequence is left unmerged";
  for (std::int32_t n = 0; n < merges; ++n)
    EXPECT_EQ(merged.at<std::int32_t>(n),
              static_cast<std::size_t>(n) < firsts.size() ? firsts[static_cast<std::size_t>(n)] : -1);
}

Numbers at_random(int count, int most, std::uint64_t seed) {
  const Tensor numbers = Tensor::random_integers({count}, i32, seed, 0, most + 1);
  return numbers.values<std::int32_t>();
}

TEST(SequenceList, IsThatOfALoop) {
  Numbers one_long(32, 64), longest_last(140, 3);
  one_long[5] = 131072, longest_last.back() = 9000;
  const std::vector<Numbers> rows = {
      {0},      {0, 0, 0},    {5000},           {16, 17, 300, 0},       {700, 2, 3, 650, 1},
      one_long, longest_last, Numbers(9, 1000), at_random(40, 3000, 1), at_random(150, 40000, 2)};
  for (const Target target : decode_test::all_targets())
    for (const Numbers& lengths : rows)
      for (const std::int32_t shares : {0, 1, 7, static_cast<std::int32_t>(4 * lengths.size())})
        expect_list(lengths, shares, target);
}

}  // namespace sequence_list_test
}  // namespace tegula::ops
