// Calls at the limits of what is promised, on a GPU: their texts can be printed, so that tiles, lists and
// stages fit its shared memory and every wait is there.
#include <gtest/gtest.h>

#include "codegen/cuda_program.hpp"
#include "ops/registry.hpp"
#include "runtime/testing/test_environment.hpp"

namespace tegula::ops {
namespace limits_test {

struct Limit {
  std::string op;
  DType type = bf16;
  std::int64_t heads = 1, dim = 64, dim_v = 64, entries = 2;
  OptionTexts options = {};
  bool per_head = false;  // lists of every query head
  std::int64_t queries = 70, keys = 300;
  bool packed = false;  // of block-sparse attention

  std::string name() const {
    std::string text = op + "_" + std::string(type.name()) + "_h" + std::to_string(heads) + "_d" +
                       std::to_string(dim) + "_v" + std::to_string(dim_v) + "_e" + std::to_string(entries);
    for (const auto& [option, value] : options) text += "_" + option + "_" + value;
    return text + (per_head ? "_per_head" : "") + (packed ? "_packed" : "");
  }
  bool is(const std::string& what) const { return op.find(what) != std::string::npos; }
};

void PrintTo(const Limit& row, std::ostream* out) { *out << row.name(); }

std::vector<Limit> table() {
  std::vector<Limit> rows;
  for (DType type : {bf16, f32})
    for (std::int64_t d : {256, 384, 480, 512})
      for (std::int64_t dv : {d, std::int64_t{64}})
        for (std::int64_t heads : {1, 4})
          for (const char* op : {"attention", "attention_backward", "block_sparse_attention",
                                 "block_sparse_attention_backward", "nsa_selected_attention",
                                 "nsa_selected_attention_backward"})
            rows.push_back({op, type, heads, d, dv});
  for (std::int64_t heads : {1, 8})
    for (std::int64_t d : {256, 512})
      rows.push_back({"block_scores", bf16, heads, d, d, 2, {{"q_block_size", "1"}, {"k_block_size", "1"}}});
  for (const char* op :
       {"attention_backward", "block_sparse_attention_backward", "nsa_selected_attention_backward"})
    for (std::int64_t d : {16, 64, 128})
      for (std::int64_t dv : {5, 24, 72, 100}) rows.push_back({op, bf16, 1, d, dv});
  for (const char* op : {"nsa_selected_attention", "nsa_selected_attention_backward"})
    for (std::int64_t entries : {768, 1024, 4096})
      for (std::int64_t heads : {1, 4, 16})
        for (const char* repeats : {"false", "true"})
          rows.push_back({op, bf16, heads, 64, 64, entries, {{"repeats", repeats}}});
  for (const char* block : {"128", "256"})  // loops of thousands of steps
    for (std::int64_t heads : {1, 4, 16})
      rows.push_back(
          {"nsa_selected_attention_backward", bf16, heads, 128, 128, 768, {{"block_size", block}}});
  rows.push_back({"block_sparse_attention_backward",
                  bf16,
                  4,
                  64,
                  64,
                  768,
                  {{"q_block_size", "1"}, {"k_block_size", "128"}}});
  for (std::int64_t entries : {768, 1024})
    for (const char* op : {"block_sparse_attention", "block_sparse_attention_backward"})
      rows.push_back({op, bf16, 4, 64, 64, entries, {{"q_block_size", "1"}}});
  for (const char* op : {"block_sparse_attention", "block_sparse_attention_backward"}) {
    for (DType type : {bf16, f32})
      for (std::int64_t d : {128, 256, 512})
        for (std::int64_t heads : {1, 4}) {
          rows.push_back({.op = op, .type = type, .heads = heads, .dim = d, .dim_v = d, .packed = true});
          rows.push_back({.op = op, .type = type, .heads = heads, .dim = d, .packed = true});
        }
    rows.push_back({.op = op,
                    .heads = 4,
                    .entries = 1024,
                    .options = {{"q_block_size", "1"}, {"k_block_size", "128"}},
                    .packed = true});
  }
  return rows;
}

Tensors inputs_of(const Limit& row) {
  auto of = [&](std::int64_t tokens, std::int64_t heads, std::int64_t d) {
    return Tensor::empty(row.packed ? Shape{tokens, heads, d} : Shape{1, tokens, heads, d}, row.type);
  };
  Tensors in{{"q", of(row.queries, row.heads, row.dim)}, {"k", of(row.keys, 1, row.dim)}};
  if (row.op == "block_scores") return in;
  in.emplace("v", of(row.keys, 1, row.dim_v));
  const std::int64_t choosing = row.per_head ? row.heads : 1;
  if (row.is("block_sparse")) {
    const auto given = row.options.find("q_block_size");
    const std::int64_t block = given == row.options.end() ? 64 : std::stoi(given->second);
    in.emplace("indices", Tensor::zeros({1, choosing, (row.queries + block - 1) / block, row.entries}, i32));
  }
  if (row.packed) {
    in.emplace("cu_seqlens_q", Tensor::from<std::int32_t>({0, static_cast<std::int32_t>(row.queries)}));
    in.emplace("cu_seqlens_k", Tensor::from<std::int32_t>({0, static_cast<std::int32_t>(row.keys)}));
  }
  if (row.is("nsa")) in.emplace("block_indices", Tensor::zeros({1, row.queries, choosing, row.entries}, i32));
  if (!row.is("backward")) return in;
  for (const char* name : {"out", "dout"}) in.emplace(name, of(row.queries, row.heads, row.dim_v));
  in.emplace("lse", Tensor::empty(
                        row.packed ? Shape{row.heads, row.queries} : Shape{1, row.heads, row.queries}, f32));
  if (row.options.count("window") == 0) return in;
  for (const char* name : {"window_out", "dwindow_out"})
    in.emplace(name, of(row.queries, row.heads, row.dim_v));
  in.emplace("window_lse", Tensor::empty({1, row.heads, row.queries}, f32));
  return in;
}

void expect_fits(const Limit& row) {
  const Operator& op = find_operator(row.op);
  const Options options = Options::parse(op, row.options);
  for (const lang::Kernel& kernel : op.kernels(inputs_of(row), options, Target::cuda()))
    EXPECT_NO_THROW(codegen::print_cuda(Signature(kernel.ir()), {90})) << kernel.name();
}

class Limits : public testing::TestWithParam<Limit> {};

TEST_P(Limits, FitAGpu) { expect_fits(GetParam()); }

std::string name_of(const testing::TestParamInfo<Limit>& row) { return row.param.name(); }

INSTANTIATE_TEST_SUITE_P(Table, Limits, testing::ValuesIn(table()), name_of);

// A group of heads, whose rows may be more than a tile has room for.
struct Group {
  DType type = bf16;
  std::int64_t heads = 1, dim = 64, dim_v = 64, entries = 16;
  std::size_t number = 0;
};

void PrintTo(const Group& group, std::ostream* out) {
  *out << group.type.name() << " " << group.heads << " heads, " << group.dim << " and " << group.dim_v
       << " features, " << group.entries << " entries";
}

std::vector<Group> groups() {
  std::vector<Group> all;
  for (DType type : {bf16, f32})
    for (const auto& [d, dv] :
         {std::pair(64, 64), std::pair(192, 128), std::pair(256, 256), std::pair(512, 512)})
      for (std::int64_t heads : {16, 65, 200}) all.push_back({type, heads, d, dv});
  for (const auto& [d, dv] : {std::pair(100, 72), std::pair(128, 128), std::pair(384, 64)})
    for (std::int64_t heads : {16, 65, 200}) all.push_back({f16, heads, d, dv});
  for (DType type : {bf16, f32})
    for (std::int64_t d : {256, 512})
      for (std::int64_t heads : {64, 256})
        for (std::int64_t entries : {200, 1024}) all.push_back({type, heads, d, d, entries});
  for (std::size_t i = 0; i < all.size(); ++i) all[i].number = i;
  return all;
}

struct Call {
  std::string op;
  OptionTexts options = {};
  bool per_head = false;
};

std::vector<Call> calls_of_groups() {
  const std::string blocks = "block_sparse_attention", tokens = "nsa_selected_attention";
  const OptionTexts window{{"window", "40"}}, scale{{"sel_scale_gradient", "true"}};
  auto with = [](OptionTexts options, const OptionTexts& more) {
    options.insert(more.begin(), more.end());
    return options;
  };
  auto sizes = [](const char* q_block, const char* k_block) {
    return OptionTexts{{"q_block_size", q_block}, {"k_block_size", k_block}};
  };
  std::vector<Call> calls{{"attention"},
                          {"attention_backward"},
                          {blocks + "_backward", sizes("1", "1")},
                          {tokens},
                          {tokens, with(window, {{"block_size", "48"}})},
                          {tokens + "_backward"},
                          {tokens + "_backward", window},
                          {tokens + "_backward", scale},
                          {tokens + "_backward", with(scale, {{"block_size", "256"}})},
                          {tokens + "_backward", with(with(window, scale), {{"block_size", "48"}})},
                          {tokens + "_backward", with(window, {{"repeats", "true"}}), true}};
  for (const char* pass : {"", "_backward"}) {
    calls.push_back({blocks + pass});
    calls.push_back({blocks + pass, sizes("1", "64")});
    calls.push_back({blocks + pass, sizes("16", "16")});
    calls.push_back({blocks + pass, sizes("256", "256"), true});
  }
  return calls;
}

class LargeGroups : public testing::TestWithParam<Group> {};

TEST_P(LargeGroups, FitAGpu) {
  const Group& group = GetParam();
  const std::vector<Call> calls = calls_of_groups();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    // Every call with every second group.
    if ((i + group.number) % 2 != 0 && !tests_all_rows()) continue;
    const Call& call = calls[i];
    Limit row{call.op,     group.type,    group.heads,  group.dim,
              group.dim_v, group.entries, call.options, call.per_head};
    row.queries = 600, row.keys = 700;
    SCOPED_TRACE(row.name());
    expect_fits(row);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, LargeGroups, testing::ValuesIn(groups()));

}  // namespace
}  // namespace tegula::ops
