#include "ops/lists/lists.hpp"

namespace tegula::ops {

using namespace lang;

void list_blocks(const ChoiceRow& choice, const Expr& begin, const Expr& end, Shared& list, Var& count) {
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

}  // namespace tegula::ops
