#include "tegula/ops/topk.hpp"

#include <algorithm>
#include <cmath>

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
// Of rows and their largest, which are chosen before they are sorted.
constexpr int least_selected = 8192, least_count = 16;

// Rows of a step are cut into pieces of `columns`; from each the largest are chosen. The last step has one
// piece.
struct TopkInstance {
  DType type = f32;
  int rows = 4, columns = 64, places = 8;  // of a block; of a piece; of the chosen
  bool is_first = true, is_last = true;
  TopkGates gates = TopkGates::none;
  bool normalized = false, sorts = false;  // of which only those at given places are left
  auto fields() const {
    return std::tuple(type, joined("t", rows, columns), labelled("k", places), labelled("first", is_first),
                      labelled("last", is_last), gates, labelled("normalized", normalized),
                      labelled("sorts", sorts));
  }
  // Numbers of 16 bits leave room for the column in their keys, so that one reduction finds both.
  bool packs() const { return is_first && !sorts && type.bits() == 16; }
};

Expr number_of(const Expr& key) { return bitcast(select(key >> 31u == 1u, key & 0x7fffffffu, ~key), f32); }

// The bits of a key that hold a column, from the end, so that the first of equal numbers has the largest key.
constexpr std::uint32_t column_bits = most_columns - 1;
Expr packed_key(const Expr& key, const Expr& column) {
  return (key & ~column_bits) | (column_bits - u32(column));
}
Expr unpacked_key(const Expr& key) { return select(key >> 31u == 1u, key & ~column_bits, key | column_bits); }
Expr unpacked_column(const Expr& key) { return i32(column_bits - (key & column_bits)); }

struct Choice {
  const TopkInstance& c;
  Dim rows{"rows"}, n{c.is_first ? "n" : "candidates"}, count{"count"};
  // Inputs of the first step; other steps read the keys and columns that the previous step selected.
  Tensor x = c.is_first ? input("x", {rows, n}, c.type) : input("keys", {rows, n}, u32);
  Tensor numbers = c.sorts      ? input("chosen", {rows, count}, i32)
                   : c.is_first ? x
                                : input("numbers", {rows, n}, i32);
  Expr pieces = c.sorts ? Expr(Operand(1)) : ceildiv(n, c.columns);
  Tensor values =
      c.is_last ? output("values", {rows, count}, c.type) : output("chosen_keys", {rows, pieces, count}, u32);
  Tensor indices = c.is_last ? output("indices", {rows, count}, i32)
                             : output("chosen_numbers", {rows, pieces, count}, i32);

  void piece_of_row(const Expr& row, const Expr& piece) const {
    const Expr first = piece * c.columns;
    Fragment keys({c.columns}, u32), columns({c.columns}, i32);
    read(keys, columns, row, first);
    Fragment chosen({c.places}, u32, 0u), places({c.places}, i32, -1);
    serial(count, [&](Index step) {
      const Var top = reduce_max(keys).scalar();
      const Var at = c.packs() ? first + unpacked_column(top) : column_of(keys, columns, top);
      parallel(keys, [&](Index j) {
        keys(j) = select(c.packs() ? keys(j) == top : columns(j) == at, 0u, keys(j));
      });
      const Expr key = c.packs() ? unpacked_key(top) : Expr(top);
      parallel(chosen, [&](Index j) {
        chosen(j) = select(j == step, key, chosen(j));
        places(j) = select(j == step, at, places(j));
      });
    });
    if (c.is_last)
      write_gates(chosen, places, row);
    else
      copy(chosen, values.slice(row, piece).at(0)), copy(places, indices.slice(row, piece).at(0));
  }
  // The first of those with the key.
  static Expr column_of(const Fragment& keys, const Fragment& columns, const Expr& key) {
    return reduce_min(map(
                          keys, [&](Index j) { return select(keys(j) == key, columns(j), 0x7fffffff); }, i32))
        .scalar();
  }
  void read(Fragment& keys, Fragment& columns, const Expr& row, const Expr& first) const {
    if (!c.is_first) {
      copy(x.slice(row).at(first), keys);
      copy(numbers.slice(row).at(first), columns, {.fill = 0x7fffffff});
      return;
    }
    if (c.sorts) {
      copy(numbers.slice(row).at(0), columns, {.fill = 0x7fffffff});
      parallel(keys, [&](Index j) {
        Expr at = columns(j);
        keys(j) = select(j < count, key_of_any(f32(x(row, min(at, n - 1)))), 0u);
      });
      return;
    }
    Fragment given = load(x.slice(row).at(first), {c.columns}, f32);
    parallel(keys, [&](Index j) {
      Expr key = key_of_any(given(j));
      columns(j) = first + j;
      keys(j) = select(first + j < n, c.packs() ? packed_key(key, j) : key, 0u);
    });
  }
  void write_gates(const Fragment& chosen, const Fragment& places, const Expr& row) const {
    Fragment gates({c.places}, f32);
    const Var largest = number_of(reduce_max(chosen).scalar());
    parallel(gates, [&](Index j) {
      Expr x_of = number_of(chosen(j)), is_chosen = j < count;
      if (c.gates == TopkGates::none)
        gates(j) = x_of;
      else if (c.gates == TopkGates::softmax)
        gates(j) = select(is_chosen, exp2((x_of - largest) * log2e), 0.f);
      else
        gates(j) = select(is_chosen, 1.f / (1.f + exp2(-x_of * log2e)), 0.f);
    });
    if (c.gates == TopkGates::softmax || (c.gates == TopkGates::sigmoid && c.normalized)) {
      const Var sum = reduce_sum(gates).scalar();
      parallel(gates, [&](Index j) { gates(j) /= sum; });
    }
    copy(gates, values.slice(row).at(0)), copy(places, indices.slice(row).at(0));
  }
};

Kernel topk_program(const TopkInstance& c) {
  return kernel(instance_name("topk", c), [&] {
    const Choice choice{c};
    grid(choice.pieces, ceildiv(choice.rows, c.rows), [&](Index piece, Index block) {
      each_group(c.rows, Group::warp, [&](Index i) {
        const Expr row = block * c.rows + i;
        when(row < choice.rows, [&] { choice.piece_of_row(row, piece); });
      });
    });
  });
}

int power_of_two(std::int64_t least, int from) {
  int power = from;
  while (power < least) power *= 2;
  return power;
}

// A warp takes several rows where there are more than enough for all processors: blocks take time to begin.
int rows_of_block(std::int64_t rows) {
  constexpr std::int64_t warps = 4, most = 16, blocks_of_a_grid = 4096;
  return static_cast<int>(std::clamp(rows / blocks_of_a_grid / warps * warps, warps, most));
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
  step.sorts = true, step.gates = c->gates, step.normalized = c->normalized;
  launch(step, topk_program, {{"chosen", chosen.ref().reshape({rows, c->count})}});
}

void run(const Bound<Topk>& c, Launch& launch) {
  const std::int64_t rows = c.dim("rows");
  std::int64_t n = c.dim("n");
  std::vector<tegula::Tensor> kept;
  TopkInstance step{.type = c.type("x"), .places = power_of_two(c->count, 8)};
  step.rows = rows_of_block(rows);
  if (c.on_gpu() && n >= least_selected && c->count >= least_count) return sort_chosen(c, step, launch);
  while (true) {
    step.columns = power_of_two(std::min<std::int64_t>(n, most_columns), 64);
    const std::int64_t pieces = (n + step.columns - 1) / step.columns;
    step.is_last = pieces <= 1;
    if (step.is_last) step.gates = c->gates, step.normalized = c->normalized;
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
