// Inclusive sums along rows of any length, by runs (a thread adds up a run, all threads the runs) or by
// doubling; and the k largest of rows with the softmax of the chosen, the gating of experts.
#include <algorithm>

#include "tests/programs/list.hpp"

namespace programs {
namespace {

Kernel scan_by_runs(int piece, int runs) {
  return kernel("scan_runs", [&] {
    Dim M("M"), N("N");
    Tensor X = input("X", {M, N}, f32), Y = output("Y", {M, N}, f32);
    const int own = piece / runs;
    grid(M, {.threads = 128, .blocks_per_processor = 4}, [&](Index row) {
      Var carry = 0.0f;
      serial(ceildiv(N, piece), [&](Index n) {
        Shared s({piece}, f32), ends({runs}, f32);
        copy(X.slice(row).at(n * piece), s);
        parallel(runs, [&](Index r) {
          Var sum = 0.0f;
          serial(own, [&](Index i) {
            sum += s(r * own + i);
            s(r * own + i) = sum;
          });
          ends(r) = sum;
        });
        Fragment before = scan_sum(ends, {.exclusive = true});
        copy(before, ends);
        Fragment y({piece}, f32);
        parallel(y, [&](Index i) { y(i) = s(i) + ends(i / own) + carry; });
        copy(y, Y.slice(row).at(n * piece));
        carry += s(piece - 1) + ends(runs - 1);
      });
    });
  });
}

Kernel scan_by_doubling(int piece) {
  return kernel("scan_doubling", [&] {
    Dim M("M"), N("N");
    Tensor X = input("X", {M, N}, f32), Y = output("Y", {M, N}, f32);
    grid(M, [&](Index row) {
      Var carry = 0.0f;
      serial(ceildiv(N, piece), [&](Index n) {
        Shared a({piece}, f32), b({piece}, f32);
        copy(X.slice(row).at(n * piece), a);
        bool in_a = true;
        for (int distance = 1; distance < piece; distance *= 2, in_a = !in_a) {
          Shared &from = in_a ? a : b, &to = in_a ? b : a;
          parallel(piece, [&](Index i) { to(i) = from(i) + select(i >= distance, from(i - distance), 0); });
        }
        Shared& sums = in_a ? a : b;
        Fragment y({piece}, f32);
        parallel(y, [&](Index i) { y(i) = sums(i) + carry; });
        copy(y, Y.slice(row).at(n * piece));
        carry += sums(piece - 1);
      });
    });
  });
}

// In descending order, the first of equal ones first.
Kernel gating_of_largest(int n, int k, int rows) {
  return kernel("topk_gating", [&] {
    Dim M("M");
    Tensor X = input("X", {M, n}, f32), gates = output("gates", {M, k}, f32);
    Tensor chosen = output("chosen", {M, k}, i32);
    grid(ceildiv(M, rows), [&](Index block) {
      Fragment x({rows, n}, f32), candidates({rows, n}, i32);
      copy(X.at(block * rows), x);
      Shared values({rows, k}, f32), indices({rows, k}, i32);
      for (int step = 0; step < k; ++step) {
        Fragment top = reduce_max(x);
        parallel(x, [&](Index i, Index j) { candidates(i, j) = select(x(i, j) == top(i), i32(j), n); });
        Fragment at = reduce_min(candidates);
        parallel(x, [&](Index i, Index j) { x(i, j) = select(j == at(i), -inf, x(i, j)); });
        parallel(top, [&](Index i) {
          values(i, step) = top(i);
          indices(i, step) = at(i);
        });
      }
      Fragment weight({rows, k}, f32);
      copy(values, weight);
      parallel(weight, [&](Index i, Index j) { weight(i, j) = exp(weight(i, j) - values(i, 0)); });
      Fragment sum = reduce_sum(weight);
      parallel(weight, [&](Index i, Index j) { weight(i, j) /= sum(i); });
      copy(weight, gates.at(block * rows));
      copy(indices, chosen.at(block * rows));
    });
  });
}

Prepared scan_call(const Kernel& kernel) {
  const int rows = 3, n = 150;
  const Data x = normal({rows, n}, f32, 1);
  Numbers Y(x);
  each(rows, n, [&](int i, int j) {
    if (j > 0) Y(i, j) += Y(i, j - 1);
  });
  return {kernel, {x, Wanted{Y, f32, 1e-5}}};
}

Prepared gating_call() {
  const int rows = 20, n = 64, k = 6;
  const Data x = integers({rows, n}, f32, 1, -20, 20);
  const Numbers X(x);
  Numbers gates({rows, k}), chosen({rows, k});
  each(rows, [&](int i) {
    std::vector<int> order;
    each(n, [&](int j) { order.push_back(j); });
    std::ranges::stable_sort(order, [&](int a, int b) { return X(i, a) > X(i, b); });
    const auto weight = [&](int j) { return std::exp(X(i, order[j]) - X(i, order[0])); };
    each(k, [&](int j) {
      gates(i, j) = weight(j) / sum_of(k, weight);
      chosen(i, j) = order[j];
    });
  });
  return {gating_of_largest(n, k, 8), {x, Wanted{gates, f32, 1e-5}, Wanted{chosen, i32, 0}}};
}

}  // namespace

Program scan() {
  return {"linear",
          "scan",
          "running sums along rows",
          {{"runs", [] { return scan_call(scan_by_runs(64, 8)); }},
           {"doubling", [] { return scan_call(scan_by_doubling(64)); }}},
          {{"128 runs of 32", [] { return scan_by_runs(4096, 128); }},
           {"doubling, 4096", [] { return scan_by_doubling(4096); }}}};
}
Program topk_gating() {
  return {"linear",
          "topk_gating",
          "the k largest of rows in order, and their softmax",
          {{"", gating_call}},
          {{"6 of 128", [] { return gating_of_largest(128, 6, 64); }},
           {"8 of 256", [] { return gating_of_largest(256, 8, 16); }}}};
}

}  // namespace programs
