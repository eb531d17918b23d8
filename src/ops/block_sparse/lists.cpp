#include "ops/block_sparse/lists.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

constexpr int run_length = 32;  // blocks whose places in the list are counted one after the other

// 1 for every chosen block of the chunk.
void mark(const ChoiceRow& choice, const Expr& begin, const Expr& end, Shared& named) {
  if (choice.mask) {
    parallel(named, [&](Index i) {
      named(i) = 0;
      when(i < end - begin, [&] { named(i) = select(choice.row(begin + i), 1, 0); });
    });
    return;
  }
  clear(named);
  parallel(choice.entries, [&](Index n) {
    Expr entry = choice.row(n);
    when(entry >= begin && entry < end, [&] { atomic_or(named(entry - begin), 1); });
  });
}

void list_one_by_one(const ChoiceRow& choice, const Expr& begin, const Expr& end, Shared& list, Var& count) {
  auto append = [&](const Expr& wanted, const Expr& block) {
    when(wanted, [&] {
      list(count) = block;
      count += 1;
    });
  };
  if (choice.mask) {
    serial(end - begin, [&](Index i) { append(choice.row(begin + i), begin + i); });
    return;
  }
  Shared named({list.extent(0)}, boolean);
  clear(named);
  serial(choice.entries, [&](Index n) {
    Expr entry = choice.row(n);
    when(entry >= begin && entry < end, [&] { named(entry - begin) = true; });
  });
  serial(end - begin, [&](Index i) { append(named(i), begin + i); });
}

}  // namespace

void list_blocks(const ChoiceRow& choice, const Expr& begin, const Expr& end, Shared& list, Var& count) {
  if (!choice.all_threads) return list_one_by_one(choice, begin, end, list, count);
  const int runs = ceildiv(list.extent(0), run_length);
  Shared named({runs * run_length}, i32), starts({runs}, i32);
  mark(choice, begin, end, named);
  parallel(starts, [&](Index r) {
    Var sum = 0;
    serial(run_length, [&](Index i) { sum += named(r * run_length + i); });
    starts(r) = sum;
  });
  serial(ceildiv(end - begin, run_length), [&](Index r) {
    Expr own = starts(r);
    starts(r) = count;
    count += own;
  });
  parallel(ceildiv(end - begin, run_length), [&](Index r) {
    Var place = starts(r);
    serial(run_length, [&](Index i) {
      when(named(r * run_length + i) == 1, [&] {
        list(place) = begin + r * run_length + i;
        place += 1;
      });
    });
  });
}

}  // namespace tegula::ops
