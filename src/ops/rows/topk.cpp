#include "tegula/ops/topk.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

#include "ops/latent/topk_kernel.hpp"
#include "ops/pieces/sort_key.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

template <>
inline constexpr std::array<std::string_view, 3> choice_names<TopkGates>{"none", "softmax", "sigmoid"};

namespace {

using namespace lang;
using lang::Tensor;

constexpr int most_columns = 1024, most_chosen = 256;  // of a row, that a warp holds
constexpr int lanes_of_warp = 32;
// Of rows and their largest, which are chosen before they are sorted.
constexpr int least_selected = 8192, least_count = 16;

int power_of_two(std::int64_t least, int from) {
  int power = from;
  while (power < least) power *= 2;
  return power;
}

// Rows of a step are cut into pieces of `columns`; from each the largest are chosen. The last step has one
// piece.
struct TopkInstance {
  DType type = f32;
  int rows = 4, columns = 64, count = 0;  // of a block; of a piece; that are chosen
  int together = 1, lanes = 64;           // rows of a warp; the columns of a row are dealt to so many lanes
  bool is_first = true, is_last = true;
  bool fills = false, by_vectors = false;  // a row is one whole piece, or whole vectors
  TopkGates gates = TopkGates::none;
  bool normalized = false, sorts = false;  // of which only those at given places are left
  bool cuts = false;                       // numbers of 32 bits to the bits that a key has beside a column
  auto fields() const {
    return std::tuple(type, joined("t", rows, columns), labelled("k", count), joined("w", together, lanes),
                      labelled("first", is_first), labelled("last", is_last), labelled("fills", fills),
                      labelled("vectors", by_vectors), gates, labelled("normalized", normalized),
                      labelled("sorts", sorts), labelled("cuts", cuts));
  }
  // Numbers of 16 bits leave room for the column in their keys, so that one reduction finds both.
  bool packs() const { return is_first && !sorts && (type.bits() == 16 || cuts); }
  int elements() const { return columns / lanes; }  // of a lane
  int depth() const { return std::min(elements(), count); }
  int vector() const { return by_vectors ? std::min(elements(), 16 / type.bytes()) : 1; }
  // Tiles of the chosen, which lie as the lanes of several rows do.
  int width() const { return together > 1 ? lanes : power_of_two(count, 8); }
  int parts() const { return (count + width() - 1) / width(); }
};

Expr number_of(const Expr& key) { return bitcast(select(key >> 31u == 1u, key & 0x7fffffffu, ~key), f32); }

// The bits of a key that hold a column, from the end, so that the first of equal numbers has the largest key.
constexpr std::uint32_t column_bits = most_columns - 1;
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

// A warp takes several rows where there are more than enough for all processors: blocks take time to begin.
int rows_of_block(std::int64_t rows) {
  constexpr std::int64_t warps = 4, most = 16, blocks_of_a_grid = 4096;
  return static_cast<int>(std::clamp(rows / blocks_of_a_grid / warps * warps, warps, most));
}

// On a GPU a lane sorts up to 16 elements of a row. A warp has several short rows where there are many, else
// one, and a thread several lanes of a long one. On a CPU an element is its own lane.
void deal_rows(TopkInstance& step, std::int64_t rows, bool on_gpu) {
  constexpr int elements = 16, warps = 4, short_row = 128, many = 2048;
  const bool shares = on_gpu && step.columns <= short_row && rows >= many;
  step.together = shares ? elements * lanes_of_warp / step.columns : 1;
  step.lanes = on_gpu ? std::max(lanes_of_warp / step.together, step.columns / elements) : step.columns;
  step.rows = std::max(step.rows / warps, step.together) * warps;
}

// Of more numbers some two agree in the bits of a cut key too often.
bool cuts_keys(const TopkInstance& step, bool on_gpu) {
  constexpr int most_cut = 16;
  return on_gpu && step.is_first && step.is_last && step.type == f32 && step.count <= most_cut;
}

// The largest of long rows in the order of their places first, by digits of their keys; then in descending
// order.
void sort_chosen(const Bound<Topk>& c, TopkInstance step, Launch& launch) {
  const std::int64_t rows = c.dim("rows"), n = c.dim("n");
  TopkKernel kernel = topk_instance(rows, n, c->count, false, false, false);
  kernel.any = step.type;
  const tegula::Tensor chosen = launch.scratch({1, rows, c->count}, i32);
  launch(kernel, topk_kernel, {{"scores", c.formed("x").reshape({1, rows, n})}, {"out", chosen}});
  step.columns = power_of_two(c->count, 64);
  deal_rows(step, rows, true);
  step.sorts = true, step.gates = c->gates, step.normalized = c->normalized;
  launch(step, topk_program, {{"chosen", chosen.ref().reshape({rows, c->count})}});
}

void run(const Bound<Topk>& c, Launch& launch) {
  const std::int64_t rows = c.dim("rows");
  std::int64_t n = c.dim("n");
  if (c->count == 0) return;
  std::vector<tegula::Tensor> kept;
  TopkInstance step{.type = c.type("x"), .count = c->count};
  step.rows = rows_of_block(rows);
  if (c.on_gpu() && n >= least_selected && c->count >= least_count) return sort_chosen(c, step, launch);
  while (true) {
    step.columns = power_of_two(std::min<std::int64_t>(n, most_columns), 64);
    deal_rows(step, rows, c.on_gpu());
    step.fills = step.is_first && n == step.columns;
    step.by_vectors = true, step.by_vectors = step.is_first && n % step.vector() == 0;
    const std::int64_t pieces = (n + step.columns - 1) / step.columns;
    step.is_last = pieces <= 1;
    if (step.is_last) step.gates = c->gates, step.normalized = c->normalized;
    step.cuts = cuts_keys(step, c.on_gpu());
    const TensorRef keys = kept.empty() ? TensorRef() : kept[kept.size() - 2].ref().reshape({rows, n});
    const TensorRef numbers = kept.empty() ? TensorRef() : kept.back().ref().reshape({rows, n});
    if (step.is_last && step.is_first) return launch(step, topk_program);
    if (step.is_last) return launch(step, topk_program, {{"keys", keys}, {"numbers", numbers}});
    kept.push_back(launch.scratch({rows, pieces, c->count}, u32));
    kept.push_back(launch.scratch({rows, pieces, c->count}, i32));
    const TensorRef chosen = kept[kept.size() - 2].ref(), places = kept.back().ref();
    if (step.is_first)
      launch(step, topk_program, {{"chosen_keys", chosen}, {"chosen_numbers", places}});
    else
      launch(step, topk_program,
             {{"keys", keys}, {"numbers", numbers}, {"chosen_keys", chosen}, {"chosen_numbers", places}});
    n = pieces * c->count, step.is_first = false;
  }
}

void topk_formula(const Bound<Topk>& c, Exact& exact) {
  const std::int64_t n = c.dim("n"), count = c->count;
  const double* x = exact.data("x");
  double* values = exact.data("values");
  auto* indices = exact["indices"].data_as<std::int32_t>();
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  for (std::int64_t row = 0; row < c.dim("rows"); ++row, x += n, values += count, indices += count) {
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = static_cast<std::int32_t>(j);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return std::isnan(x[a]) ? !std::isnan(x[b]) : x[a] > x[b];
    });
    double sum = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      const double own = x[indices[j] = order[static_cast<std::size_t>(j)]];
      values[j] = c->gates == TopkGates::none      ? own
                  : c->gates == TopkGates::softmax ? exact.rounded(std::exp(own - x[order[0]]))
                                                   : exact.rounded(1 / (1 + std::exp(-own)));
      sum += values[j];
    }
    const bool divides = c->gates == TopkGates::softmax || (c->gates == TopkGates::sigmoid && c->normalized);
    for (std::int64_t j = 0; divides && j < count; ++j) values[j] /= sum;
  }
}

}  // namespace

const OperatorSchema& topk_schema() {
  using Op = Topk;
  static const OperatorSchema table =
      Schema<Op>("topk", "the largest elements of every row in descending order, and gates of experts")
          .in(&Op::x, "x", "... n", floats,
              "rows; NaN counts as the largest, and of equal elements the first comes first")
          .option(&Op::count, "count", "elements of a row", between(0, most_chosen, "a number from 0 to 256"))
          .needed()
          .option(&Op::gates, "gates",
                  "what is returned for the selected elements: their softmax or their sigmoids")
          .option(&Op::normalized, "normalized", "sigmoids are divided by their sum")
          .require("count", "count <= n", "at most {n}, the elements of a row",
                   "request no more than there are")
          .out(&Op::values, "values", "... count", same_as("x"), "the selected elements, or their gates")
          .out(&Op::indices, "indices", "... count", is(i32), "positions of these elements in their rows")
          .source("the gating of Shazeer et al. 2017, Outrageously Large Neural Networks")
          .composed_gradient("gather and scatter")
          .flops("2*rows*n*count")
          .examples({{"ragged", "...=37 n=100 count=6 gates=softmax"},
                     {"ties_bf16", "...=2,7 n=300 count=9 bf16"},
                     {"parts_f16", "...=3 n=9000 count=5 f16 gates=sigmoid normalized"},
                     {"long_bf16", "...=3 n=9000 count=70 bf16 gates=softmax"},
                     {"long", "...=2,2 n=40000 count=20"}})
          .measured({{"65536x128_6_bf16", "...=65536 n=128 count=6 bf16 gates=softmax"},
                     {"16384x256_8_f32", "...=16384 n=256 count=8 gates=sigmoid normalized"},
                     {"16384x512_8_f32", "...=16384 n=512 count=8 gates=softmax"},
                     {"1024x32768_64_f32", "...=1024 n=32768 count=64"}})
          .run(run, topk_formula);
  return table;
}

}  // namespace tegula::ops
