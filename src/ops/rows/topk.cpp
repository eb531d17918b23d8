#include "tegula/ops/topk.hpp"

#include <algorithm>
#include <cmath>

#include "ops/latent/topk_kernel.hpp"
#include "ops/rows/topk_choice.hpp"

namespace tegula::ops {

namespace {

constexpr int most_chosen = 256;
// Of rows and their largest, which are chosen before they are sorted.
constexpr int least_selected = 8192, least_count = 16;

// A warp takes several rows where there are more than enough for all processors: blocks take time to begin.
int rows_of_block(std::int64_t rows) {
  constexpr std::int64_t warps = 4, most = 16, blocks_of_a_grid = 4096;
  return static_cast<int>(std::clamp(rows / blocks_of_a_grid / warps * warps, warps, most));
}

// On a GPU a lane sorts up to 16 elements of a row. A warp has several short rows where there are many, else
// one, and a thread several lanes of a long one. On a CPU an element is its own lane.
void deal_rows(TopkInstance& step, std::int64_t rows, bool on_gpu) {
  constexpr int lanes_of_warp = 32, elements = 16, warps = 4, short_row = 128, many = 2048;
  const bool shares = on_gpu && step.columns <= short_row && rows >= many;
  step.together = shares ? elements * lanes_of_warp / step.columns : 1;
  step.lanes = on_gpu ? std::max(lanes_of_warp / step.together, step.columns / elements) : step.columns;
  step.rows = std::max(step.rows / warps, step.together) * warps;
}

// Of more numbers some two agree in the bits of a cut key too often, and short rows are bound by their bytes.
bool cuts_keys(const TopkInstance& step, bool on_gpu) {
  constexpr int most_cut = 16, short_row = 128;
  return on_gpu && step.is_first && step.is_last && step.type == f32 && step.count <= most_cut &&
         step.columns > short_row;
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
  TopkInstance step{.type = c.type("x"), .count = static_cast<int>(c->count)};
  step.rows = rows_of_block(rows);
  if (c.on_gpu() && n >= least_selected && c->count >= least_count) return sort_chosen(c, step, launch);
  while (true) {
    step.columns = power_of_two(std::min<std::int64_t>(n, most_topk_columns), 64);
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
