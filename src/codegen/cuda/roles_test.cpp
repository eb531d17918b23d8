// Kernels whose blocks have a producer and consumers: what they become, and what ptxas makes of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>

#include "codegen/cuda/testing/nvrtc.hpp"
#include "codegen/cuda_program.hpp"
#include "ops/attention/backward_kernel.hpp"
#include "ops/attention/kernel.hpp"
#include "ops/block_sparse/kernel.hpp"
#include "ops/nsa/kernel.hpp"
#include "ops/products/matrix_product.hpp"
#include "tegula/lang.hpp"

namespace tegula::codegen {
namespace {

struct RolesCase {
  std::string name;
  lang::Kernel (*kernel)();
  std::vector<std::string> has, lacks;  // pieces of the text
};

ops::GemmKernel gemm_of(int m, int n, bool transpose_a, bool transpose_b) {
  ops::GemmKernel c;
  c.type = c.out = c.compute = bf16;
  c.tiles = {m, n, 64};
  c.transpose_a = transpose_a, c.transpose_b = transpose_b;
  return c;
}

ops::GemmKernel gemm_of_8_bits(int m, int n) {
  ops::GemmKernel c = gemm_of(m, n, false, true);
  c.type = c.compute = e4m3;
  c.tiles.k = 128;
  return c;
}

ops::AttentionKernel attention_of(int dim, int rows, int keys) {
  ops::AttentionKernel c;
  c.type = c.compute = bf16;
  c.dim = c.dim_v = dim;
  c.queries = rows, c.keys = keys;
  return c;
}

ops::AttentionBackwardKernel backward_of(int dim, int queries, bool causal) {
  ops::AttentionBackwardKernel c;
  c.type = c.compute = bf16;
  c.dim = c.dim_v = dim;
  c.queries = queries, c.keys = 128;
  c.right = causal, c.one_pass = true;
  return c;
}

ops::BlockSparseKernel sparse_of(int q_block, int k_block, int pack, int rows) {
  ops::BlockSparseKernel c;
  c.type = c.compute = bf16;
  c.dim = c.dim_v = 128;
  c.q_block = q_block, c.k_block = k_block;
  c.pack = pack, c.queries = rows / pack;
  c.listed = 0;
  return c;
}

ops::NsaKernel nsa_of(int pack, int queries) {
  ops::NsaKernel c;
  c.type = c.compute = bf16;
  c.dim = c.dim_v = 128;
  c.pack = c.members = pack, c.queries = queries;
  c.lists = true;
  return c;
}

ops::NsaKernel divided(int pack, int entries) {
  ops::NsaKernel c = nsa_of(pack, 192 / pack);
  c.entries = entries;
  c.fewest = 3;
  return c;
}

const std::vector<std::string> by_engine{"tg::load_box", "wgmma_n", "tg::store_box"};
const std::vector<std::string> even{"+= gridDim.x"}, dynamic{"tg::next_block"};
// An operand that is multiplied in four parts, the last of them.
const std::string last_part = "for (int r = 12; r < 16; ++r)";
const std::vector<std::string> added{"tg::add_box", "tg::stage_words(", "tg::element<"};

int count(const std::string& text, const std::string& piece) {
  int result = 0;
  for (std::size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) ++result;
  return result;
}

const std::vector<RolesCase> roles_cases{
    {"gemm", [] { return gemm_kernel(gemm_of(128, 256, false, true)); }, {"+= gridDim.x", "Ring<4>"}, {}},
    {"gemm_b_n_major", [] { return gemm_kernel(gemm_of(128, 256, false, false)); }, {"bf16_tb"}, {}},
    {"gemm_a_m_major", [] { return gemm_kernel(gemm_of(128, 256, true, false)); }, {"bf16_ta_tb"}, {}},
    {"gemm_four_groups", [] { return gemm_kernel(gemm_of(256, 128, false, true)); }, {"Ring<"}, {}},
    {"gemm_8_bits",
     [] { return gemm_kernel(gemm_of_8_bits(128, 192)); },
     {"wgmma_n192_e4m3", "take_turn<8, 2>", "tg::add_to("},
     {}},
    {"gemm_8_bits_two_accumulators",
     [] { return gemm_kernel(gemm_of_8_bits(256, 128)); },
     {"wgmma_n128_e4m3", "part1_"},
     {"registers_up<112>"}},
    {"gemm_192_columns", [] { return gemm_kernel(gemm_of(128, 192, false, true)); }, {"wgmma_n192"}, {}},
    {"attention_128",
     [] { return attention_kernel(attention_of(128, 128, 128)); },
     even,
     {"tg::next_block", last_part}},
    {"attention_64",
     [] { return attention_kernel(attention_of(64, 192, 128)); },
     {"registers_up<160>", "tg::take_turn<8, 3>", "tg::give_turn<8, 3>"},
     {}},
    {"attention_256", [] { return attention_kernel(attention_of(256, 128, 64)); }, {"wgmma_n256"}, {}},
    {"attention_96", [] { return attention_kernel(attention_of(96, 128, 128)); }, {"wgmma_n96"}, {}},
    {"attention_causal",
     [] {
       ops::AttentionKernel c = attention_of(128, 128, 128);
       c.right = true;
       return attention_kernel(c);
     },
     {"tg::next_block", "tg::hold(", "// lanes keep their parts"},
     {"+= gridDim.x", "tg::take_turn<", "tg::hold(tg::total"}},
    {"attention_8_bits",
     [] {
       ops::AttentionKernel c = attention_of(128, 128, 128);
       c.type = c.compute = e4m3, c.weights = e4m3, c.out = bf16;
       return attention_kernel(c);
     },
     {"wgmma_n128_e4m3", "tg::hold(tg::total"},
     {}},
    {"attention_varlen",
     [] {
       ops::AttentionKernel c = attention_of(128, 32, 128);
       c.right = c.varlen = true, c.pack = 4;
       return attention_kernel(c);
     },
     {"tg::complete"},
     {}},
    {"backward_128", [] { return attention_backward_kernel(backward_of(128, 64, false)); }, added, {}},
    {"backward_128_causal", [] { return attention_backward_kernel(backward_of(128, 64, true)); }, added, {}},
    {"backward_128_in_order",
     [] {
       ops::AttentionBackwardKernel c = backward_of(128, 64, true);
       c.ordered = true;
       return attention_backward_kernel(c);
     },
     {"tg::take_turns", "giver.give(", "first ? blockIdx.x", ".slot % 2 * 16384"},
     {}},
    {"backward_128_by_80_queries",
     [] {
       ops::AttentionBackwardKernel c = backward_of(128, 80, false);
       c.ordered = true;
       return attention_backward_kernel(c);
     },
     {"tg::take_turns", "tg::stage_columns<80>(", "tg::stage_columns_of<80>(", "wgmma_n80_bf16_ta(",
      "registers_up<240>", ".slot % 2 * 20480"},
     {"tg::stage_words("}},
    {"backward_64", [] { return attention_backward_kernel(backward_of(64, 128, false)); }, added, {}},
    {"sparse_16_by_64", [] { return block_sparse_kernel(sparse_of(16, 64, 8, 128)); }, dynamic, {}},
    {"sparse_8_by_64",
     [] { return block_sparse_kernel(sparse_of(8, 64, 1, 8)); },
     {"lanes keep their parts", "wgmma_n8_bf16_ta("},
     {}},
    {"nsa_one_group",
     [] { return nsa_kernel(nsa_of(4, 16)); },
     {"tg::any_lane(", "ahead_", "lanes keep their parts"},
     {"warp_group ==", last_part}},
    {"nsa_three_groups",
     [] { return nsa_kernel(nsa_of(16, 12)); },
     {"tg::popcount(", "(15u << 4 * warp_group)", "(1u << warp)", "tg::mma_registers<", "tg::store_quad(",
      "init_ring<5>", "registers_up<160>", "tg::any_lane(", "ahead_", "lanes keep their parts", last_part},
     {"tg::take_turn<"}},
    {"nsa_three_groups_two_warps_a_token",
     [] { return nsa_kernel(nsa_of(32, 6)); },
     {"(3u << 2 * warp_group)"},
     {"tg::mma_registers<"}},
    {"nsa_three_groups_two_words",
     [] { return nsa_kernel(nsa_of(4, 48)); },
     {"(warp_group == 0 ?"},
     {"tg::take_turn<"}},
    {"rest_of_8_heads",
     [] { return ops::nsa_inverted_kernel({divided(8, 80)}); },
     {"__launch_bounds__(160, 3)", "__launch_bounds__(256, 2)"},
     {}},
    {"rest_of_4_heads",
     [] { return ops::nsa_inverted_kernel({divided(4, 16)}); },
     {"tg::copy_async", "__launch_bounds__(256, 2)"},
     {"__launch_bounds__(160, 3)"}},
    {"sparse_gathered",
     [] { return block_sparse_kernel(sparse_of(128, 1, 1, 128)); },
     {"tg::copy_async"},
     {}},
};

class Roles : public ::testing::TestWithParam<RolesCase> {};

TEST_P(Roles, AreDividedAndFitTheirRegisters) {
  const RolesCase& c = GetParam();
  const Signature signature(c.kernel().ir());
  const CudaProgram program = print_cuda(signature, {90});
  for (const std::vector<std::string>& pieces :
       {std::vector<std::string>{"// ---- producer", "wgmma_n"}, c.has})
    for (const std::string& piece : pieces) EXPECT_NE(program.text.find(piece), std::string::npos) << piece;
  for (const std::string& piece : c.lacks) EXPECT_EQ(program.text.find(piece), std::string::npos) << piece;
  const testing::Nvrtc* nvrtc = testing::Nvrtc::find();
  if (!nvrtc) {
    std::cout << "NVRTC was not found: the text was printed, not compiled\n";
    return;
  }
  const testing::Compiled compiled = nvrtc->compile(program.text, 90);
  ASSERT_TRUE(compiled.ok) << compiled.log;
  EXPECT_EQ(compiled.log.find("C75"), std::string::npos) << compiled.log;
  // Two words cost no time: gradients of 80 queries took 1.205 ms where it was 1.204 without them.
  int held = 0;
  for (const char* stores : {" 0", " 4", " 8"})
    held += count(compiled.log, std::string(" bytes stack frame,") + stores + " bytes spill stores");
  EXPECT_EQ(count(compiled.log, " bytes stack frame"), held) << compiled.log;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Roles, ::testing::ValuesIn(roles_cases),
                         [](const auto& info) { return info.param.name; });

// As many blocks share a processor as the text promises, tiles of every type counted.
TEST(RolesText, FitSharedMemoryTogether) {
  constexpr std::size_t of_processor = 228 * 1024, of_system = 1024;
  for (const auto& [pack, entries, of_keys, of_tokens] :
       {std::tuple(8, 80, 3, 2), std::tuple(4, 16, 2, 2), std::tuple(2, 128, 2, 1)}) {
    const Signature signature(ops::nsa_inverted_kernel({divided(pack, entries)}).ir());
    const CudaProgram program = print_cuda(signature, {90});
    ASSERT_EQ(program.kernels.size(), 2);
    for (const int number : {0, 1}) {
      const CudaProgram::Kernel& kernel = program.kernels[static_cast<std::size_t>(number)];
      const int blocks = number == 0 ? of_keys : of_tokens;
      EXPECT_NE(program.text.find(fmt::format("({}, {}) {}(", kernel.threads, blocks, kernel.function)),
                std::string::npos)
          << pack;
      EXPECT_LE(static_cast<std::size_t>(blocks) * (kernel.shared_bytes + of_system), of_processor) << pack;
    }
  }
}

// Sums of products over as many tiles of rows as the block's number says.
lang::Kernel sums_of_tiles_before(bool of_block) {
  using namespace lang;
  return kernel("before", [&] {
    Dim K("K"), tiles("tiles");
    lang::Tensor A = input("A", {tiles, 128, K}, bf16), B = input("B", {256, K}, bf16),
                 C = output("C", {tiles, 128, 256}, f32);
    grid(tiles, {.threads = 256}, [&](Index x) {
      Fragment sum({128, 256}, f32, 0);
      serial(of_block ? Expr(x + 1) : Expr(tiles), [&](Index tile) {
        pipelined(ceildiv(K, 64), {.stages = 4}, [&](Index n) {
          Shared a({128, 64}, bf16), b({256, 64}, bf16);
          lang::copy(A.slice(tile).at(0, n * 64), a);
          lang::copy(B.at(0, n * 64), b);
          lang::gemm(a, b.T(), sum);
        });
      });
      lang::copy(sum, C.slice(x));
    });
  });
}

// Blocks with as many products as any other, one on a processor, make whole rounds.
TEST(RolesText, SaysWhichBlocksAreEven) {
  ops::AttentionKernel causal = attention_of(128, 128, 128);
  causal.right = true;
  EXPECT_TRUE(
      print_cuda(Signature(gemm_kernel(gemm_of(128, 256, false, true)).ir()), {90}).kernels[0].is_even);
  EXPECT_TRUE(
      print_cuda(Signature(attention_kernel(attention_of(128, 128, 128)).ir()), {90}).kernels[0].is_even);
  EXPECT_FALSE(print_cuda(Signature(attention_kernel(causal).ir()), {90}).kernels[0].is_even);
  EXPECT_FALSE(
      print_cuda(Signature(gemm_kernel(gemm_of(128, 256, false, true)).ir()), {80}).kernels[0].is_even);
  for (const bool of_block : {false, true}) {
    const auto program = print_cuda(Signature(sums_of_tiles_before(of_block).ir()), {90});
    ASSERT_NE(program.text.find("// ---- producer"), std::string::npos);
    EXPECT_EQ(program.kernels[0].is_even, !of_block);
  }
}

// A tile that is partly outside brings the rows inside alone; halves that pairs share come whole.
TEST(RolesText, LeavesOutRowsOutside) {
  const Signature signature(gemm_kernel(gemm_of(128, 256, false, true)).ir());
  const CudaProgram alone = print_cuda(signature, {90}), pairs = print_cuda(signature, {90, true, true});
  EXPECT_EQ(count(alone.text, "tg::load_rows_inside<"), 2);
  EXPECT_EQ(std::count_if(alone.maps.begin(), alone.maps.end(), [](const auto& map) { return map.is_rest; }),
            2);
  EXPECT_EQ(count(pairs.text, "tg::load_rows_inside<"), 1);
}

// Without the copy engine the producer's threads bring the tiles; for sm_80 there are no roles.
TEST(RolesText, FallsBackByTarget) {
  const Signature signature(gemm_kernel(gemm_of(128, 256, false, true)).ir());
  const std::string by_threads = print_cuda(signature, {90, false}).text,
                    ampere = print_cuda(signature, {80}).text;
  EXPECT_EQ(by_threads.find("load_box"), std::string::npos);
  EXPECT_NE(by_threads.find("tg::complete"), std::string::npos);
  EXPECT_EQ(ampere.find("producer"), std::string::npos);
}

// Where the copy engine does not add, the consumers' threads do, in turn all the same.
TEST(RolesText, TakesTurnsByThreads) {
  ops::AttentionBackwardKernel instance = backward_of(128, 64, true);
  instance.ordered = true;
  const Signature signature(attention_backward_kernel(instance).ir());
  const std::string text = print_cuda(signature, {90, false}).text;
  EXPECT_EQ(text.find("add_box"), std::string::npos);
  for (const char* piece : {"// ---- consumers", "tg::wait_turn(", "tg::pass_turn("})
    EXPECT_NE(text.find(piece), std::string::npos) << piece;
}

// Blocks that need the same rows of B bring half of them each; tiles of attention have rings of their own.
TEST(RolesText, SharesLoadsInPairs) {
  for (const bool transpose_b : {false, true}) {
    const Signature signature(gemm_kernel(gemm_of(128, 256, false, transpose_b)).ir());
    const CudaProgram program = print_cuda(signature, {90, true, true});
    EXPECT_EQ(program.kernels[0].pair_index, 1);
    for (const char* piece : {"tg::load_box_for_both", "tg::release_last_in_both", "tg::cluster_sync"})
      EXPECT_NE(program.text.find(piece), std::string::npos) << piece;
    const testing::Nvrtc* nvrtc = testing::Nvrtc::find();
    if (!nvrtc) continue;
    const testing::Compiled compiled = nvrtc->compile(program.text, 90);
    ASSERT_TRUE(compiled.ok) << compiled.log;
    EXPECT_EQ(compiled.log.find("C75"), std::string::npos) << compiled.log;
    EXPECT_NE(compiled.log.find("0 bytes spill stores"), std::string::npos) << compiled.log;
  }
  const Signature attention(attention_kernel(attention_of(128, 128, 128)).ir());
  EXPECT_EQ(print_cuda(attention, {90, true, true}).text, print_cuda(attention, {90}).text);
}

}  // namespace
}  // namespace tegula::codegen
