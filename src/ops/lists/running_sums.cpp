#include "ops/lists/running_sums.hpp"

namespace tegula::ops {

using namespace lang;

void add_up(const Shared& lengths, Shared& begins, Var& next, int runs) {
  const int run = lengths.extent(0) / runs;
  Shared of_run({runs}, i32);
  parallel(of_run, [&](Index r) {
    Var sum = 0;
    serial(run, [&](Index i) { sum += lengths(r * run + i); });
    of_run(r) = sum;
  });
  serial(runs, [&](Index r) {
    Expr own = of_run(r);
    of_run(r) = next;
    next += own;
  });
  parallel(of_run, [&](Index r) {
    Var at = of_run(r);
    serial(run, [&](Index i) {
      Expr own = lengths(r * run + i);
      begins(r * run + i) = at;
      at += own;
    });
  });
}

}  // namespace tegula::ops
