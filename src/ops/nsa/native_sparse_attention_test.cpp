// Native sparse attention as one call against the formulas of its branches.
#include "tegula/ops/native_sparse_attention.hpp"

#include "ops/schema/table.hpp"
#include "ops/testing/operators.hpp"
#include "tegula/ops/nsa_combine.hpp"
#include "tegula/ops/nsa_compress.hpp"

namespace tegula::ops {
namespace native_sparse_test {

// What an operator's formula gives for tensors and options by name.
Tensors exact(const char* name, const Tensors& tensors, const OptionValues& options) {
  const OperatorSchema& schema = find_schema(name);
  const CheckedCall call(schema, tensors, options, Target::interpreter());
  return formula_of(schema, call.op.get());
}

OptionValues with(OptionValues all, const OptionValues& more) {
  all.insert(more.begin(), more.end());
  return all;
}

// The composition of its branches, in the layout bshd and in f32 throughout.
Tensor by_branches(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& gates,
                   const std::optional<Tensor>& ends) {
  const auto given = [&](Tensors tensors, bool both = false) {
    if (ends && both) tensors.emplace("cu_seqlens_k", *ends);
    if (ends) tensors.emplace(both ? "cu_seqlens_q" : "cu_seqlens", *ends);
    return tensors;
  };
  const OptionValues windows{{"length", std::int64_t{6}}, {"stride", std::int64_t{4}}};
  const OptionValues seen = with(windows, {{"key_tokens", ends ? 0 : k.size(1)}});
  const Tensor keys = exact("nsa_compress", given({{"x", k}}), windows).at("out").to(f32),
               values = exact("nsa_compress", given({{"x", v}}), windows).at("out").to(f32);
  const Tensors coarse =
      exact("nsa_compressed_attention", given({{"q", q}, {"k", keys}, {"v", values}}), seen);
  const Tensor blocks = exact("nsa_select", given({{"q", q}, {"k", keys}, {"lse", coarse.at("lse").to(f32)}}),
                              with(seen, {{"count", std::int64_t{3}},
                                          {"block_size", std::int64_t{8}},
                                          {"local_blocks", std::int64_t{1}}}))
                            .at("out");
  const Tensors fine =
      exact("nsa_selected_attention", given({{"q", q}, {"k", k}, {"v", v}, {"block_indices", blocks}}, true),
            {{"block_size", std::int64_t{8}}, {"window", std::int64_t{9}}});
  return exact("nsa_combine",
               {{"compressed", coarse.at("out").to(f32)},
                {"selected", fine.at("out").to(f32)},
                {"window", fine.at("window_out").to(f32)},
                {"gates", gates}},
               {})
      .at("out");
}

TEST(NativeSparseAttention, IsItsPartsOneAfterTheOther) {
  NativeSparseOptions options{.length = 6,
                              .stride = 4,
                              .block_size = 8,
                              .count = 3,
                              .local_blocks = 1,
                              .window = 9,
                              .target = Target::interpreter()};
  // Many tokens, few of them, and packed sequences.
  for (const std::int64_t tokens : {37, 3, 0}) {
    const bool packed = tokens == 0;
    const auto shape = [&](std::int64_t rows, std::int64_t heads, std::int64_t features) {
      return packed ? Shape{53, heads, features} : Shape{2, rows, heads, features};
    };
    const Tensor q = Tensor::random_normal(shape(tokens, 4, 8), f32, 1),
                 k = Tensor::random_normal(shape(45, 2, 8), f32, 2),
                 v = Tensor::random_normal(shape(45, 2, 16), f32, 3),
                 gates = Tensor::random_normal(shape(tokens, 4, 3), f32, 4);
    std::optional<Tensor> ends;
    if (packed) ends = Tensor::from<std::int32_t>({0, 30, 30, 53}, {4}), options.cu_seqlens = *ends;
    const auto difference = first_difference(native_sparse_attention(q, k, v, gates, options),
                                             by_branches(q, k, v, gates, ends), 1e-4, 1e-4);
    EXPECT_FALSE(difference) << tokens << " tokens: " << *difference;
  }
}

}  // namespace native_sparse_test
}  // namespace tegula::ops
