#include "ops/lists/longest_first.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

constexpr int lists_of_block = 256;

}  // namespace

LongestFirst::LongestFirst(const Expr& heads, const Expr& lists, Length length)
    : heads_(heads),
      lists_(lists),
      length_(std::move(length)),
      order_(workspace("order_of_lists", {heads, lists}, i32)) {}

// Every list counts those that come before it, of which a block holds some at a time. A quadratic number of
// comparisons, but few beside the lists' own entries.
void LongestFirst::record_grid() const {
  grid(ceildiv(lists_, lists_of_block), heads_, {.threads = lists_of_block}, [&](Index x, Index h) {
    Shared own({lists_of_block}, i32), before({lists_of_block}, i32), other({lists_of_block}, i32);
    auto load_lengths = [&](const Expr& first, Shared& lengths) {
      parallel(lengths, [&](Index i) {
        lengths(i) = -1;  // of a list that does not exist
        when(first + i < lists_, [&] { lengths(i) = length_(h, first + i); });
      });
    };
    load_lengths(x * lists_of_block, own);
    clear(before);
    serial(ceildiv(lists_, lists_of_block), [&](Index step) {
      load_lengths(step * lists_of_block, other);
      parallel(before, [&](Index i) {
        Var count = before(i);
        Expr length = own(i), number = x * lists_of_block + i;
        serial(lists_of_block, [&](Index j) {
          Expr is_before = other(j) > length || (other(j) == length && step * lists_of_block + j < number);
          count += select(is_before, 1, 0);
        });
        before(i) = count;
      });
    });
    parallel(before, [&](Index i) {
      Expr number = x * lists_of_block + i;
      when(number < lists_, [&] { order_(h, before(i)) = number; });
    });
  });
}

}  // namespace tegula::ops
