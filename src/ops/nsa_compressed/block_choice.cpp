#include "ops/nsa_compressed/block_choice.hpp"

namespace tegula::ops {

using namespace lang;

namespace {

constexpr std::uint32_t kept = 0xffffffffu;  // above the key of every weight
// Chosen blocks of a chunk are counted in the lower bits of a number, and ties in the others.
constexpr int count_bits = 13;

}  // namespace

void BlockChoice::form_keys(const Weights& weights, const Var& seen, const Expr& begin,
                            Fragment& keys) const {
  const Fragment found = weights(begin, keys);
  parallel(keys, [&](Index j) {
    Expr here = begin + j, forced = here < first_blocks || here >= seen - local_blocks;
    Expr key = select(isnan(found(j)), 1u, bitcast(found(j), u32) + 1u);
    keys(j) = select(here < seen, select(forced, kept, key), 0u);
  });
}

void BlockChoice::choose(const Weights& weights, const Var& seen, const Put& put) const {
  Fragment all_keys({columns}, u32);
  const auto form = [&](const Expr& begin, Fragment& keys) { form_keys(weights, seen, begin, keys); };
  if (held) form(0, all_keys);
  const std::function<void(const ChunkBody&)> each = [&](const ChunkBody& body) {
    if (held) return body(0, all_keys);
    serial(ceildiv(seen, columns), [&](Index chunk) {
      Fragment keys({columns}, u32);
      form(chunk * columns, keys);
      body(chunk * columns, keys);
    });
  };
  Var bound = 0u;
  find_bound(each, seen, bound);
  list(each, put, bound);
}

// With fewer blocks than wanted the bound stays 0. A bound that just as many keys reach needs no more bits.
void BlockChoice::find_bound(const EachChunk& each, const Var& seen, Var& bound) const {
  serial(select(seen > count, 32, 0), [&](Index bit) {
    Expr tried = bound | u32(1) << u32(31 - bit);
    Var number = 0;
    each([&](const Expr&, const Fragment& keys) {
      number += reduce_sum(map(
                               keys, [&](Index j) { return select(keys(j) >= tried, 1, 0); }, i32))
                    .scalar();
    });
    when(number >= count, [&] { bound = tried; });
    break_if(number == count);
  });
}

// Keys above the bound are chosen, and of those at the bound the first.
void BlockChoice::list(const EachChunk& each, const Put& put, const Expr& bound) const {
  const auto counted = [&](const Fragment& keys) {
    return map(
        keys,
        [&](Index j) {
          return select(keys(j) > bound, 1, select(keys(j) == bound && keys(j) != 0u, 1 << count_bits, 0));
        },
        i32);
  };
  constexpr int of_count = (1 << count_bits) - 1;
  Var over = 0, same = 0, over_before = 0, same_before = 0;
  each([&](const Expr&, const Fragment& keys) {
    Expr number = reduce_sum(counted(keys)).scalar();
    over += number & of_count, same += number >> count_bits;
  });
  Expr room = max(count - over, 0), chosen = over + min(same, room);
  each([&](const Expr& begin, const Fragment& keys) {
    const Fragment own = counted(keys), before = scan_sum(own, {.exclusive = true});
    Expr over_here = over_before, same_here = same_before;
    parallel(keys, [&](Index j) {
      Expr above = over_here + (before(j) & of_count), ties = same_here + (before(j) >> count_bits);
      when(own(j) == 1 || (own(j) > 1 && ties < room), [&] { put(above + min(ties, room), begin + j); });
    });
    if (held) return;
    Expr number = reduce_sum(own).scalar();
    over_before += number & of_count, same_before += number >> count_bits;
  });
  parallel(count, [&](Index n) { when(n >= chosen, [&] { put(n, -1); }); });
}

}  // namespace tegula::ops
