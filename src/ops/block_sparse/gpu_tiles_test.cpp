// Block-sparse attention and its gradients on GPUs, whatever the blocks of a call are: the tiles that the
// plan takes, what the program computes with them, and that tensor cores multiply by warp groups.
#include <algorithm>

#include "ops/block_sparse/backward_call.hpp"
#include "ops/reference/reference.hpp"
#include "ops/testing/gradients.hpp"
#include "tegula/explain.hpp"

namespace tegula::ops {
namespace gpu_tiles_test {

struct Row {
  int q_block, k_block;
  std::int64_t group = 1, dim = 16, dim_v = 16, queries = 75, keys = 83, entries = 3;
  bool causal = false, per_query_head = false;
  DType type = bf16;
};

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.q_block << " x " << row.k_block << " group " << row.group << " features " << row.dim << "/"
       << row.dim_v;
}

std::int64_t blocks(std::int64_t extent, int block) { return (extent + block - 1) / block; }

struct Given {
  Tensor q, k, v, dout, indices;
  BlockSparseOptions options;

  explicit Given(const Row& row)
      : q(Tensor::random_normal({1, row.queries, row.group, row.dim}, row.type, 1)),
        k(Tensor::random_normal({1, row.keys, 1, row.dim}, row.type, 2)),
        v(Tensor::random_normal({1, row.keys, 1, row.dim_v}, row.type, 3)),
        dout(Tensor::random_normal({1, row.queries, row.group, row.dim_v}, row.type, 4)),
        indices(Tensor::random_integers(
            {1, row.per_query_head ? row.group : 1, blocks(row.queries, row.q_block), row.entries}, i32, 5,
            -1, blocks(row.keys, row.k_block) + 1)) {
    options.q_block_size = row.q_block, options.k_block_size = row.k_block;
    options.causal = row.causal, options.indices = indices;
  }
};

class BlockSparseOnGpus : public testing::TestWithParam<Row> {};

void expect_forward(const Given& in, DType type) {
  PlannedCall call(block_sparse_attention_schema(), BlockSparse{in.options, in.q, in.k, in.v});
  run_block_sparse(block_sparse_call(call.bound, call.op, true), call.launch);
  const AttentionResult exact = reference::block_sparse_attention(in.q, in.k, in.v, in.options),
                        plain = reference::block_sparse_attention(in.q, in.k, in.v, in.options, type);
  expect_close("out", call.bound.output("out"), exact.out, plain.out, type);
  expect_close("lse", call.bound.output("lse"), exact.lse, plain.lse, f32);
}

void expect_backward(const Given& in, DType type) {
  const AttentionResult forward = reference::block_sparse_attention(in.q, in.k, in.v, in.options, type);
  const Tensor out = forward.out.to(type), lse = forward.lse.to(f32);
  PlannedCall call(block_sparse_attention_backward_schema(),
                   BlockSparseBackward{in.options, {}, in.dout, in.q, in.k, in.v, out, lse});
  run_block_sparse_backward(block_sparse_backward_call(Bound<BlockSparseBackward>(call.bound), true),
                            call.launch);
  const auto by_formula = [&](DType steps) {
    return reference::block_sparse_attention_backward(in.dout, in.q, in.k, in.v, in.options, {}, steps);
  };
  const AttentionGradients exact = by_formula(f64), plain = by_formula(type);
  expect_gradients(gradients_of(call.bound), exact, plain, type);
}

// On the interpreter.
TEST_P(BlockSparseOnGpus, AgreesWithTheFormula) {
  Given in(GetParam());
  in.options.target = Target::interpreter();
  expect_forward(in, GetParam().type);
  expect_backward(in, GetParam().type);
}

std::vector<Row> table() {
  return {{48, 80},
          {48, 80, 4, 16, 16, 75, 83, 2, true},
          {96, 96, 2, 16, 16, 130, 107},
          {32, 32, 2},
          {32, 32, 2, 16, 16, 75, 83, 3, true, true},
          {16, 16, 4, 16, 16, 41, 83, 4, true},
          {16, 16},
          {8, 24, 3},
          {7, 9, 2, 16, 16, 41, 83, 6},
          {100, 40, 2, 16, 16, 130, 83},
          {64, 1, 1, 16, 16, 75, 83, 20},
          {20, 100, 3, 16, 32, 41, 130, 2, true}};
}

INSTANTIATE_TEST_SUITE_P(Table, BlockSparseOnGpus, testing::ValuesIn(table()));

// As threads run the text for Hopper.
TEST(BlockSparseOnHopper, AgreesWithTheFormula) {
  if (resolve(Target::automatic()) == Target::interpreter()) GTEST_SKIP() << "no compiler";
  for (const Row& row :
       {Row{48, 80, 4, 64, 64, 75, 163, 2, true}, Row{16, 16, 4, 64, 64, 41, 133, 5, true}}) {
    Given in(row);
    in.options.target = Target::emulated_sm90();
    expect_forward(in, row.type);
    expect_backward(in, row.type);
  }
}

struct Tiles {
  int pack, queries, keys;                             // of the forward
  int backward_pack, backward_queries, backward_keys;  // of the pass over queries
  int fold;
};

struct Planned {
  Row row;
  Tiles tiles;
};

// Long calls: what few queries or keys need is not counted.
TEST(BlockSparseOnGpus, TilesAreWholeWarpGroups) {
  for (const auto& [row, tiles] :
       std::vector<Planned>{{{64, 64, 8, 128, 128}, {8, 16, 128, 1, 64, 64, 1}},
                            {{128, 128, 1, 128, 128}, {1, 128, 128, 1, 128, 128, 1}},
                            {{384, 384, 8, 128, 128}, {1, 128, 128, 1, 128, 128, 1}},
                            {{16, 64, 1, 128, 128}, {1, 16, 64, 1, 64, 64, 1}},
                            {{48, 80, 4, 128, 128}, {4, 48, 80, 4, 16, 48, 1}},
                            {{48, 80, 1, 128, 128}, {1, 64, 80, 1, 64, 48, 1}},
                            {{48, 80, 4, 256, 256}, {4, 16, 48, 4, 16, 48, 1}},
                            {{32, 32, 4, 128, 128}, {4, 32, 128, 4, 16, 64, 2}},
                            {{96, 96, 4, 128, 128}, {4, 32, 96, 4, 16, 48, 1}},
                            {{16, 16, 4, 128, 128}, {4, 16, 64, 4, 16, 64, 4}},
                            {{128, 1, 1, 128, 128}, {1, 128, 128, 1, 64, 64, 64}},
                            {{100, 9, 3, 128, 128}, {3, 64, 64, 1, 64, 64, 7}},
                            {{128, 144, 1, 192, 128}, {1, 128, 48, 1, 64, 48, 1}}}) {
    SCOPED_TRACE(testing::PrintToString(row));
    Row large = row;
    large.queries = 1000, large.keys = 1000, large.entries = 1;
    const Given in(large);
    const PlannedCall call(block_sparse_attention_schema(), BlockSparse{in.options, in.q, in.k, in.v},
                           BoundCall::Memory::unused);
    const BlockSparseKernel forward = block_sparse_call(call.bound, call.op, true).kernel;
    EXPECT_EQ(forward.pack, tiles.pack);
    EXPECT_EQ(forward.queries, tiles.queries);
    EXPECT_EQ(forward.keys, tiles.keys);
    const Tensor lse = Tensor::zeros({1, large.group, large.queries}, f32);
    const PlannedCall gradients(block_sparse_attention_backward_schema(),
                                BlockSparseBackward{in.options, {}, in.dout, in.q, in.k, in.v, in.dout, lse},
                                BoundCall::Memory::unused);
    const BlockSparseBackwardKernel backward =
        block_sparse_backward_call(Bound<BlockSparseBackward>(gradients.bound), true).kernel;
    EXPECT_EQ(backward.forward.pack, tiles.backward_pack);
    EXPECT_EQ(backward.forward.queries, tiles.backward_queries);
    EXPECT_EQ(backward.forward.keys, tiles.backward_keys);
    EXPECT_EQ(backward.queries, std::min(64, tiles.backward_queries));
    EXPECT_EQ(backward.keys, 64);
    EXPECT_EQ(backward.fold, tiles.fold);
  }
}

// Roles, and no instructions of older GPUs; neither where vectors over queries have rows of no multiple of 16
// bytes.
TEST(BlockSparseOnGpus, TakesNoSlowerWay) {
  for (const Row& row : {Row{48, 80, 4, 128, 128, 1001, 1003}, Row{32, 32, 1, 192, 128, 1001, 1003},
                         Row{1, 16, 4, 192, 192, 1001, 1003}}) {
    SCOPED_TRACE(testing::PrintToString(row));
    const Given in(row);
    const Tensor lse = Tensor::zeros({1, row.group, row.queries}, f32);
    const std::map<std::string, std::string> options{{"q_block_size", std::to_string(row.q_block)},
                                                     {"k_block_size", std::to_string(row.k_block)}};
    const std::map<std::string, Tensor> forward{
        {"q", in.q}, {"k", in.k}, {"v", in.v}, {"indices", in.indices}};
    std::map<std::string, Tensor> backward = forward;
    backward.insert({{"dout", in.dout}, {"out", in.dout}, {"lse", lse}});
    for (const auto& [op, inputs] : {std::pair("block_sparse_attention", forward),
                                     std::pair("block_sparse_attention_backward", backward)})
      for (const Explanation& kernel : explain(op, inputs, options, Target::cuda()))
        for (const std::string& note : kernel.notes)
          for (const char* slow : {"no roles: ", "mma.sync: ", "multiply-add: ", "strides: "})
            EXPECT_EQ(note.find(slow), std::string::npos) << note;
  }
}

}  // namespace gpu_tiles_test
}  // namespace tegula::ops
