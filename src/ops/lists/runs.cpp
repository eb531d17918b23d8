#include "ops/lists/runs.hpp"

namespace tegula::ops {

using namespace lang;

void add_up_runs(const std::function<Expr(const Expr& run, const Expr& i)>& number, Shared& before) {
  Shared of_run({runs}, i32);
  parallel(runs, [&](Index run) {
    Var sum = 0;
    serial(run_length, [&](Index i) { sum += number(run, i); });
    of_run(run) = sum;
  });
  parallel(runs + 1, [&](Index run) {
    Var sum = 0;
    serial(runs, [&](Index other) { sum += select(other < run, of_run(other), 0); });
    before(run) = sum;
  });
}

}  // namespace tegula::ops
