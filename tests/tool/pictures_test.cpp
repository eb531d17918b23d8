// Layouts and schedules as SVG.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "layout/fragments.hpp"
#include "schedule/build.hpp"
#include "tests/tool/tool.hpp"
#include "tests/tool/xml.hpp"
#include "show/layout_picture.hpp"
#include "show/schedule_picture.hpp"

namespace tegula::shown {
namespace {

using layout::Coordinates;
using layout::Layout;

std::string picture_of(const Layout& layout) {
  LayoutPage page{"grid <0> & \"more\"", {"gemm(s0, s1, f0): wgmma, 1 x 1"}, {}};
  page.add("f0", layout);
  return layout_picture(page);
}

// By the definition of a layout, one element at a time.
std::string label_of(const Layout& layout, const Coordinates& at) {
  const auto places = layout.places(at);
  const auto first =
      *std::min_element(places.begin(), places.end(), [](auto& a, auto& b) { return a.thread < b.thread; });
  return fmt::format(">t{}{} r{}</text>", first.thread, places.size() > 1 ? "…" : "", first.reg);
}

TEST(LayoutPicture, NamesEveryElementOnce) {
  struct {
    const char* what;
    Layout layout;
  } table[] = {
      {"blocked", layout::blocked(32, {4, 16}, 2)},
      {"the accumulator of wgmma", layout::wgmma_accumulator(64, 32, {1, 1})},
      {"the accumulator of mma.sync on four warps", layout::mma_accumulator(32, 32, {2, 2})},
      {"replicas", layout::blocked(64, {4, 4}, 1)},
      {"a row", layout::blocked(32, {24}, 1)},
      {"an overhanging row", layout::blocked(32, {20}, 4)},
      {"a scalar", layout::blocked(32, {}, 1)},
      {"the first of two planes", layout::blocked(32, {2, 4, 8}, 1)},
  };
  for (auto& [what, layout] : table) {
    const std::string picture = picture_of(layout);
    EXPECT_EQ(xml_fault(picture), "") << what;
    const auto& shape = layout.shape();
    const std::size_t rank = shape.size();
    const std::int64_t rows = rank > 1 ? std::min<std::int64_t>(shape[rank - 2], detail_rows) : 1;
    const std::int64_t columns = rank > 0 ? std::min<std::int64_t>(shape[rank - 1], detail_columns) : 1;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        Coordinates at(rank, 0);
        if (rank > 1) at[rank - 2] = r;
        if (rank > 0) at[rank - 1] = c;
        EXPECT_EQ(count_of(picture, label_of(layout, at)), 1) << what << " " << r << " " << c;
      }
    }
    EXPECT_EQ(count_of(picture, ">t"), rows * columns) << what;
    EXPECT_EQ(count_of(picture, "planes<"), rank > 2 ? 1 : 0) << what;
  }
}

TEST(LayoutPicture, EqualLayoutsAreDrawnOnce) {
  LayoutPage page{"of a grid", {}, {}};
  page.add("f0 f32[4, 8]", layout::blocked(32, {4, 8}, 1));
  page.add("f1 f32[8, 8]", layout::blocked(32, {8, 8}, 1));
  page.add("f2 bf16[4, 8]", layout::blocked(32, {4, 8}, 1));
  ASSERT_EQ(page.layouts.size(), 2u);
  const std::string picture = layout_picture(page);
  EXPECT_EQ(count_of(picture, ">f0 f32[4, 8], f2 bf16[4, 8]<"), 1) << picture;
  EXPECT_EQ(count_of(picture, ">t"), 4 * 8 + 8 * 8);
}

TEST(LayoutPicture, WarpsOfAGroupAreLabelled) {
  const std::string picture = picture_of(layout::wgmma_accumulator(128, 32, {2, 1}));
  for (int warp = 0; warp < 8; ++warp)  // in the legend, and in the matrix
    EXPECT_EQ(count_of(picture, fmt::format(">w{}<", warp)), 2) << warp;
  EXPECT_TRUE(has(picture, "warp group 1"));
  EXPECT_FALSE(has(picture, "warp group 2"));
}

schedule::Schedule small_schedule() {
  using namespace schedule;
  Builder b("small <&>");
  const int data = b.buffer({"tile", Space::shared, 2, 1, 128});
  const int sum = b.buffer({"sum", Space::registers});
  const int ring = b.ring({"tile", {data}, 2, 1, 1, 4});
  const Count steps = b.variable({"steps"});
  b.role({"consumer", 1, 4, 0, {}}, [&] {
    b.operation("start", {write(sum)});
    b.loop("step", steps, [&] {
      b.emit(WaitFull{{ring}});
      b.gemm("sum", {read(data, at_cursor(ring)), update(sum)});
      b.emit(GemmWait{0});
      b.emit(Arrive{Side::empty, {ring}}, Who::each_warp);
    });
  });
  b.role({"producer", 1, 1, 0, {}}, [&] {
    b.loop("step", steps, [&] {
      b.emit(Acquire{{ring}}, Who::one);
      b.emit(Expect{{ring}, 128}, Who::one);
      b.emit(Load{{ring}, write(data, at_cursor(ring)), 128}, Who::one);
    });
  });
  return b.take();
}

TEST(SchedulePicture, HasEveryEventAndTheRings) {
  const schedule::Schedule s = small_schedule();
  const std::string picture = schedule_picture(s);
  EXPECT_EQ(xml_fault(picture), "") << picture;
  EXPECT_TRUE(has(picture, "small &lt;&amp;&gt;"));
  for (auto* words : {"ring tile: depth 2", "producer: 1 warps", "consumer: 4 warps", "all warps"})
    EXPECT_EQ(count_of(picture, words), 1) << words;
  for (auto* words :
       {"start: writes sum", "wait full tile[n]", "gemm fence for sum", "gemm sum: ", "gemm commit for sum",
        "gemm wait 0", "release tile[n]", "wait empty tile[n]", "expect 128 bytes", "load tile[tile]"})
    EXPECT_EQ(count_of(picture, std::string(">") + words), 1) << words;
  EXPECT_EQ(count_of(picture, ">loop step: steps times"), 2);
  EXPECT_EQ(count_of(picture, "v6z"), 2);       // arrows: to who waits for full, and for empty slots
  EXPECT_EQ(count_of(picture, "<circle "), 4);  // and where both lines begin and end
  // Who fills stands first.
  EXPECT_LT(picture.find("producer: "), picture.find("consumer: "));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What is drawn goes to files, whose names are printed, and nothing else is left in the folder.
TEST_F(Tool, DrawsLayoutsAndSchedules) {
  const std::string tensor = "=1x256x2x128:bf16", folder = file("new/pictures");
  const auto outcome = tool("show attention --random q" + tensor + " --random k" + tensor + " --random v" +
                            tensor + " --layout --schedule --svg '" + folder + "'");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u) << outcome.out;
  EXPECT_TRUE(lines[0].ends_with("_0.layout.svg") && lines[1].ends_with("_0.schedule.svg")) << outcome.out;
  for (auto& path : lines) {
    EXPECT_EQ(path.rfind(folder + "/attention_bf16", 0), 0u) << path;
    EXPECT_EQ(xml_fault(contents(path)), "") << path;
  }
  EXPECT_TRUE(has(contents(lines[0]), "A in registers"));
  EXPECT_TRUE(has(contents(lines[1]), "softmax.cpp:"));
  std::size_t files = 0;
  for ([[maybe_unused]] auto& entry : std::filesystem::directory_iterator(folder)) ++files;
  EXPECT_EQ(files, 2u);
}

// Pictures of all operators are well formed; a grid without roles has no schedule and says so.
TEST_F(Tool, DrawsEveryOperator) {
  for (auto* op :
       {"gemm", "attention_backward", "block_sparse_attention", "nsa_selected_attention", "topk_blocks"}) {
    const auto outcome = tool(std::string("show ") + op + " --layout --schedule --svg '" + file(op) + "'");
    ASSERT_EQ(outcome.status, 0) << op << outcome.err;
    for (auto& line : lines_of(outcome.out)) {
      if (line.ends_with(" threads of a block do the same")) continue;
      EXPECT_EQ(xml_fault(contents(line)), "") << line;
    }
    EXPECT_TRUE(has(outcome.out, ".layout.svg")) << outcome.out;
  }
}

// Beside pictures, other texts are printed as ever.
TEST_F(Tool, DrawsAgainOverOldPictures) {
  const std::string call = "show gemm --layout --resources --svg '" + folder.string() + "'";
  const auto once = tool(call), again = tool(call);
  EXPECT_EQ(once.out, again.out);
  EXPECT_TRUE(has(once.out, "bytes of shared memory")) << once.out;
  EXPECT_FALSE(has(once.out, "gemm(")) << once.out;
}

}  // namespace
}  // namespace tegula::shown
