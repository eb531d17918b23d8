#include "ops/lists/running_sums.hpp"

namespace tegula::ops {

using namespace lang;

void add_up(const Fragment& lengths, Shared& begins, Var& next) {
  Fragment before = scan_sum(lengths, {.exclusive = true});
  parallel(before, [&](Index i) { begins(i) = next + before(i); });
  next += reduce_sum(lengths).scalar();
}

}  // namespace tegula::ops
