#include "ops/registered.hpp"

#include <algorithm>

#include "ops/common/arguments.hpp"
#include "ops/reference/reference.hpp"
#include "ops/selection/call.hpp"

namespace tegula::ops {

namespace {

BlockScoresOptions scores_options(const Options& options, Target target = Target::automatic()) {
  BlockScoresOptions result;
  result.layout = options.text("layout") == "bshd" ? Layout::bshd : Layout::bhsd;
  result.q_block = options.small_integer("q_block"), result.k_block = options.small_integer("k_block");
  result.causal = options.boolean("causal"), result.per_kv_head = options.boolean("per_kv_head");
  result.scale = optional_real(options, "scale");
  result.target = target;
  return result;
}

TopkBlocksOptions topk_options(const Options& options, Target target = Target::automatic()) {
  TopkBlocksOptions result;
  result.keep_first = options.boolean("keep_first"), result.keep_diagonal = options.boolean("keep_diagonal");
  result.q_block = options.small_integer("q_block"), result.k_block = options.small_integer("k_block");
  result.key_offset = options.integer("key_offset");
  result.target = target;
  return result;
}

BlockScoresCall prepared(const Tensors& in, const Options& options, Target target = Target::automatic()) {
  return prepare_block_scores(required(in, "q"), required(in, "k"), scores_options(options, target));
}

Case scores_example(const std::string& name, Shape q, Shape k, DType type, OptionTexts options) {
  return {name, std::move(options), [=](std::uint64_t seed) {
            return Tensors{{"q", Tensor::random_normal(q, type, seed)},
                           {"k", Tensor::random_normal(k, type, seed + 1)}};
          }};
}

Case topk_example(const std::string& name, Shape shape, OptionTexts options) {
  return {name, std::move(options), [=](std::uint64_t seed) {
            // Small integers: many scores are equal.
            return Tensors{{"scores", Tensor::random_integers(shape, i32, seed, -9, 9).to(f32)}};
          }};
}

void describe_scores(Operator& op) {
  op.name = "block_scores";
  op.summary = "products of the means of query blocks and key blocks";
  op.inputs = {{"q", "[batch, queries, heads, d]", float_types, true, "queries"},
               {"k", "[batch, keys, kv_heads, d]", float_types, true, "keys"}};
  op.outputs = {{"scores", "[batch, heads or kv_heads, q_blocks, k_blocks]", "f32"}};
  op.options = {
      {"q_block", OptionType::integer, "64", "queries of a block", {}},
      {"k_block", OptionType::integer, "64", "keys of a block", {}},
      {"layout", OptionType::choice, "bshd", "order of batch, sequence, heads, features", {"bshd", "bhsd"}},
      {"causal", OptionType::boolean, "false", "blocks that no query of the row sees score -inf", {}},
      {"per_kv_head", OptionType::boolean, "true", "one row for the heads of a group", {}},
      {"scale", OptionType::real, "", "of the scores, 1/sqrt(d) unless given", {}}};
  op.check_cases = {scores_example("grouped_causal", {1, 37, 4, 16}, {1, 70, 2, 16}, f32,
                                   {{"q_block", "8"}, {"k_block", "4"}, {"causal", "true"}}),
                    scores_example("per_head_f16", {2, 33, 4, 8}, {2, 20, 2, 8}, f16,
                                   {{"q_block", "16"}, {"k_block", "70"}, {"per_kv_head", "false"}})};
  op.bench_cases = {
      scores_example("65536", {1, 65536, 1, 64}, {1, 65536, 1, 64}, f32, {}),
      scores_example("16384_grouped", {1, 16384, 8, 128}, {1, 16384, 2, 128}, bf16, {{"causal", "true"}})};
}

void describe_topk(Operator& op) {
  op.name = "topk_blocks";
  op.summary = "numbers of the largest block scores of every row, ascending";
  op.inputs = {
      {"scores", "[batch, heads, q_blocks, k_blocks]", {f32}, true, "-inf and NaN are never chosen"}};
  op.outputs = {{"indices", "[batch, heads, q_blocks, count]", "i32, -1 where fewer exist"}};
  op.options = {
      {"count", OptionType::integer, "", "blocks of a row", {}},
      {"keep_first", OptionType::boolean, "false", "block 0 is chosen before all others", {}},
      {"keep_diagonal", OptionType::boolean, "false", "and so is the block at the last query of the row", {}},
      {"q_block", OptionType::integer, "64", "queries of a block, for the diagonal", {}},
      {"k_block", OptionType::integer, "64", "keys of a block, for the diagonal", {}},
      {"key_offset", OptionType::integer, "0", "keys - queries, for the diagonal", {}}};
  op.check_cases = {topk_example("ties", {1, 2, 5, 40}, {{"count", "7"}}),
                    topk_example("more_than_blocks", {2, 1, 3, 6}, {{"count", "9"}}),
                    topk_example("kept", {1, 1, 12, 12},
                                 {{"count", "3"}, {"keep_first", "true"}, {"keep_diagonal", "true"}})};
  op.bench_cases = {topk_example("1024_of_1024x1024", {1, 1, 1024, 1024}, {{"count", "100"}}),
                    topk_example("16_of_8x256x256", {1, 8, 256, 256}, {{"count", "16"}})};
}

}  // namespace

Operator registered_block_scores() {
  Operator op;
  describe_scores(op);
  op.run = [](const Tensors& in, const Options& options, Target target) {
    return Tensors{
        {"scores", block_scores(required(in, "q"), required(in, "k"), scores_options(options, target))}};
  };
  op.reference = [](const Tensors& in, const Options& options) {
    prepared(in, options);
    return Tensors{
        {"scores", reference::block_scores(required(in, "q"), required(in, "k"), scores_options(options))}};
  };
  op.kernels = [](const Tensors& in, const Options& options, Target target) {
    return std::vector{block_scores_kernel(prepared(in, options, target).kernel)};
  };
  op.work = [](const Tensors& in, const Options& options) {
    const auto out = static_cast<double>(nelements(prepared(in, options).out_shape));
    const auto dim = static_cast<double>(required(in, "q").size(-1));
    const auto rows = static_cast<double>(required(in, "q").nelements() + required(in, "k").nelements());
    return Work{2 * out * dim + rows, bytes_of(in) + 4 * out};
  };
  // Means are in f32 whatever the inputs, which the reference reads exactly.
  op.tolerance = [](const Tensors& in, const Options&) {
    return rounding_tolerance(f32, 4.0 * static_cast<double>(required(in, "q").size(-1)));
  };
  return op;
}

Operator registered_topk_blocks() {
  Operator op;
  describe_topk(op);
  op.run = [](const Tensors& in, const Options& options, Target target) {
    return Tensors{{"indices", topk_blocks(required(in, "scores"), options.integer("count"),
                                           topk_options(options, target))}};
  };
  op.reference = [](const Tensors& in, const Options& options) {
    prepare_topk(required(in, "scores"), options.integer("count"), topk_options(options));
    return Tensors{{"indices", reference::topk_blocks(required(in, "scores"), options.integer("count"),
                                                      topk_options(options))}};
  };
  op.kernels = [](const Tensors& in, const Options& options, Target) {
    return std::vector{
        topk_kernel(prepare_topk(required(in, "scores"), options.integer("count"), topk_options(options)))};
  };
  op.work = [](const Tensors& in, const Options& options) {
    const Tensor& scores = required(in, "scores");
    const double rows = static_cast<double>(scores.nelements()) /
                        static_cast<double>(std::max<std::int64_t>(scores.size(-1), 1));
    return Work{0, bytes_of(in) + 4 * rows * static_cast<double>(options.integer("count"))};
  };
  op.tolerance = [](const Tensors&, const Options&) { return Operator::Tolerance{}; };
  return op;
}

}  // namespace tegula::ops
