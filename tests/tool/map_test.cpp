// bench --map: calls beside their neighbours, as pictures and numbers.
#include "map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <sstream>

#include "cuda/nvrtc.hpp"
#include "runtime/testing/test_environment.hpp"
#include "tests/tool/tool.hpp"
#include "tests/tool/xml.hpp"

namespace tegula::tool {
namespace {

MapPoint using_of_best(double use, const std::vector<std::string>& notes = {}) {
  MapPoint point;
  point.use = use, point.notes = notes, point.way = "of a test";
  return point;
}

class Maps : public testing::Test {
 protected:
  const ops::CallMap calls{"of <a test>", "m=4", {"n=1", "n=2", "n=3"}, {"", "k=2"}};
  Map map{"gemm", &calls, true, {}};
};

TEST_F(Maps, ACliffIsBelowHalfOfANeighbour) {
  map.points = {using_of_best(0.9), using_of_best(0.44), using_of_best(0.3),
                using_of_best(0.5), using_of_best(0.2),  using_of_best(0.45)};
  EXPECT_EQ(map.cliffs(), (std::vector<std::size_t>{1, 4}));
  EXPECT_EQ(map.low(), (std::vector<std::size_t>{1, 2, 4, 5})) << "of the best rates";
  map.measured = false;
  EXPECT_TRUE(map.low().empty()) << "a plan has none";
}

TEST_F(Maps, NotesExplainWhatIsSlowerAndRefusalsAreNoNeighbours) {
  map.points.assign(6, using_of_best(0.2));
  map.points[0] = using_of_best(1);
  map.points[1].notes = {"gemm.cpp:1: by threads: …"};
  EXPECT_EQ(map.cliffs(), (std::vector<std::size_t>{3}));
  map.points[0].refusal = "no such call";
  EXPECT_TRUE(map.cliffs().empty());
}

PointWork bytes(double count) { return {.flops = 1e-9, .bytes = count}; }

// A call of 1 µs for nothing and one of 11 µs for 100 bytes: 20 bytes take 2 µs and what nothing takes.
TEST(RatesOfMaps, BytesComeAfterTheShortestCall) {
  const Machine& machine = tegula::machine("h100");
  Rates rates;
  rates.add(bytes(0), 1e-6), rates.add(bytes(100), 11e-6), rates.add(bytes(20), 9e-6);
  EXPECT_NEAR(rates.seconds_of(bytes(0), machine), 1e-6, 1e-9);
  EXPECT_NEAR(rates.seconds_of(bytes(20), machine), 3e-6, 1e-9);
  EXPECT_NEAR(rates.seconds_of(bytes(100), machine), 11e-6, 1e-9);
  EXPECT_NEAR(rates.seconds_of(bytes(1000), machine), 110e-6, 1e-9) << "no rate above the best";
}

// Of calls with many bytes each, none is all launch, and of slow ones no more than that is.
TEST(RatesOfMaps, TheShortestOfLongCallsIsNoLaunch) {
  const Machine& machine = tegula::machine("h100");
  Rates rates, slow;
  rates.add(bytes(100), 100e-6), rates.add(bytes(200), 190e-6);
  EXPECT_NEAR(rates.seconds_of(bytes(100), machine), 100e-6, 6e-6);
  slow.add(bytes(1), 100e-6), slow.add(bytes(2000), 200e-6);
  EXPECT_NEAR(slow.seconds_of(bytes(2000), machine), 200e-6, 1e-9);
  EXPECT_LT(slow.seconds_of(bytes(1000), machine), 110e-6);
}

// A call whose bytes caches hold sets no rate for one that moves four times as many; a longer one does.
TEST(RatesOfMaps, ShortCallsOfACpuSetNoRatesOfLongOnes) {
  Rates rates;
  rates.add(bytes(1e6), 100e-6), rates.add(bytes(4e6), 1000e-6), rates.add(bytes(5e6), 1000e-6);
  EXPECT_NEAR(rates.seconds_of(bytes(4e6), tegula::machine("cpu")), 800e-6, 60e-6);
  EXPECT_NEAR(rates.seconds_of(bytes(4e6), tegula::machine("h100")), 400e-6, 10e-6);
  EXPECT_NEAR(rates.seconds_of(bytes(1e6), tegula::machine("cpu")), 100e-6, 60e-6);
}

TEST_F(Maps, AreDrawnWithAFieldForEachCall) {
  map.points.assign(6, using_of_best(0.5));
  map.points[5].refusal = "k has to be \"even\" & positive";
  const std::string picture = picture_of(map);
  EXPECT_EQ(xml_fault(picture), "");
  EXPECT_EQ(count_of(picture, ">50<"), 5);
  EXPECT_EQ(count_of(picture, "k has to be"), 1);
  const std::string numbers = json_of(map);
  EXPECT_EQ(count_of(numbers, "\"use\": 0.5"), 5) << numbers;
  EXPECT_EQ(count_of(numbers, "\"refusal\""), 1) << numbers;
}

TEST(MapsOfACpu, AreMeasuredGradientsToo) {
  const ops::CallMap products{"small", "m=64 n=64 k=64", {"", "n=96", "bf16"}, {"", "transpose_b"}};
  const ops::CallMap gradients{"gradients",
                               "batch=1 queries=20 keys=20 kv_heads=1 group=1 d=16 d_v=16",
                               {"", "causal"},
                               {"", "keys=24"}};
  for (const auto& [op, calls] : {std::pair("gemm", &products), {"attention_backward", &gradients}}) {
    const Map map = measure_map(ops::find_schema(op), *calls, Target::cpu(), {});
    EXPECT_TRUE(map.measured);
    ASSERT_EQ(map.points.size(), calls->columns.size() * calls->rows.size());
    for (const MapPoint& point : map.points) {
      EXPECT_EQ(point.refusal, "");
      EXPECT_GT(point.seconds, 0);
      EXPECT_EQ(point.way, "on a CPU");
      EXPECT_TRUE(point.use > 0 && point.use <= 1) << point.use;
    }
  }
}

// The words of all calls of its maps.
std::set<std::string> words_of_maps(const char* op) {
  std::set<std::string> words;
  for (const ops::CallMap& calls : ops::find_schema(op).maps)
    for (std::size_t row = 0; row < calls.rows.size(); ++row)
      for (std::size_t column = 0; column < calls.columns.size(); ++column) {
        std::istringstream text(calls.text(row, column));
        words.insert(std::istream_iterator<std::string>(text), {});
      }
  return words;
}

class AxesOfMaps : public testing::TestWithParam<const char*> {
 protected:
  void expect(const std::string& word) const { EXPECT_TRUE(words.contains(word)) << word; }
  const std::set<std::string> words = words_of_maps(GetParam());
};

TEST_P(AxesOfMaps, AreThoseOfUsers) {
  for (int features = 8; features <= 576; features += 8) expect(fmt::format("d={}", features));
  for (const char* word :
       {"d=1", "d=33", "d_v=7", "d_v=512", "f16", "bf16", "f32", "packing=even", "packing=empty"})
    expect(word);
  for (int group = 1; group <= 128; group *= 2) expect(fmt::format("group={}", group));
  for (const int length : {1, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 4095, 4096, 4097})
    expect(fmt::format("queries={}", length)), expect(fmt::format("keys={}", length));
  for (const char* strides : {"plain", "sliced", "padded", "odd", "swapped"})
    expect(fmt::format("strides={}", strides));
}

// Whatever changes which program runs: tiles and splits are the plan's, and bounds of lengths are those of
// packed sequences.
TEST_P(AxesOfMaps, HaveEveryOption) {
  const std::set<std::string> others{"tile_queries", "tile_keys",    "splits",
                                     "max_seqlen_q", "max_seqlen_k", "out_dtype"};
  const ops::OperatorSchema& schema = ops::find_schema(GetParam());
  const auto is_among_words = [&](const std::string& name) {
    return std::ranges::any_of(words, [&](const std::string& word) {
      return word == name || word.starts_with(name + "=") || word.starts_with(name + ":");
    });
  };
  for (const ops::OptionSpec& option : schema.options)
    EXPECT_TRUE(others.contains(option.name) || is_among_words(option.name)) << option.name;
  for (std::size_t i = 0; i < schema.inputs; ++i) {
    const ops::TensorSpec& tensor = schema.tensors[i];
    EXPECT_TRUE(!tensor.optional || is_among_words(tensor.name)) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Tool, AxesOfMaps, testing::Values("attention", "attention_backward"),
                         [](const auto& info) { return std::string(info.param); });

// A sample of the calls of every map; with TEGULA_TEST_ROWS=all a larger one. The others are for `tegula
// bench --map`.
class PlansOfMaps : public testing::TestWithParam<const ops::OperatorSchema*> {
 protected:
  static void expect_fast_or_noted(std::span<const ops::CallMap> maps, const MapSample& sample) {
    int known = 0;
    for (const ops::CallMap& calls : maps) {
      const Map map = plan_map(*GetParam(), calls, Target::cuda(), sample);
      for (std::size_t i = 0; i < map.points.size(); ++i) {
        const MapPoint& point = map.points[i];
        if (!point.refusal.empty()) continue;
        ++known;
        EXPECT_TRUE(point.use == 1 || !point.notes.empty())
            << calls.text(i / calls.columns.size(), i % calls.columns.size()) << ": " << point.way;
      }
    }
    EXPECT_GT(known, 0);
  }
};

TEST_P(PlansOfMaps, TakeTheFastestWayOrSayWhy) {
  expect_fast_or_noted(GetParam()->maps, {.every = tests_all_rows() ? 7 : 61, .makes_code = false});
}

// Compiling takes much longer: a call of the first map, or some of all.
TEST_P(PlansOfMaps, BecomeCodeThatNvrtcCompiles) {
  if (cuda::find_nvrtc() == nullptr) GTEST_SKIP() << "there is no NVRTC";
  const std::span<const ops::CallMap> all = GetParam()->maps;
  expect_fast_or_noted(tests_all_rows() ? all : all.first(1), {.every = tests_all_rows() ? 43 : 997});
}

std::vector<const ops::OperatorSchema*> with_maps() {
  std::vector<const ops::OperatorSchema*> result;
  for (const ops::OperatorSchema* schema : ops::operator_schemas())
    if (!schema->maps.empty()) result.push_back(schema);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Tool, PlansOfMaps, testing::ValuesIn(with_maps()),
                         [](const auto& info) { return info.param->name; });

// 12 bytes, of 64 rows of 576 features.
TEST(PlansOfCalls, SaySpillsOfTheirCode) {
  if (cuda::find_nvrtc() == nullptr) GTEST_SKIP() << "there is no NVRTC";
  const ops::CallMap calls{
      "one", "batch=1 queries=4096 keys=4096 kv_heads=1 group=16 d=576 d_v=512 bf16", {""}, {""}};
  const auto point_of = [&](bool makes_code) {
    return plan_map(ops::find_schema("attention"), calls, Target::cuda(), {.makes_code = makes_code})
        .points.at(0);
  };
  const MapPoint known = point_of(true), unknown = point_of(false);
  EXPECT_EQ(unknown.way, "wgmma, roles");
  EXPECT_EQ(known.way, "spills") << "if there are none, take another call";
  EXPECT_LT(known.use, unknown.use);
  EXPECT_TRUE(
      std::ranges::any_of(known.notes, [](const std::string& note) { return has(note, "spills: "); }));
}

using MapFiles = Tool;

TEST_F(MapFiles, AreWrittenForEachMapOfAnOperator) {
  const auto outcome =
      tool("bench gemm --map " + file("maps") + " --target cuda --every 50", "CUDA_VISIBLE_DEVICES=");
  EXPECT_LE(outcome.status, 1) << outcome.err;
  EXPECT_TRUE(has(outcome.out, "planned")) << outcome.out;
  EXPECT_FALSE(has(outcome.out, "best rates")) << "plans have none: " << outcome.out;
  for (const ops::CallMap& calls : ops::find_schema("gemm").maps) {
    EXPECT_EQ(xml_fault(contents(file("maps/gemm_" + calls.name + ".svg"))), "");
    EXPECT_TRUE(has(contents(file("maps/gemm_" + calls.name + ".json")), "\"operator\": \"gemm\""));
    EXPECT_TRUE(has(outcome.out, "gemm, " + calls.name + ": ")) << outcome.out;
  }
}

TEST_F(MapFiles, AreWrittenForOneMapByItsName) {
  const auto one = tool("bench gemm --map " + file("one") + " --only types --target cuda --every 50",
                        "CUDA_VISIBLE_DEVICES=");
  EXPECT_LE(one.status, 1) << one.err;
  EXPECT_TRUE(has(one.out, "gemm, types: ")) << one.out;
  EXPECT_FALSE(has(one.out, "gemm, rows: ")) << one.out;
  const auto none = tool("bench gemm --map " + file("none") + " --only row");
  EXPECT_NE(none.status, 0);
  EXPECT_TRUE(has(none.err, "gemm has no map row, but rows, ")) << none.err;
}

TEST_F(MapFiles, AreRefusedBesideCallsAndWithoutMaps) {
  const auto both = tool("bench gemm --map " + file("maps") + " --random a=4x4");
  EXPECT_NE(both.status, 0);
  EXPECT_TRUE(has(both.err, "--map takes its calls from the operator's table")) << both.err;
  const auto none = tool("bench topk_blocks --map " + file("maps"));
  EXPECT_NE(none.status, 0);
  EXPECT_TRUE(has(none.err, "has no maps")) << none.err;
}

}  // namespace
}  // namespace tegula::tool
