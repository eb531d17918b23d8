// Calls in which extents are 0: of one dimension of one tensor, which must fit the others or is refused, and
// of everything that goes by one name, alone and with another. No call crashes, and what is not refused is
// right.
#include <gtest/gtest.h>

#include "ops/registry.hpp"
#include "tegula/error.hpp"

namespace tegula::ops {
namespace empty_extents_test {

// Dimensions by letter: batch, queries, heads, g (heads of keys), keys, d, v (features of values), n (entries
// or blocks wanted), r and c (blocks of queries and keys), m (rows of gemm's a), f (fences).
using Extents = std::map<char, std::int64_t>;

const Extents usual{{'b', 2}, {'q', 5}, {'h', 6}, {'g', 3}, {'k', 7}, {'d', 8},
                    {'v', 4}, {'n', 2}, {'r', 3}, {'c', 3}, {'m', 9}, {'f', 4}};

struct Input {
  std::string name, dims;
  DType type = f32;
};

struct Row {
  std::string name, op;
  std::vector<Input> inputs;
  OptionTexts options = {};
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Input> joined(std::vector<Input> first, const std::vector<Input>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

std::vector<Row> table() {
  const std::vector<Input> batched{{"q", "bqhd"}, {"k", "bkgd"}, {"v", "bkgv"}},
      packed{
          {"q", "qhd"}, {"k", "kgd"}, {"v", "kgv"}, {"cu_seqlens_q", "f", i32}, {"cu_seqlens_k", "f", i32}};
  const OptionTexts blocks{{"q_block_size", "2"}, {"k_block_size", "3"}}, block{{"block_size", "3"}};
  const auto with = [](OptionTexts options, const OptionTexts& more) {
    options.insert(more.begin(), more.end());
    return options;
  };
  std::vector<Row> rows{{"gemm", "gemm", {{"a", "mk"}, {"b", "kn"}, {"bias", "n"}}},
                        {"gemm_batched", "gemm", {{"a", "bmk"}, {"b", "bkn"}}},
                        {"block_scores", "block_scores", {{"q", "bqhd"}, {"k", "bkgd"}}, blocks},
                        {"block_scores_of_heads",
                         "block_scores",
                         {{"q", "bqhd"}, {"k", "bkgd"}},
                         with(blocks, {{"per_kv_head", "false"}, {"causal", "true"}})},
                        {"topk", "topk_blocks", {{"scores", "bhrc"}}, with(blocks, {{"count", "2"}})},
                        {"topk_kept",
                         "topk_blocks",
                         {{"scores", "bhrc"}},
                         with(blocks, {{"count", "2"}, {"keep_first", "true"}, {"keep_diagonal", "true"}})}};
  std::vector<Row> forward{
      {"dense", "attention", batched},
      {"dense_sinks", "attention", joined(batched, {{"sinks", "h"}}), {{"causal", "true"}}},
      {"dense_packed", "attention", packed},
      {"splits", "attention", batched, {{"splits", "3"}}},
      {"blocks", "block_sparse_attention", joined(batched, {{"indices", "bgrn", i32}}), blocks},
      {"blocks_counts", "block_sparse_attention",
       joined(batched, {{"indices", "bhrn", i32}, {"counts", "bhr", i32}}),
       with(blocks, {{"causal", "true"}})},
      {"blocks_mask", "block_sparse_attention", joined(batched, {{"mask", "bgrc", boolean}}), blocks},
      {"tokens", "nsa_selected_attention", joined(batched, {{"block_indices", "bqgn", i32}}),
       with(block, {{"window", "3"}, {"diagonal", "true"}})},
      {"tokens_counts", "nsa_selected_attention",
       joined(batched, {{"block_indices", "bqhn", i32}, {"block_counts", "bqh", i32}}),
       with(block, {{"repeats", "true"}})},
      {"tokens_packed", "nsa_selected_attention", joined(packed, {{"block_indices", "qgn", i32}}), block}};
  for (const Row& own : forward) {
    rows.push_back(own);
    Row gradients = own;
    gradients.name += "_backward", gradients.op += "_backward";
    gradients.options.erase("splits");
    const bool is_packed = own.inputs[0].dims == "qhd";
    const std::string out = is_packed ? "qhv" : "bqhv", lse = is_packed ? "hq" : "bhq";
    const std::vector<Input> of_results{{"dout", out}, {"out", out}, {"lse", lse}, {"dlse", lse}};
    gradients.inputs = joined(gradients.inputs, of_results);
    if (own.options.contains("window"))
      for (const Input& input : of_results)
        gradients.inputs.push_back(
            {input.name[0] == 'd' ? "dwindow_" + input.name.substr(1) : "window_" + input.name, input.dims});
    if (own.op == "nsa_selected_attention") gradients.options["sel_scale_gradient"] = "true";
    rows.push_back(gradients);
  }
  return rows;
}

Shape shape_of(const Input& input, const Extents& extents) {
  Shape shape;
  for (const char letter : input.dims) shape.push_back(extents.at(letter));
  return shape;
}

Tensor fences(std::int64_t count, std::int64_t tokens) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count), static_cast<std::int32_t>(tokens / 2));
  if (count > 0) values.front() = 0, values.back() = static_cast<std::int32_t>(tokens);
  return count > 0 ? Tensor::from(values) : Tensor::empty({0}, i32);
}

Tensor made(const Input& input, const Extents& extents, const Shape& shape, std::uint64_t seed) {
  if (input.dims == "f") return fences(shape[0], extents.at(input.name == "cu_seqlens_q" ? 'q' : 'k'));
  if (input.type == f32) return Tensor::random_normal(shape, f32, seed);
  return Tensor::random_integers(shape, i32, seed, 0, 2).to(input.type);
}

// Blocks of nothing are none.
void derive(Extents& extents) {
  if (extents['q'] == 0) extents['r'] = 0;
  if (extents['k'] == 0) extents['c'] = 0;
}

// Adds the forward's results by the formula, as far as their shapes are those of the row.
void give_results(const Row& row, const Options& options, Tensors& inputs) {
  if (!row.op.ends_with("_backward")) return;
  const Operator& forward = find_operator(row.op.substr(0, row.op.size() - std::string("_backward").size()));
  Tensors given;
  for (const auto& input : forward.inputs)
    if (inputs.contains(input.name)) given.emplace(input.name, inputs.at(input.name));
  try {
    for (const auto& [name, result] : forward.reference(given, options)) {
      const auto found = inputs.find(name);
      if (found != inputs.end() && found->second.shape() == result.shape())
        found->second = result.to(found->second.dtype());
    }
  } catch (const ArgumentError&) {}
}

// Whether the call was refused.
bool run(const Row& row, Tensors inputs) {
  const Operator& op = find_operator(row.op);
  const Options options = Options::parse(op, row.options);
  give_results(row, options, inputs);
  Tensors results;
  try {
    results = op.run(inputs, options, Target::interpreter());
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("argument '"), std::string::npos) << error.what();
    // The message names only what the caller gave.
    const bool names_result = std::string(error.what()).find("'out'") != std::string::npos;
    EXPECT_FALSE(names_result && !inputs.contains("out")) << error.what();
    return true;
  }
  EXPECT_EQ(faults_of(op.judge(inputs, options, results)), "");
  op.work(inputs, options);
  for (const Target target : {Target::cpu(), Target::cuda()}) op.kernels(inputs, options, target);
  return false;
}

class EmptyExtents : public testing::TestWithParam<Row> {};

TEST_P(EmptyExtents, OfOneTensorFitOrAreRefused) {
  const Row& row = GetParam();
  for (std::size_t at = 0; at < row.inputs.size(); ++at)
    for (std::size_t dim = 0; dim < row.inputs[at].dims.size(); ++dim) {
      SCOPED_TRACE(row.inputs[at].name + ", dimension " + std::to_string(dim));
      Tensors inputs;
      for (std::size_t i = 0; i < row.inputs.size(); ++i) {
        Shape shape = shape_of(row.inputs[i], usual);
        if (i == at) shape[dim] = 0;
        inputs.emplace(row.inputs[i].name, made(row.inputs[i], usual, shape, i));
      }
      run(row, inputs);
    }
}

TEST_P(EmptyExtents, OfEverythingOfANameAreRightOrRefused) {
  const Row& row = GetParam();
  const std::string always_refused = "dvf", never_refused = "bqkn";
  for (const auto& [first, count] : usual)
    for (const auto& [second, same] : usual) {
      if (second < first || (second != first && row.op.ends_with("_backward"))) continue;
      SCOPED_TRACE(std::string(1, first) + second);
      Extents extents = usual;
      extents[first] = extents[second] = 0;
      derive(extents);
      Tensors inputs;
      bool has_first = false;
      for (std::size_t i = 0; i < row.inputs.size(); ++i) {
        const Input& input = row.inputs[i];
        has_first = has_first || input.dims.find(first) != std::string::npos;
        inputs.emplace(input.name, made(input, extents, shape_of(input, extents), i));
      }
      if (!has_first) continue;
      const bool was_refused = run(row, inputs);
      if (first != second) continue;
      EXPECT_FALSE(was_refused && never_refused.find(first) != std::string::npos);
      EXPECT_FALSE(!was_refused && always_refused.find(first) != std::string::npos);
    }
}

INSTANTIATE_TEST_SUITE_P(Table, EmptyExtents, testing::ValuesIn(table()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace tegula::ops
