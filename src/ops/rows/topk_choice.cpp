#include "ops/rows/topk_choice.hpp"

#include <deque>

#include "ops/pieces/sort_key.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

Expr number_of(const Expr& key) { return bitcast(select(key >> 31u == 1u, key & 0x7fffffffu, ~key), f32); }

// The bits of a key that hold a column, from the end, so that the first of equal numbers has the largest key.
constexpr std::uint32_t column_bits = most_topk_columns - 1;
Expr packed_key(const Expr& key, const Expr& column) {
  return (key & ~column_bits) | (column_bits - u32(column));
}
Expr unpacked_key(const Expr& key) { return select(key >> 31u == 1u, key & ~column_bits, key | column_bits); }
Expr unpacked_column(const Expr& key) { return i32(column_bits - (key & column_bits)); }

// Tiles of one shape, which one thread has an element each of.
class Tiles {
 public:
  Tiles(int count, int rows, int lanes, DType type, Loc at = Loc::current()) {
    for (int i = 0; i < count; ++i) tiles_.emplace_back(std::vector{rows, lanes}, type, at);
  }
  Fragment& operator[](int i) { return tiles_[static_cast<std::size_t>(i)]; }
  const Fragment& operator[](int i) const { return tiles_[static_cast<std::size_t>(i)]; }
  int count() const { return static_cast<int>(tiles_.size()); }

 private:
  std::deque<Fragment> tiles_;
};

// body(i, j) for all pairs that a network of Batcher's merges of odd and even places compares.
template <class Body>
void each_comparison(int count, const Body& body) {
  for (int length = 1; length < count; length *= 2)
    for (int apart = length; apart >= 1; apart /= 2)
      for (int first = apart % length; first + apart < count; first += 2 * apart)
        for (int i = first; i < first + apart && i + apart < count; ++i)
          if (i / (2 * length) == (i + apart) / (2 * length)) body(i, i + apart);
}

// A warp holds a piece of each of several rows. Each lane puts its own elements in descending order, so that
// the largest of a row is the first of some lane, which goes on to its next.
struct Choice {
  TopkInstance c;
  Dim rows{"rows"};
  Expr n = c.fills ? Expr(Operand(c.columns)) : Expr(length());
  // Inputs of the first step; other steps read the keys and columns that the previous step selected.
  Tensor x = c.is_first ? input("x", {rows, n}, c.type) : input("keys", {rows, n}, u32);
  Tensor numbers = c.sorts      ? input("chosen", {rows, c.count}, i32)
                   : c.is_first ? x
                                : input("numbers", {rows, n}, i32);
  Expr pieces = c.sorts ? Expr(Operand(1)) : ceildiv(n, c.columns);
  Tensor values = c.is_last ? output("values", {rows, c.count}, c.type)
                            : output("chosen_keys", {rows, pieces, c.count}, u32);
  Tensor indices = c.is_last ? output("indices", {rows, c.count}, i32)
                             : output("chosen_numbers", {rows, pieces, c.count}, i32);

  Dim length() const {
    Dim n(c.is_first ? "n" : "candidates");
    if (c.by_vectors) n.multiple_of(c.vector());
    return n;
  }
  void piece_of_rows(const Expr& row, const Expr& piece) const {
    const Expr first = piece * c.columns;
    Tiles keys(c.elements(), c.together, c.lanes, u32);
    Tiles columns(c.packs() ? 0 : c.elements(), c.together, c.lanes, i32);
    parallel(c.together, c.lanes, [&](Index i, Index j) {
      for (int l = 0; l < c.elements(); ++l) read(keys, columns, {row, first, i, j}, l);
      each_comparison(c.elements(), [&](int a, int b) { compare(keys, columns, i, j, a, b); });
    });
    Tiles chosen(c.parts(), c.together, c.width(), u32), places(c.parts(), c.together, c.width(), i32);
    for (int p = 0; p < c.parts(); ++p) fill(chosen[p], 0u), fill(places[p], -1);
    if (c.cuts) return choose_cut_numbers(keys, columns, chosen, places, row);
    serial(c.count, [&](Index step) { choose_one(keys, columns, chosen, places, step); });
    if (c.packs()) unpack(chosen, places, first);
    if (c.is_last) return write_gates(chosen, places, row);
    for (int p = 0; p < c.parts(); ++p) {
      copy(chosen[p], values.slice(all, piece).at(row, p * c.width()));
      copy(places[p], indices.slice(all, piece).at(row, p * c.width()));
    }
  }
  struct Lane {
    const Expr &row, &first, &i, &j;
  };
  // Neighbouring lanes have neighbouring vectors, or elements.
  void read(Tiles& keys, Tiles& columns, const Lane& lane, int l) const {
    const auto& [row, first, i, j] = lane;
    const int vector = c.vector();
    const Expr column = (l / vector * c.lanes + j) * vector + l % vector, at = first + column;
    if (!c.is_first) {
      keys[l](i, j) = x(row + i, at);
      columns[l](i, j) = select(at < n, numbers(row + i, at), 0x7fffffff);
    } else if (c.sorts) {
      const Expr own = select(column < c.count, numbers(row + i, column), 0x7fffffff);
      columns[l](i, j) = own;
      keys[l](i, j) = select(column < c.count, key_of_any(f32(x(row + i, min(own, n - 1)))), 0u);
    } else {
      const Expr key = key_of_any(f32(x(row + i, at))), own = c.packs() ? packed_key(key, column) : key;
      keys[l](i, j) = c.fills ? own : select(at < n, own, 0u);
      if (!c.packs()) columns[l](i, j) = at;
    }
  }
  void compare(Tiles& keys, Tiles& columns, const Expr& i, const Expr& j, int a, int b) const {
    const Expr left = keys[a](i, j), right = keys[b](i, j);
    if (c.packs()) {
      keys[a](i, j) = max(left, right), keys[b](i, j) = min(left, right);
      return;
    }
    const Expr before = columns[a](i, j), behind = columns[b](i, j);
    const Expr stays = left > right || (left == right && before < behind);
    keys[a](i, j) = select(stays, left, right), keys[b](i, j) = select(stays, right, left);
    columns[a](i, j) = select(stays, before, behind), columns[b](i, j) = select(stays, behind, before);
  }
  // Only as many of a lane as are wanted of the row have to follow.
  Fragment choose_one(Tiles& keys, Tiles& columns, Tiles& chosen, Tiles& places, const Expr& step) const {
    Fragment top = reduce_max(keys[0]);
    const Fragment at = c.packs() ? clone(top) : first_column(keys[0], columns[0], top);
    parallel(c.together, c.lanes, [&](Index i, Index j) {
      const Expr is_own = c.packs() ? keys[0](i, j) == top(i) : columns[0](i, j) == at(i);
      const auto follow = [&](Tiles& of, const Operand& none) {
        for (int l = 0; l < c.depth(); ++l)
          of[l](i, j) = select(is_own, l + 1 < c.depth() ? Expr(of[l + 1](i, j)) : Expr(none), of[l](i, j));
      };
      follow(keys, 0u);
      if (!c.packs()) follow(columns, 0x7fffffff);
    });
    for (int p = 0; p < c.parts(); ++p)
      parallel(chosen[p], [&](Index i, Index j) {
        const Expr is_here = j + p * c.width() == step;
        chosen[p](i, j) = select(is_here, top(i), chosen[p](i, j));
        if (!c.packs()) places[p](i, j) = select(is_here, at(i), places[p](i, j));
      });
    return top;
  }
  // Keys that are cut do not tell numbers apart that agree in so many bits: rows in which that matters are
  // chosen once more by whole keys.
  void choose_cut_numbers(Tiles& keys, Tiles& columns, Tiles& chosen, Tiles& places, const Expr& row) const {
    Tiles before(c.parts(), c.together, c.width(), u32);
    for (int p = 0; p < c.parts(); ++p) fill(before[p], 0u);
    Fragment previous({c.together}, u32, ~0u);
    serial(c.count, [&](Index step) {
      const Fragment top = choose_one(keys, columns, chosen, places, step);
      for (int p = 0; p < c.parts(); ++p)
        parallel(before[p], [&](Index i, Index j) {
          before[p](i, j) = select(j + p * c.width() == step, previous(i), before[p](i, j));
        });
      copy(top, previous);
    });
    const Fragment next = reduce_max(keys[0]);
    Fragment doubts(std::vector{c.together, c.width()}, i32, Loc::current());
    parallel(doubts, [&](Index i, Index j) {
      Var doubt = 0;
      for (int p = 0; p < c.parts(); ++p) {
        const Expr place = j + p * c.width(), own = chosen[p](i, j);
        const Expr whole = whole_key(row + i, own), last = place == c.count - 1 && agree(own, next(i));
        const Expr wrong = place > 0 && place < c.count && whole_key(row + i, before[p](i, j)) < whole;
        doubt += select(wrong || last, 1, 0);
        places[p](i, j) = unpacked_column(own);
        chosen[p](i, j) = select(place < c.count, whole, 0u);
      }
      doubts(i, j) = doubt;
    });
    when(reduce_max(reduce_max(doubts)).scalar() > 0, [&] {
      Choice exact(*this);
      exact.c.cuts = false;
      exact.piece_of_rows(row, 0);
    }).otherwise([&] { write_gates(chosen, places, row); });
  }
  static Expr agree(const Expr& a, const Expr& b) { return ((a ^ b) & ~column_bits) == 0u; }
  Expr whole_key(const Expr& row, const Expr& packed) const {
    return key_of_any(x(row, min(unpacked_column(packed), n - 1)));
  }
  // The first of those with the key.
  static Fragment first_column(const Fragment& keys, const Fragment& columns, const Fragment& top) {
    const auto column = [&](Index i, Index j) {
      return select(keys(i, j) == top(i), columns(i, j), 0x7fffffff);
    };
    return reduce_min(map(keys, column, i32));
  }
  void unpack(Tiles& chosen, Tiles& places, const Expr& first) const {
    for (int p = 0; p < c.parts(); ++p)
      parallel(chosen[p], [&](Index i, Index j) {
        const Expr key = chosen[p](i, j);
        places[p](i, j) = first + unpacked_column(key);
        chosen[p](i, j) = unpacked_key(key);
      });
  }
  void write_gates(const Tiles& chosen, const Tiles& places, const Expr& row) const {
    Tiles gates(c.parts(), c.together, c.width(), f32);
    const bool divides = c.gates == TopkGates::softmax || (c.gates == TopkGates::sigmoid && c.normalized);
    const Fragment largest = reduce_max(chosen[0]);
    Fragment sums(std::vector{c.together, c.width()}, f32, Loc::current());
    parallel(sums, [&](Index i, Index j) {
      Var sum = 0.f;
      for (int p = 0; p < c.parts(); ++p) {
        const Expr gate = gate_of(number_of(chosen[p](i, j)), number_of(largest(i)));
        gates[p](i, j) = select(j + p * c.width() < c.count, gate, 0.f);
        sum += gates[p](i, j);
      }
      sums(i, j) = sum;
    });
    const Fragment sum = reduce_sum(sums);
    for (int p = 0; p < c.parts(); ++p) {
      if (divides) parallel(gates[p], [&](Index i, Index j) { gates[p](i, j) /= sum(i); });
      copy(gates[p], values.at(row, p * c.width()));
      copy(places[p], indices.at(row, p * c.width()));
    }
  }
  Expr gate_of(const Expr& number, const Expr& largest) const {
    if (c.gates == TopkGates::none) return number;
    if (c.gates == TopkGates::softmax) return exp2((number - largest) * log2e);
    return 1.f / (1.f + exp2(-number * log2e));
  }
};

}  // namespace

Kernel topk_program(const TopkInstance& c) {
  return kernel(instance_name("topk", c), [&] {
    const Choice choice{c};
    grid(choice.pieces, ceildiv(choice.rows, c.rows), [&](Index piece, Index block) {
      each_group(c.rows / c.together, Group::warp, [&](Index i) {
        const Expr row = block * c.rows + i * c.together;
        when(row < choice.rows, [&] { choice.piece_of_rows(row, piece); });
      });
    });
  });
}

}  // namespace tegula::ops
