// list, check, show, bench, cache and env.
#include <sstream>

#include "ops/registry.hpp"
#include "runtime/machine/cpu_features.hpp"
#include "tegula/stream.hpp"
#include "tests/tool/tool.hpp"
#include "tests/tool/xml.hpp"

namespace tegula {
namespace {

TEST_F(Tool, HelpOfEveryCommand) {
  EXPECT_EQ(tool("--help").status, 0);
  for (auto* command :
       {"list", "run", "check", "bench", "show", "build", "analyze", "tune", "cache", "env"}) {
    const auto outcome = tool(std::string(command) + " --help");
    EXPECT_EQ(outcome.status, 0) << command;
    EXPECT_TRUE(has(outcome.out, "--help")) << command;
    EXPECT_EQ(outcome.err, "") << command;
    EXPECT_TRUE(has(tool("--help").out, command));
  }
  for (auto* command : {"run", "check", "bench", "show", "build", "analyze", "list"})
    EXPECT_TRUE(has(tool(std::string(command) + " --help").out, "Example")) << command;
  EXPECT_TRUE(has(tool("--version").out, "tegula "));
}

TEST_F(Tool, ListsOperators) {
  const auto all = tool("list");
  EXPECT_EQ(all.status, 0);
  for (auto& op : ops::operators()) {
    EXPECT_TRUE(has(all.out, op.name));
    const auto one = tool("list " + op.name);
    EXPECT_EQ(one.status, 0);
    for (auto* wanted : {"--input", "--output", "--case"})
      EXPECT_TRUE(has(one.out, wanted)) << op.name << wanted;
    EXPECT_EQ(has(one.out, "--option"), !op.options.empty()) << op.name;
  }
}

class CheckedOperator : public Tool,
                        public testing::WithParamInterface<std::tuple<std::string, const char*>> {};

TEST_P(CheckedOperator, IsRight) {
  const auto& [op, target] = GetParam();
  const auto outcome = tool("check " + op + " --target " + target);
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  for (auto& words : {std::string("error"), std::string("bound"), std::string("ok"), op})
    EXPECT_TRUE(has(outcome.out, words)) << outcome.out;
  const auto cases = std::to_string(ops::find_operator(op).check_cases.size());
  EXPECT_TRUE(has(outcome.out, cases + " of " + cases + " cases right")) << outcome.out;
}

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (auto& op : ops::operators()) names.push_back(op.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Tool, CheckedOperator,
                         testing::Combine(testing::ValuesIn(operator_names()), testing::Values("cpu")),
                         [](auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });
INSTANTIATE_TEST_SUITE_P(ToolToo, CheckedOperator,
                         testing::Combine(testing::Values("gemm", "attention", "topk_blocks"),
                                          testing::Values("interpreter")),
                         [](auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

TEST_F(Tool, ChecksOneOperatorWithAnotherSeed) {
  const auto outcome = tool("check topk_blocks --seed 7");
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_FALSE(has(outcome.out, "gemm"));
}

TEST_F(Tool, ChecksOneCase) {
  const auto outcome = tool("check gemm --case square");
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(has(outcome.out, "square")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "1 of 1 cases right")) << outcome.out;
}

// Grids of as many blocks as processors, or half as many, have one at least.
TEST_F(Tool, ChecksClustersOfOneProcessor) {
  for (const char* op : {"rms_norm_backward", "layer_norm_backward"}) {
    const auto outcome =
        tool(std::string("check ") + op + " --case long_bf16 --target emulated_sm90", "TEGULA_NUM_THREADS=1");
    EXPECT_TRUE(has(outcome.out, "1 of 1 cases right")) << outcome.out << outcome.err;
  }
}

// Of the cases of gemm that need no compiler there is one, where it is built for the set.
std::string built_in_cases(Isa isa) { return TEGULA_BUILTIN_OF_ONE_SET && isa != best_isa() ? "0" : "1"; }

std::string cases_of_gemm() { return std::to_string(ops::find_operator("gemm").check_cases.size()); }

// One case is built in, the others fail, and every case is reported.
TEST_F(Tool, ChecksOnWhenCasesFail) {
  const auto outcome =
      tool("check gemm --target cpu", "TEGULA_CXX=/nowhere/c++ TEGULA_CACHE_DIR='" + file("cache") + "'");
  EXPECT_EQ(outcome.status, 1) << outcome.out << outcome.err;
  const std::string count = "1 of " + cases_of_gemm() + " cases right";
  for (const std::string& words : {std::string("square"), std::string("batched_bf16"), std::string("FAILED"),
                                   std::string("TEGULA_CXX"), count})
    EXPECT_TRUE(has(outcome.out, words)) << words << outcome.out;
}

// The cases that are not built in: what a compiler has left in the cache serves where there is none, if it is
// intact and of the machine's instruction set.
TEST_F(Tool, UsesWhatIsCachedWithoutCompiler) {
  const std::string all = cases_of_gemm();
  const std::string cache = "TEGULA_CACHE_DIR='" + file("cache") + "' ", none = "TEGULA_CXX=none " + cache;
  const auto right = [&](const std::string& variables) {
    const auto outcome = tool("check gemm --target cpu", variables);
    const auto end = outcome.out.find(" of " + all + " cases right");
    if (end == std::string::npos) return outcome.out + outcome.err;
    const auto line = outcome.out.rfind('\n', end) + 1;
    return outcome.out.substr(line, end - line);
  };
  EXPECT_EQ(right(none + "TEGULA_ISA=portable"), built_in_cases(Isa::portable));
  EXPECT_EQ(right(cache + "TEGULA_ISA=portable TEGULA_CXX='" TEGULA_QUICK_CXX "'"), all);
  EXPECT_EQ(right(none + "TEGULA_ISA=portable"), all);
  EXPECT_EQ(right(none + "TEGULA_ISA=avx2"), built_in_cases(Isa::avx2)) << "code of another instruction set";
  for (auto& entry : std::filesystem::directory_iterator(file("cache")))
    std::fstream(entry.path(), std::ios::in | std::ios::out).seekp(5000) << "?";
  EXPECT_EQ(right(none + "TEGULA_ISA=portable"), built_in_cases(Isa::portable)) << "damaged code";
  const auto slow = tool("check gemm", none + "TEGULA_ISA=portable");
  EXPECT_EQ(slow.status, 0) << slow.out;
  EXPECT_TRUE(has(slow.err, "neither built in nor cached")) << slow.err;
}

TEST_F(Tool, ShowsPrograms) {
  struct {
    const char *arguments, *words;
  } table[] = {
      {"show attention", "kernel attention"},
      {"show attention --ir", "gemm("},
      {"show gemm --case ragged_bias_gelu --ir", "input bias"},
      {"show gemm --passes", ". lower_tile_ops: "},
      {"show gemm --passes --target cuda", ". lower_for_cuda: "},
      {"show gemm --target cuda", "kernel gemm"},
      {"show gemm --cpp", "extern \"C\""},
      {"show gemm --random a=512x512:bf16 --random b=512x512:bf16", "input a: bf16"},
      {"show gemm --random a=1000000x1000000:bf16 --random b=1000000x1000000:bf16", "input a: bf16"},
      {"show gemm --option transpose_b=true --random a=8x8 --random b=8x8", ".T()"},
      {"show gemm --cuda", "__global__"},
      {"show gemm --layout", "gemm(a_tile, b_tile, sum): fma"},
      {"show attention --random q=1x256x2x128:bf16 --random k=1x256x2x128:bf16 --random v=1x256x2x128:bf16 "
       "--schedule",
       "gemm commit"},
      {"show block_scores --schedule", "do the same"},
      {"show attention --resources", "bytes of shared memory"},
      {"show gemm --arch 100 --cuda", "the code for 8.0; never run"},
      {"show gemm --resources", "multiply-add: tensor cores do not multiply f32"},
      {"run gemm --random a=64x64 --random b=64x64 --target cuda --explain", "multiply-add: tensor cores"},
      {"run gemm --random a=512x512:bf16 --random b=512x512:bf16 --target cuda --explain", "roles: "},
      {"run gemm --random a=512x512:bf16 --random b=512x512:bf16 --explain", "compiled C++"},
      {"show block_sparse_attention --ir --target interpreter", "kernel block_sparse"},
  };
  for (auto& row : table) {
    const auto outcome = tool(row.arguments);
    EXPECT_EQ(outcome.status, 0) << row.arguments << outcome.err;
    EXPECT_TRUE(has(outcome.out, row.words)) << row.arguments << "\n" << outcome.out;
  }
}

// Operations without a name get the words of the statements they come from.
TEST_F(Tool, EveryLineOfAScheduleSaysSomething) {
  const std::string tensor = "=1x256x2x128:bf16";
  const auto outcome = tool("show attention --random q" + tensor + " --random k" + tensor + " --random v" +
                            tensor + " --schedule");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (auto* words : {"declare sum f32[128, 128]", "fill: writes sum", "reduce max: ", "elementwise exp2"})
    EXPECT_TRUE(has(outcome.out, words)) << words << "\n" << outcome.out;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    EXPECT_NE(line[first], ':') << line;
    EXPECT_NE(line.substr(first, 2), "//") << line;
  }
}

TEST_F(Tool, MeasuresBesideARival) {
  const auto product = tool("bench gemm --case square --rounds 3");
  EXPECT_EQ(product.status, 0) << product.err;
  for (auto* words : {"GFLOP/s", "model, ms", "ratio", "square"})
    EXPECT_TRUE(has(product.out, words)) << product.out;
  const auto sparse = tool("bench block_sparse_attention --case lists --rounds 3");
  EXPECT_EQ(sparse.status, 0) << sparse.err;
  EXPECT_TRUE(has(sparse.out, " attention")) << sparse.out;
  EXPECT_EQ(tool("bench topk_blocks --case ties --rounds 3").status, 0);
  const auto refused = tool("bench topk_blocks --case tie");
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_TRUE(has(refused.err, "there is no example of topk_blocks 'tie'")) << refused.err;
}

// Each candidate is a process of its own; the second search finds the best in the cache.
TEST_F(Tool, TunesTiles) {
  const std::string call =
      "tune gemm --case square --target cpu --most 2 --jobs 2 --svg '" + file("tuned.svg") + "'";
  const auto first = tool(call + " --anew");
  EXPECT_EQ(first.status, 0) << first.err;
  for (auto* words : {"candidate", "planned", "tile_m="}) EXPECT_TRUE(has(first.out, words)) << first.out;
  EXPECT_TRUE(has(contents(file("tuned.svg")), "<rect"));
  const auto second = tool(call);
  EXPECT_TRUE(has(second.out, "(from the cache)")) << second.out;
  EXPECT_TRUE(has(tool("tune --export '" + file("tuned.tsv") + "'").out, "entries exported"));
  EXPECT_TRUE(has(tool("tune --import '" + file("tuned.tsv") + "'").out, "entries imported"));
  const auto refused = tool("tune cumsum --case ragged");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(has(refused.err, "the plan of cumsum has no choice for this call")) << refused.err;
}

// Before tensors are made, which here no memory holds, and before a table begins.
TEST_F(Tool, NamesAMissingGpuFirst) {
  const std::string call = " gemm --random a=4000000x4000000:bf16 --random b=4000000x4000000:bf16";
  for (const std::string& command :
       {"tune" + call, "bench" + call, "run" + call, std::string("check gemm")}) {
    const auto refused = tool(command + " --target cuda", "TEGULA_CUDA=none");
    EXPECT_EQ(refused.status, 1) << command;
    EXPECT_EQ(refused.out, "") << command;
    EXPECT_TRUE(has(refused.err, "the CUDA driver was not found (TEGULA_CUDA is 'none')")) << refused.err;
  }
}

// Operators without options for tiles: what their plan chooses among, which TEGULA_PLAN chooses in any
// program.
TEST_F(Tool, TunesPlans) {
  const std::string op = "attention_with_kv_cache", quick = "TEGULA_CXX='" TEGULA_QUICK_CXX "' ";
  const auto tuned = tool("tune " + op + " --case small --target cpu --most 1 --anew", quick);
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  for (auto& words : {std::string("planned"), op + ".0="}) EXPECT_TRUE(has(tuned.out, words)) << tuned.out;
  const std::string run = "run " + op + " --case small --target cpu --explain";
  EXPECT_NE(tool(run, quick + "TEGULA_PLAN=" + op + ".0=3").out, tool(run, quick).out);
  const auto refused = tool(run, "TEGULA_PLAN=" + op);
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(has(refused.err, "expected OPERATOR.DECISION=CANDIDATE")) << refused.err;
}

// Operators over rows: more or fewer rows in a tile than planned.
TEST_F(Tool, TunesRowsOfTiles) {
  const auto tuned =
      tool("tune rms_norm --case ragged --target cpu --most 2 --anew", "TEGULA_CXX='" TEGULA_QUICK_CXX "' ");
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  for (auto* words : {"planned", "rms_norm.0=1", "rms_norm.0=2"})
    EXPECT_TRUE(has(tuned.out, words)) << tuned.out;
  for (auto* wrong : {"wrong", "crashes"}) EXPECT_FALSE(has(tuned.out, wrong)) << tuned.out;
}

// Nothing runs: a GPU's plan is analysed on any machine.
TEST_F(Tool, AnalysesCallsOfOperators) {
  struct {
    const char *call, *words;
  } table[] = {
      {"gemm --random a=4096x4096:bf16 --random b=4096x4096:bf16", "operations, bf16       1.374e+11"},
      {"gemm --case square --machine cpu", "bound by"},
      {"moe_sort --machine a100", "all kernels: at least"},
      {"softmax --case ragged --machine h200", "softmax_f32_"},
  };
  for (auto& row : table) {
    const auto outcome = tool(std::string("analyze ") + row.call);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(has(outcome.out, row.words)) << row.call << outcome.out;
  }
  EXPECT_TRUE(has(tool("analyze gemm --extent M=4").err, "--extent and --flag are for source files"));
}

// A candidate that does not end within its time is a row of the table, and the search goes on.
TEST_F(Tool, TunesOnAfterACandidateThatDoesNotEnd) {
  const auto tuned = tool(
      "tune gemm --random a=2048x2048 --random b=2048x2048 --target interpreter --most 1 "
      "--seconds 0.2 --anew");
  EXPECT_EQ(tuned.status, 1);
  EXPECT_EQ(count_of(tuned.out, "does not end within 0.2 s"), 2) << tuned.err << tuned.out;
}

TEST_F(Tool, MeasuresOnAGpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "this machine has no CUDA device";
  for (auto* call : {"gemm --case square", "block_sparse_attention --case lists"}) {
    const auto outcome = tool("bench " + std::string(call) + " --rounds 3 --target cuda");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(has(outcome.out, std::string(call).substr(std::string(call).rfind(' ') + 1))) << outcome.out;
  }
}

TEST_F(Tool, ListsAndClearsTheCache) {
  const std::string place = "TEGULA_CACHE_DIR='" + file("cache") + "'";
  ASSERT_EQ(tool("run gemm --case ragged_bias_gelu --target cpu", place).status, 0);
  const auto full = tool("cache", place), cleared = tool("cache --clear", place);
  EXPECT_TRUE(has(full.out, file("cache"))) << full.out;
  EXPECT_FALSE(has(full.out, ": 0 bytes")) << full.out;
  EXPECT_TRUE(has(cleared.out, ": 0 bytes")) << cleared.out;
}

TEST_F(Tool, NamesTheVariables) {
  const auto outcome = tool("env");
  EXPECT_EQ(outcome.status, 0);
  for (auto* name : {"TEGULA_CACHE_DIR", "TEGULA_NUM_THREADS", "TEGULA_DUMP"})
    EXPECT_TRUE(has(outcome.out, name)) << name;
}

// A result that cannot be printed is not a success.
TEST_F(Tool, NoticesAFullDevice) { EXPECT_EQ(tool("list >/dev/full 2>/dev/null; exit $?; :").status, 1); }

}  // namespace
}  // namespace tegula
