#include "ops/latent/key_digits.hpp"

namespace tegula::ops {

using namespace lang;

Expr bits_of(const Expr& number) { return min(i32(bitcast(f32(number), u32) >> 23u) - 126, 32); }

void fix_digits(const EachKey& keys, const Digits& digits, Var& bound, Var& wanted, Var& within) {
  const int bins = 1 << digits.each;
  serial(ceildiv(digits.all, digits.each), [&](Index step) {
    Shared histogram({bins}, i32), found({3}, i32);
    Var above = digits.all - step * digits.each, shift = max(above - digits.each, 0);
    clear(histogram);
    clear(found);
    Expr mask = (u32(1) << u32(above - shift)) - 1u;
    keys([&](const Expr& key) {
      // Two shifts, because the first digit has no bits above it.
      when(key != 0u && ((key ^ bound) >> u32(above - 1)) >> 1u == 0u,
           [&] { atomic_add(histogram(i32(mask - ((key >> u32(shift)) & mask))), 1); });
    });
    Fragment number = clone(histogram), larger = scan_sum(number, {.exclusive = true});
    Expr rank = wanted;
    parallel(number, [&](Index bin) {
      when(larger(bin) < rank && rank <= larger(bin) + number(bin), [&] {
        found(0) = i32(mask) - bin;
        found(1) = larger(bin);
        found(2) = number(bin);
      });
    });
    bound |= u32(found(0)) << u32(shift);
    wanted -= found(1);
    within = Expr(found(2));
    break_if(within == wanted || (within > 0 && within <= digits.few));
  });
}

void find_bound(const EachKey& keys, const Digits& digits, Var& bound, Var& wanted) {
  Var within = 0;
  fix_digits(keys, digits, bound, wanted, within);
  when(within == wanted, [&] {
    bound = max(Expr(bound), 1u) - 1u;
    wanted = 0;
  });
}

}  // namespace tegula::ops
