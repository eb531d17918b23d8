#include "tegula/tune.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "runtime/files/file_io.hpp"
#include "runtime/testing/watchdog.hpp"
#include "tegula/error.hpp"
#include "tegula/lang.hpp"

namespace tegula {
namespace tune_test {

constexpr std::chrono::seconds most_time{100};

// Twice as much; kernels go wrong by number.
enum Way { right = 0, wrong = 1, refused = 2, endless = 3 };
lang::Kernel twice(int tile, Way way) {
  using namespace lang;
  return kernel("twice", [&] {
    Dim n("n");
    lang::Tensor x = input("x", {n}, f32), y = output("y", {n}, f32);
    grid(ceildiv(n, tile), [&](Index block) {
      if (way == refused) static_cast<void>(Fragment({4}, f32).slice(9));
      Fragment f = load(x.at(block * tile), {tile});
      if (way == endless) {
        Var turns = 0;
        loop_while([&] { return turns >= 0; }, [&] { turns += 2, turns -= 2; });
      }
      parallel(f, [&](Index i) { f(i) *= way == wrong ? 3 : 2; });
      copy(f, y.at(block * tile));
    });
  });
}

struct Choice {
  int tile;
  Way way;
  std::string text() const {
    return std::to_string(tile) + (way == right ? "" : " way " + std::to_string(way));
  }
};

const Tuned::Row& row_of(const Tuned& tuned, const std::string& text) {
  for (const Tuned::Row& row : tuned.rows)
    if (row.text == text) return row;
  throw Error("no row " + text);
}

TEST(Tune, FindsTheFastestOfThoseThatAreRight) {
  const Watchdog watchdog("tuning", most_time);
  const std::vector<Choice> choices{{64, right}, {256, wrong}, {256, right}, {64, refused}, {64, endless}};
  const Tensor x = Tensor::random_normal({1000}, f32, 1), y = Tensor::zeros({1000}, f32);
  const std::string name = "tune_test_" + std::to_string(getpid());  // of no earlier run
  double last = 0;
  std::set<std::string> stages;
  TuneOptions options{.name = name, .target = Target::cpu(), .seconds = 5, .jobs = 2};
  options.expected = [](std::span<const Argument> args) {
    const Tensor x = Tensor::adopt(*args[0].tensor(), nullptr);
    const auto values = x.values<float>();
    for (std::size_t i = 0; i < values.size(); ++i)
      static_cast<float*>(args[1].tensor()->data)[i] = 2 * values[i];
  };
  options.progress = [&](const std::string& stage, double share) { stages.insert(stage), last = share; };
  options.time.flush = false;
  const auto make = [](const Choice& c) { return twice(c.tile, c.way); };
  const Tuned tuned = tune(make, choices, {x, y}, options);
  ASSERT_EQ(tuned.rows.size(), choices.size());
  EXPECT_EQ(choices[tuned.best().candidate].way, right) << tuned.text();
  EXPECT_NE(row_of(tuned, "256 way 1").failure.find("wrong: output 0"), std::string::npos) << tuned.text();
  EXPECT_FALSE(row_of(tuned, "64 way 2").failure.empty());
  EXPECT_EQ(row_of(tuned, "64 way 3").failure, "does not end within 5 s");
  EXPECT_EQ(last, 1);
  EXPECT_EQ(stages, (std::set<std::string>{"compiling", "measuring"}));
  EXPECT_EQ(y.values<float>(), std::vector<float>(1000));  // the caller's outputs stay
  EXPECT_NE(tuned.svg().find("<rect"), std::string::npos);

  // From the cache; and by way of a file.
  EXPECT_TRUE(tune(make, choices, {x, y}, options).from_cache);
  const TemporaryDirectory directory;
  const std::string file = directory.file("tuned.tsv");
  const std::size_t entries = export_tuned(file);
  EXPECT_GE(entries, 1U);
  EXPECT_EQ(import_tuned(file), entries);
  options.cached = false;
  options.seconds = 1;
  EXPECT_FALSE(tune(make, std::vector<Choice>{choices[0]}, {x, y}, options).from_cache);
}

TEST(Tune, SaysWhyNothingCounts) {
  const Tensor x = Tensor::zeros({64}, f32), y = Tensor::zeros({64}, f32);
  const auto make = [](int tile) { return twice(tile, refused); };
  const Tuned tuned = tune(make, std::vector{64}, {x, y}, {.target = Target::cpu(), .cached = false});
  EXPECT_THROW(tuned.best(), Error);
  EXPECT_THROW(tune(make, std::vector<int>{}, {x, y}), ArgumentError);
}

TEST(Tiles, FitTheMachineAndComeByTheModel) {
  const std::pair<const char*, std::vector<Tiles>> all[] = {
      {"product", tiles_of_product(4096, 4096, 4096, bf16, machine("h100"))},
      {"attention", tiles_of_attention(8192, 8192, 128, bf16, machine("h100"))},
      {"reduction", tiles_of_reduction(16384, 4096, bf16, machine("h100"))},
      {"elements", tiles_of_elements(1 << 20, f32, machine("h100"))},
      {"on the host", tiles_of_product(512, 512, 512, f32, machine("cpu"))},
  };
  for (const auto& [name, tiles] : all) {
    EXPECT_GE(tiles.size(), 3U) << name;
    for (std::size_t i = 1; i < tiles.size(); ++i)
      EXPECT_LE(tiles[i - 1].predicted, tiles[i].predicted) << name;
  }
  const Tiles& best = all[0].second.front();
  EXPECT_GE(best.rows * best.columns, 128 * 256) << best.text();
  // What is the fastest on an H100 is among the first, and steps of 32, which are slow there, are not.
  std::set<std::string> first;
  for (std::size_t i = 0; i < 4; ++i) first.insert(all[0].second[i].text());
  EXPECT_TRUE(first.contains("128x256x64")) << best.text();
  for (const std::string& text : first) EXPECT_FALSE(text.ends_with("x32")) << text;
  for (const Tiles& t : all[0].second) EXPECT_LE(t.rows * t.columns, 256 * 192) << t.text();
}

}  // namespace tune_test
}  // namespace tegula
