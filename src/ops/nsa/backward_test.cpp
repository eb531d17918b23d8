// The gradients of attention over selected blocks against their formula, over one table, and the formula
// against differences.
#include "ops/nsa/backward.hpp"

#include "ops/nsa/testing/arguments.hpp"
#include "ops/reference/reference.hpp"
#include "ops/testing/gradients.hpp"

namespace tegula::ops {
namespace nsa_backward_test {

struct Row {
  std::string name;
  std::int64_t batch = 1, tokens = 37, keys = 37, heads = 2, kv_heads = 1, dim = 16, dim_v = 8, entries = 4;
  DType type = f32;
  NsaSelectedOptions options = {};
  bool counts = false, per_query_head = false, packed = false, dlse = false, dsel_scale = false;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

void add_blocks_and_groups(std::vector<Row>& rows) {
  for (int block : {16, 20, 70})
    for (int tokens_of_tile : {1, 3})
      rows.push_back({.name = "block",
                      .tokens = 40,
                      .keys = 90,
                      .options = {.block_size = block,
                                  .diagonal = block == 20,
                                  .window = block == 20 ? 9 : 0,
                                  .tiles = {tokens_of_tile, 32}},
                      .counts = block == 16,
                      .dlse = block == 16,
                      .dsel_scale = tokens_of_tile == 3});
  for (auto [group, per_query_head] : {std::pair(1, false), std::pair(5, false), std::pair(5, true)})
    rows.push_back({.name = "group",
                    .batch = 2,
                    .tokens = 19,
                    .keys = 33,
                    .heads = 2 * group,
                    .kv_heads = 2,
                    .options = {.block_size = 8, .window = group == 5 ? 4 : 0},
                    .per_query_head = per_query_head,
                    .dsel_scale = true});
  for (bool causal : {false, true})
    rows.push_back(
        {.name = "repeats",
         .entries = 7,
         .options =
             {.block_size = 16, .causal = causal, .diagonal = causal, .repeats = true, .tiles = {2, 16}},
         .counts = causal,
         .dsel_scale = true});
  for (std::int64_t tokens : {0, 1, 30})
    for (std::int64_t keys : {0, 21})
      rows.push_back({.name = "sizes",
                      .tokens = tokens,
                      .keys = keys,
                      .options = {.block_size = 16, .diagonal = true, .window = 5, .tiles = {2, 16}}});
}

void add_other_rows(std::vector<Row>& rows) {
  rows.push_back({.name = "many blocks", .tokens = 3, .keys = 1100, .options = {.block_size = 1}});
  rows.push_back({.name = "long lists",
                  .tokens = 150,
                  .keys = 150,
                  .heads = 64,
                  .entries = 2,
                  .type = f16,
                  .options = {.block_size = 128}});
  rows.push_back({.name = "heads that select for themselves, and a window",
                  .tokens = 130,
                  .keys = 130,
                  .heads = 6,
                  .kv_heads = 2,
                  .dim = 32,
                  .dim_v = 32,
                  .entries = 2,
                  .type = f16,
                  .options = {.block_size = 64, .window = 20},
                  .counts = true,
                  .per_query_head = true,
                  .dlse = true});
  for (DType type : {f16, bf16})
    rows.push_back({.name = "type", .type = type, .options = {.block_size = 16, .scale = 0.3f}});
  rows.push_back({.name = "packed sequences",
                  .tokens = 41,
                  .keys = 61,
                  .heads = 6,
                  .kv_heads = 2,
                  .options = {.block_size = 16, .diagonal = true, .window = 4, .tiles = {3, 16}},
                  .counts = true,
                  .packed = true,
                  .dlse = true,
                  .dsel_scale = true});
  rows.push_back({.name = "more heads than a tile has rows",
                  .tokens = 4,
                  .keys = 40,
                  .heads = 260,
                  .dim = 8,
                  .dim_v = 8,
                  .options = {.block_size = 16, .window = 6},
                  .dsel_scale = true});
  rows.push_back({.name = "no entries", .entries = 0, .options = {.block_size = 16}});
}

std::vector<Row> table() {
  std::vector<Row> rows;
  add_blocks_and_groups(rows);
  add_other_rows(rows);
  return in_both_layouts(rows, 5);
}

// Arguments among values that must not be read; results of the forward by the formula.
struct Given : SelectedArguments {
  Planted dout, out, lse, dlse, dwindow_out, window_out, window_lse;
  NsaSelectedBackwardOptions more;

  explicit Given(const Row& row)
      : SelectedArguments(row),
        dout(Tensor::random_normal(shape_of(row, row.tokens, row.heads, row.dim_v), row.type, 6)),
        out(dout.inside.shape(), row.type),
        lse(vector_shape(row), f32),
        dlse(Tensor::random_normal(vector_shape(row), f32, 7)),
        dwindow_out(Tensor::random_normal(dout.inside.shape(), row.type, 8)),
        window_out(dout.inside.shape(), row.type),
        window_lse(vector_shape(row), f32) {
    more.sel_scale_gradient = row.dsel_scale;
    if (row.dlse) more.dlse = dlse.inside;
    const NsaSelectedResult result =
        reference::nsa_selected_attention(q.inside, k.inside, v.inside, indices.inside, options);
    copy_elements(result.out, out.inside);
    copy_elements(result.lse, lse.inside);
    if (options.window == 0) return;
    copy_elements(result.window_out, window_out.inside);
    copy_elements(result.window_lse, window_lse.inside);
    more.dwindow_out = dwindow_out.inside;
    more.window_out = window_out.inside, more.window_lse = window_lse.inside;
    if (row.dlse) more.dwindow_lse = dlse.inside;
  }
};

class NsaBackwardRows : public testing::TestWithParam<Row> {};

TEST_P(NsaBackwardRows, AgreeWithTheFormula) {
  const Row& row = GetParam();
  for (Target target : test_targets()) {
    SCOPED_TRACE(row.name + " " + std::to_string(row.tokens) + " x " + std::to_string(row.keys) +
                 " blocks of " + std::to_string(row.options.block_size) + " " + std::string(target.name()));
    Given in(row);
    in.options.target = target;
    const PlantedGradients results(in.q.inside, in.k.inside, in.v.inside, row.type);
    const Planted dsel_scale(in.indices.inside.shape(), f32);
    in.more.dq = results.dq.inside, in.more.dk = results.dk.inside, in.more.dv = results.dv.inside;
    if (row.dsel_scale) in.more.dsel_scale = dsel_scale.inside;
    auto call = [&] {
      nsa_selected_attention_backward(in.dout.inside, in.q.inside, in.k.inside, in.v.inside,
                                      in.indices.inside, in.out.inside, in.lse.inside, in.options, in.more);
    };
    call();
    auto by_formula = [&](DType steps) {
      return reference::nsa_selected_attention_backward(in.dout.inside, in.q.inside, in.k.inside, in.v.inside,
                                                        in.indices.inside, in.options, in.more, steps);
    };
    const NsaSelectedGradients exact = by_formula(f64), plain = by_formula(row.type);
    expect_gradients(results.inside(), exact, plain, row.type);
    if (row.dsel_scale)
      expect_close("dsel_scale", dsel_scale.inside, exact.dsel_scale, plain.dsel_scale, f32);
    EXPECT_TRUE(results.are_clean_outside());
    EXPECT_TRUE(dsel_scale.is_clean_outside());
    results.expect_again(call);
  }
}

PlannedCall<NsaSelectedBackward> planned_call(const Given& in, const NsaSelectedBackwardOptions& more) {
  NsaSelectedBackward op{in.options,        more,          in.dout.inside,
                         in.q.inside,       in.k.inside,   in.v.inside,
                         in.indices.inside, in.out.inside, in.lse.inside};
  return {nsa_selected_attention_backward_schema(), op};
}

// The program for GPUs means the same everywhere, in one call and in several.
TEST_P(NsaBackwardRows, AgreeWithTheFormulaInOnePass) {
  const Row& row = GetParam();
  for (Target target : test_targets()) {
    SCOPED_TRACE(row.name + " " + std::string(target.name()));
    Given in(row);
    in.options.target = target;
    in.more.sel_scale_gradient = false, in.more.dsel_scale.reset();  // has another way
    const PlannedCall tried = planned_call(in, in.more);
    if (!can_take_one_pass(nsa_backward_call(Bound<NsaSelectedBackward>(tried.bound)))) return;
    auto by_formula = [&](DType steps) {
      return reference::nsa_selected_attention_backward(in.dout.inside, in.q.inside, in.k.inside, in.v.inside,
                                                        in.indices.inside, in.options, in.more, steps);
    };
    const NsaSelectedGradients exact = by_formula(f64), plain = by_formula(row.type);
    for (const std::int64_t tokens_of_call : {16, 1024}) {
      PlannedCall planned = planned_call(in, in.more);
      const NsaBackwardCall call = nsa_backward_call(Bound<NsaSelectedBackward>(planned.bound));
      run_one_pass(call, one_pass_kernel(call), tokens_of_call, planned.launch);
      expect_gradients(gradients_of(planned.bound), exact, plain, row.type);
    }
  }
}

// Heads that find no room in one tile are one after the other, so that they share the gradient of a scale.
TEST_P(NsaBackwardRows, AgreeWithTheFormulaHeadByHead) {
  const Row& row = GetParam();
  if (!row.dsel_scale || row.per_query_head || row.heads == row.kv_heads) return;
  for (Target target : test_targets()) {
    SCOPED_TRACE(row.name + " " + std::string(target.name()));
    Given in(row);
    in.options.target = target;
    PlannedCall planned = planned_call(in, in.more);
    NsaBackwardCall call = nsa_backward_call(Bound<NsaSelectedBackward>(planned.bound));
    call.kernel.forward.pack = call.kernel.forward.members = 1;
    run_two_passes(call, planned.launch);
    auto by_formula = [&](DType steps) {
      return reference::nsa_selected_attention_backward(in.dout.inside, in.q.inside, in.k.inside, in.v.inside,
                                                        in.indices.inside, in.options, in.more, steps);
    };
    const NsaSelectedGradients exact = by_formula(f64), plain = by_formula(row.type);
    expect_gradients(gradients_of(planned.bound), exact, plain, row.type);
    expect_close("dsel_scale", planned.bound.output("dsel_scale"), exact.dsel_scale, plain.dsel_scale, f32);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, NsaBackwardRows, testing::ValuesIn(table()));

// The formula's gradients are compared with differences: its forward is changed in one element at a time.
TEST(NsaBackward, FormulaAgreesWithDifferences) {
  for (const Row& row : table()) {
    if (row.type != f32 || row.tokens * row.keys == 0) continue;
    SCOPED_TRACE(row.name);
    const Given in(row);
    Tensor q = in.q.inside.to(f64), k = in.k.inside.to(f64), v = in.v.inside.to(f64);
    const NsaSelectedGradients exact = reference::nsa_selected_attention_backward(
        in.dout.inside, q, k, v, in.indices.inside, in.options, in.more);
    const auto loss = [&] {
      const NsaSelectedResult result =
          reference::nsa_selected_attention(q, k, v, in.indices.inside, in.options);
      double sum = sum_of_products(result.out, in.dout.inside);
      if (row.dlse) sum += sum_of_products(result.lse, in.dlse.inside);
      if (in.more.dwindow_out) sum += sum_of_products(result.window_out, in.dwindow_out.inside);
      if (in.more.dwindow_lse) sum += sum_of_products(result.window_lse, in.dlse.inside);
      return sum;
    };
    expect_differences(q, k, v, exact, loss);
  }
}

// Where no two entries name one block, a factor of an entry's scores is a factor of its keys.
TEST(NsaBackward, ScaleGradientAgreesWithDifferences) {
  constexpr std::int64_t tokens = 4, kv_heads = 2, entries = 2, block = 16;
  constexpr double step = 1e-5;
  const Tensor q = Tensor::random_normal({1, tokens, 4, 16}, f32, 1),
               k = Tensor::random_normal({1, tokens * entries * block, kv_heads, 16}, f32, 2),
               v = Tensor::random_normal(k.shape(), f32, 3), dout = Tensor::random_normal(q.shape(), f32, 4),
               dlse = Tensor::random_normal({1, 4, tokens}, f32, 5);
  const Tensor indices = Tensor::from<std::int32_t>({5, 0, 2, 7, 1, 6, 3, 4, 4, 2, 0, 1, 7, 3, 6, 5},
                                                    {1, tokens, kv_heads, entries});
  const NsaSelectedOptions options{.block_size = block, .causal = false};
  const NsaSelectedBackwardOptions more{.dlse = dlse, .sel_scale_gradient = true};
  const auto loss = [&](const Tensor& keys) {
    const NsaSelectedResult result = reference::nsa_selected_attention(q, keys, v, indices, options);
    return sum_of_products(result.out, dout) + sum_of_products(result.lse, dlse);
  };
  const auto scaled = [&](std::int64_t head, std::int64_t chosen, double factor) {
    const Tensor keys = k.to(f64);
    for (std::int64_t i = chosen * block; i < (chosen + 1) * block; ++i)
      for (std::int64_t d = 0; d < 16; ++d) keys.at<double>(0, i, head, d) *= factor;
    return keys;
  };
  const NsaSelectedResult forward = nsa_selected_attention(q, k, v, indices, options);
  const Tensor exact = reference::nsa_selected_attention_backward(dout, q, k, v, indices, options, more)
                           .dsel_scale,
               result = nsa_selected_attention_backward(dout, q, k, v, indices, forward.out, forward.lse,
                                                        options, more)
                            .dsel_scale;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t h = 0; h < kv_heads; ++h)
      for (std::int64_t e = 0; e < entries; ++e) {
        const std::int64_t chosen = indices.at<std::int32_t>(0, t, h, e);
        const double difference =
            (loss(scaled(h, chosen, 1 + step)) - loss(scaled(h, chosen, 1 - step))) / (2 * step);
        EXPECT_NEAR(difference, exact.at<double>(0, t, h, e), 1e-7);
        EXPECT_NEAR(difference, result.at<float>(0, t, h, e), 1e-4);
      }
}

// With one block of keys, all selections of all queries together scale q.
TEST(NsaBackward, ScaleGradientIsThatOfAFactor) {
  const Tensor q = Tensor::random_normal({1, 12, 4, 16}, f32, 1),
               k = Tensor::random_normal({1, 12, 2, 16}, f32, 2),
               dout = Tensor::random_normal({1, 12, 4, 16}, f32, 3);
  const Tensor indices = Tensor::zeros({1, 12, 2, 1}, i32);
  const NsaSelectedOptions options{.block_size = 16};
  const NsaSelectedGradients exact = reference::nsa_selected_attention_backward(
      dout, q, k, k, indices, options, {.sel_scale_gradient = true});
  const double of_q = sum_of_products(q, exact.dq);
  EXPECT_NEAR(sum_of_products(exact.dsel_scale, Tensor::full({1, 12, 2, 1}, f64, 1)), of_q, 1e-9);
  const NsaSelectedResult forward = nsa_selected_attention(q, k, k, indices, options);
  const NsaSelectedGradients result = nsa_selected_attention_backward(
      dout, q, k, k, indices, forward.out, forward.lse, options, {.sel_scale_gradient = true});
  EXPECT_NEAR(sum_of_products(result.dsel_scale, Tensor::full({1, 12, 2, 1}, f64, 1)), of_q, 1e-3);
}

// Calls of several kernels, which see windows of their tensors, know that all of them are apart.
TEST(NsaBackward, RefusesSharedOutputs) {
  const Tensor q = Tensor::zeros({1, 20, 4, 16}, f32), k = Tensor::zeros({1, 20, 4, 16}, f32);
  const Tensor indices = Tensor::zeros({1, 20, 4, 3}, i32), lse = Tensor::zeros({1, 4, 20}, f32),
               dout = Tensor::zeros({1, 40, 4, 16}, f32), out = Tensor::zeros({1, 20, 4, 16}, f32);
  auto call = [&](NsaSelectedBackwardOptions more) {
    more.sel_scale_gradient = more.dsel_scale.has_value();
    return
        [=] { nsa_selected_attention_backward(dout.slice(1, 0, 20), q, k, k, indices, out, lse, {}, more); };
  };
  const TensorRef behind = dout.ref().slice(1, 19, 39);
  const std::string of = "nsa_selected_attention_backward, argument '",
                    apart = "': expected its own memory, not that of ";
  const Tensor own = Tensor::zeros({1, 20, 4, 16}, f32);
  expect_refusal(call({.dq = behind}), of + "dq" + apart + "dout");
  expect_refusal(call({.dk = behind}), of + "dk" + apart + "dout");
  expect_refusal(call({.dq = own.ref(), .dv = own.ref()}), of + "dq" + apart + "dv");
  expect_refusal(call({.dk = own.ref(), .dv = own.ref()}), of + "dk" + apart + "dv");
  expect_refusal(call({.dv = k.ref()}), of + "dv" + apart + "k");
  expect_refusal(call({.dlse = lse.ref(), .dq = out.ref()}), of + "dq" + apart + "out");
  const TensorRef on_indices(indices.ref().data, f32, indices.shape());
  expect_refusal(call({.dsel_scale = on_indices}), of + "dsel_scale" + apart + "block_indices");
  const TensorRef on_own(own.ref().data, f32, indices.shape());
  expect_refusal(call({.dk = own.ref(), .dsel_scale = on_own}), of + "dk" + apart + "dsel_scale");
  EXPECT_EQ(refusal(call({.dq = own.ref(), .dk = dout.ref().slice(1, 20, 40)})), "not refused");
}

TEST(NsaBackward, RefusesWrongCalls) {
  const Tensor q = Tensor::zeros({1, 20, 4, 16}, f32), k = Tensor::zeros({1, 30, 2, 16}, f32);
  const Tensor indices = Tensor::zeros({1, 20, 2, 3}, i32), lse = Tensor::zeros({1, 4, 20}, f32);
  auto call = [&](const TensorRef& dout, const TensorRef& of_lse, NsaSelectedOptions options = {},
                  NsaSelectedBackwardOptions more = {}) {
    return [=] { nsa_selected_attention_backward(dout, q, k, k, indices, q, of_lse, options, more); };
  };
  const std::string name = "nsa_selected_attention_backward, argument ";
  expect_refusal(call(q.slice(1, 0, 19), lse),
                 name + "'dout': expected [batch, queries, kv_heads * group, d_v] with queries = 20, as q");
  expect_refusal(call(q, lse.to(f16)), name + "'lse': expected dtype f32");
  expect_refusal(call(q, lse, {}, {.dwindow_out = q}),
                 name + "'dwindow_out': expected a window in the options");
  expect_refusal(call(q, lse, {.window = 4}, {.dwindow_out = q}),
                 name + "'dwindow_out': expected window_out");
  expect_refusal(call(q, lse, {.window = 4}, {.dwindow_out = lse, .window_out = q, .window_lse = lse}),
                 name + "'dwindow_out': expected rank 4");
  expect_refusal(call(q, lse, {}, {.dwindow_lse = lse}),
                 name + "'dwindow_lse': expected dwindow_out with it");
  expect_refusal(call(q, lse, {}, {.dsel_scale = lse}),
                 name + "'dsel_scale': expected no tensor unless sel_scale_gradient");
  expect_refusal(call(q, lse, {}, {.sel_scale_gradient = true, .dsel_scale = lse}),
                 name + "'dsel_scale': expected [");
}

}  // namespace nsa_backward_test
}  // namespace tegula::ops
