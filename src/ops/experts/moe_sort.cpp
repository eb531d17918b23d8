// The operators that order pairs of tokens and experts.
#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "ops/experts/rows.hpp"
#include "ops/schema/schema.hpp"
#include "tegula/ops/experts.hpp"

namespace tegula::ops {

namespace {

void sort(const Bound<MoeSort>& c, Launch& launch) {
  launch(planned_sort(c->groups), moe_sort_program,
         {{"experts", c.rows("experts", 2)}, {"places", c.rows("places", 2)}});
}

void sort_formula(const Bound<MoeSort>& c, Exact& exact) {
  const std::int64_t pairs = c.dim("tokens") * c.dim("topk");
  const auto* experts = exact["experts"].data_as<std::int32_t>();
  auto *order = exact["order"].data_as<std::int32_t>(), *places = exact["places"].data_as<std::int32_t>(),
       *offsets = exact["offsets"].data_as<std::int32_t>();
  std::int32_t place = 0;
  std::fill(order, order + pairs, -1);
  std::fill(places, places + pairs, -1);
  for (std::int64_t expert = 0; expert < c->groups; ++expert) {
    offsets[expert] = place;
    for (std::int64_t pair = 0; pair < pairs; ++pair)
      if (experts[pair] == expert) order[place] = static_cast<std::int32_t>(pair), places[pair] = place++;
  }
  offsets[c->groups] = place;
}

MoeRowsKernel permute_plan(const Bound<MoePermute>& c) {
  return planned_rows(c.type("x"), c.dim("d"), c->topk);
}

void permute_formula(const Bound<MoePermute>& c, Exact& exact) {
  const auto x = exact.array("x"), out = exact.array("out");
  const auto* order = exact["order"].data_as<std::int32_t>();
  for (std::int64_t p = 0; p < c.dim("pairs"); ++p)
    for (std::int64_t j = 0; j < c.dim("d"); ++j) out(p, j) = order[p] < 0 ? 0 : x(order[p] / c->topk, j);
}

MoeRowsKernel unpermute_plan(const Bound<MoeUnpermute>& c) {
  MoeRowsKernel t = planned_sums(c.type("y"), c.dim("d"), c.dim("topk"));
  t.weights = c.type_if("weights");
  return t;
}

void unpermute_formula(const Bound<MoeUnpermute>& c, Exact& exact) {
  const std::int64_t topk = c.dim("topk");
  const auto y = exact.array("y"), out = exact.array("out");
  const double* weights = exact.data_if("weights");
  const auto* places = exact["places"].data_as<std::int32_t>();
  for (std::int64_t t = 0; t < c.dim("tokens"); ++t)
    for (std::int64_t j = 0; j < c.dim("d"); ++j) {
      double sum = 0;
      for (std::int64_t pair = t * topk; pair < (t + 1) * topk; ++pair)
        if (places[pair] >= 0) sum += (weights ? weights[pair] : 1) * y(places[pair], j);
      out(t, j) = sum;
    }
}

// Numbers below `count`, each once, in an order that the seed gives; -1 for every seventh, and where there
// are no more.
tegula::Tensor each_once(const Shape& shape, std::uint64_t seed, std::int64_t count) {
  tegula::Tensor numbers = tegula::Tensor::zeros(shape, i32);
  std::vector<std::int32_t> order(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::minstd_rand(static_cast<std::uint32_t>(seed + 1)));
  for (std::int64_t i = 0; i < numbers.nelements(); ++i)
    numbers.data_as<std::int32_t>()[i] = i >= count || i % 7 == 6 ? -1 : order[static_cast<std::size_t>(i)];
  return numbers;
}
using Known = std::function<std::int64_t(const std::string&)>;
tegula::Tensor example_order(const Shape& shape, DType, std::uint64_t seed, const Known& known) {
  return each_once(shape, seed, known("tokens") * known("topk"));
}
tegula::Tensor example_places(const Shape& shape, DType, std::uint64_t seed, const Known& known) {
  return each_once(shape, seed, known("pairs"));
}

const OptionRule topk_rule = between(1, 256, "a number from 1 to 256", "give the experts of a token");

}  // namespace

const OperatorSchema& moe_sort_schema() {
  using Op = MoeSort;
  static const OperatorSchema table =
      Schema<Op>("moe_sort", "pairs of tokens and experts in the order of experts")
          .in(&Op::experts, "experts", "tokens topk", index,
              "experts of each token, less than groups; a negative number is skipped")
          .range("-1", "groups")
          .converts()
          .option(&Op::groups, "groups", "number of experts", between(1, 8192, "a number from 1 to 8192"))
          .needed()
          .out(&Op::order, "order", "tokens*topk", is(i32),
               "pairs in ascending order of their experts; -1 after the last")
          .out(&Op::places, "places", "tokens topk", is(i32),
               "position of every pair in that order; -1 if it is skipped")
          .out(&Op::offsets, "offsets", "groups+1", is(i32),
               "first pair of each expert, and the end of the last one's")
          .source("Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts")
          .no_gradient("its results are numbers of rows")
          .flops("tokens*topk")
          .examples(
              {{"some_left_out", "tokens=37 topk=3 groups=5"}, {"many", "tokens=700 topk=4 groups=300"}})
          .measured({{"4096x8_256", "tokens=4096 topk=8 groups=256"},
                     {"32768x8_128", "tokens=32768 topk=8 groups=128"}})
          .run(sort, sort_formula);
  return table;
}

const OperatorSchema& moe_permute_schema() {
  using Op = MoePermute;
  static const OperatorSchema table =
      Schema<Op>("moe_permute", "rows of tokens in the order of their experts")
          .in(&Op::x, "x", "tokens d", floats, "rows of tokens")
          .in(&Op::order, "order", "pairs", index, "pairs, each once: token * topk + choice; negative: zeros")
          .values(example_order)
          .converts()
          .option(&Op::topk, "topk", "experts of a token", topk_rule)
          .needed()
          .out(&Op::out, "out", "pairs d", same_as("x"), "the row of the token of every pair")
          .source("Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts")
          .composed_gradient("moe_unpermute")
          .flops("pairs*d")
          .examples({{"ragged", "tokens=20 pairs=37 d=100 topk=2"},
                     {"bf16", "tokens=9 pairs=70 d=264 topk=8 bf16"}})
          .measured({{"4096x8x7168", "tokens=4096 pairs=32768 d=7168 topk=8 bf16"}})
          .run(permute_plan, moe_permute_program, permute_formula);
  return table;
}

const OperatorSchema& moe_unpermute_schema() {
  using Op = MoeUnpermute;
  static const OperatorSchema table =
      Schema<Op>("moe_unpermute", "weighted sums of the rows of tokens' experts")
          .in(&Op::y, "y", "pairs d", floats, "rows in the order of experts")
          .in(&Op::places, "places", "tokens topk", index,
              "rows of each token, each row once; a negative number is skipped")
          .values(example_places)
          .converts()
          .in(&Op::weights, "weights", "tokens topk", floats, "factors of the rows")
          .out(&Op::out, "out", "tokens d", same_as("y"), "sums of the rows over the experts of each token")
          .require("places", "topk <= 256", "at most 256 experts of a token", "add sums of fewer")
          .source("Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts")
          .composed_gradient("moe_permute")
          .flops("2*tokens*topk*d")
          .examples({{"ragged", "tokens=20 topk=2 pairs=40 d=100"},
                     {"weighted_bf16", "tokens=9 topk=8 pairs=72 d=264 bf16 weights:f32"}})
          .measured({{"4096x8x7168", "tokens=4096 topk=8 pairs=32768 d=7168 bf16 weights:f32"}})
          .run(unpermute_plan, moe_unpermute_program, unpermute_formula);
  return table;
}

}  // namespace tegula::ops
