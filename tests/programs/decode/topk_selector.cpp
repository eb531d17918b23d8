// The positions of the k largest scores of every row between two fences, exact and the same in every run; −1
// where there are fewer. Radix selection: digits of 8 bits from the top fix the k-th largest key, then
// everything above it is collected, and as many equal keys as are still wanted, lane by lane.
#include <algorithm>

#include "ops/lists/running_sums.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

// In the order of the floats.
Expr sort_key(const Expr& x) {
  Expr bits = bitcast(x, u32);
  return select((bits >> 31) == 1u, ~bits, bits | 0x80000000u);
}

// Fixes the digit of `prefix` at `shift`; of `wanted` stay those that equal the prefix so far.
void fix_digit(const Tensor& x, const Expr& count, int shift, Var& prefix, Var& wanted) {
  Shared histogram({256}, i32), larger({256}, i32), found({2}, i32);
  clear(histogram);
  clear(found);
  parallel(count, [&](Index p) {
    Expr key = sort_key(x(p));
    Expr same = shift == 24 ? Expr(Operand(true)) : Expr(((key ^ prefix) >> u32(shift + 8)) == 0u);
    when(same, [&] { atomic_add(histogram(255 - i32((key >> u32(shift)) & 255u)), 1); });
  });
  Var next = 0;
  tegula::ops::add_up(clone(histogram), larger, next);
  parallel(256, [&](Index d) {
    when(larger(d) < wanted && wanted <= larger(d) + histogram(d), [&] {
      found(0) = 255 - d;
      found(1) = larger(d);
    });
  });
  prefix |= u32(found(0)) << u32(shift);
  wanted -= found(1);
}

// Every lane counts what it has above the threshold and at it, and is given places.
void collect(const Tensor& x, const Expr& count, const Expr& begin, const Var& threshold, const Var& ties,
             int lanes, const Tensor& out) {
  Shared above({lanes}, i32), equal({lanes}, i32);
  Expr rounds = ceildiv(count, lanes);
  const auto each_key = [&](const Index& lane, auto on_above, auto on_equal) {
    serial(rounds, [&](Index i) {
      Expr p = i * lanes + lane, key = sort_key(x(p));
      when(p < count && key > threshold, [&] { on_above(p); });
      when(p < count && key == threshold, [&] { on_equal(p); });
    });
  };
  parallel(lanes, [&](Index lane) {
    Var more = 0, same = 0;
    each_key(
        lane, [&](const Expr&) { more += 1; }, [&](const Expr&) { same += 1; });
    above(lane) = more;
    equal(lane) = same;
  });
  Var total = 0, all_ties = 0;
  tegula::ops::add_up(clone(above), above, total);
  tegula::ops::add_up(clone(equal), equal, all_ties);
  Expr sure = total;
  parallel(lanes, [&](Index lane) {
    Var at = above(lane), tie = equal(lane);
    each_key(
        lane,
        [&](const Expr& p) {
          out(at) = begin + p;
          at += 1;
        },
        [&](const Expr& p) {
          when(tie < ties, [&] { out(sure + tie) = begin + p; });
          tie += 1;
        });
  });
}

Kernel selector(int k, int threads) {
  return kernel("topk_selector", [&] {
    Dim B("B"), L("L");
    Tensor scores = input("scores", {B, L}, f32), begins = input("begins", {B}, i32);
    Tensor ends = input("ends", {B}, i32), positions = output("positions", {B, k}, i32);
    grid(B, {.threads = threads, .blocks_per_processor = 1}, [&](Index row) {
      Expr begin = max(begins(row), 0), count = max(min(ends(row), L) - begin, 0);
      Tensor x = scores.slice(row, range(begin, begin + count)), out = positions.slice(row);
      Var prefix = u32(0), wanted = min(k, count);
      for (int shift = 24; shift >= 0; shift -= 8) fix_digit(x, count, shift, prefix, wanted);
      collect(x, count, begin, prefix, wanted, threads, out);
      parallel(k, [&](Index p) { when(p >= count, [&] { out(p) = -1; }); });
    });
  });
}

// In the order in which lanes have them: above the k-th largest, then as many equal to it as are left.
std::vector<int> largest(const Numbers& x, int row, int begin, int end, int k, int lanes) {
  std::vector<int> order, result;
  for (int lane = 0; lane < lanes; ++lane)
    for (int p = begin + lane; p < end; p += lanes) order.push_back(p);
  std::vector<double> sorted;
  for (const int p : order) sorted.push_back(x(row, p));
  std::ranges::sort(sorted, std::greater<>());
  const bool all = end - begin <= k;
  const double threshold = sorted.empty() ? 0 : all ? sorted.back() : sorted[k - 1];
  for (const int p : order)
    if (x(row, p) > threshold) result.push_back(p);
  for (const int p : order)
    if (x(row, p) == threshold && static_cast<int>(result.size()) < k) result.push_back(p);
  result.resize(k, -1);
  return result;
}

Prepared selector_call() {
  const int B = 5, L = 600, k = 64, lanes = 128;
  const std::vector<int> begins{0, 10, 400, 3, 0}, ends{600, 500, 430, 3, 450};
  const Data x = normal({B, L}, f32, 1);
  // Ties: a few values, and two.
  each(L, [&](int i) {
    x.at<float>(1, i) = std::round(x.at<float>(1, i) * 8) / 8;
    x.at<float>(4, i) = i % 7 != 0 ? 0.5F : 1.0F;
  });
  const Numbers X(x);
  Numbers positions({B, k});
  each(B, [&](int b) {
    const auto own = largest(X, b, begins[b], ends[b], k, lanes);
    each(k, [&](int i) { positions(b, i) = own[i]; });
  });
  return {selector(k, lanes), {x, Data::from(begins), Data::from(ends), Wanted{positions, i32, 0}}};
}

}  // namespace

Program topk_selector() {
  return {"decode",
          "topk_selector",
          "positions of the k largest scores between fences of rows",
          {{"", selector_call}},
          {{"2048, 1024 threads", [] { return selector(2048, 1024); }},
           {"2048, 768 threads", [] { return selector(2048, 768); }}}};
}

}  // namespace programs
