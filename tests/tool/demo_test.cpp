// `tegula demo` on small pictures.
#include "image/picture.hpp"
#include "image/png.hpp"
#include "tegula/stream.hpp"
#include "tool.hpp"

namespace tegula {
namespace {

class Demo : public Tool {
 protected:
  // A smooth picture of the user's own.
  std::string photograph(std::int64_t height, std::int64_t width, std::int64_t channels,
                         const std::string& name = "photograph.png") const {
    const Tensor picture = Tensor::empty({height, width, channels}, u8);
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x)
        for (std::int64_t c = 0; c < channels; ++c)
          picture.at<std::uint8_t>(y, x, c) =
              static_cast<std::uint8_t>((y / 13 + x / 17 + c) % 3 * 100 + (y + x) % 50);
    image::write_png(file(name), picture);
    return file(name);
  }
  Tensor written(const std::string& name) const { return image::read_png(file("pictures/" + name)); }
  std::string out() const { return " --out " + file("pictures"); }
};

TEST_F(Demo, DenoisesThePhotographOfTheLibrary) {
  const Outcome outcome = tool("demo --size 64 --topk 6" + out());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* words :
       {"4096 tokens in 64 blocks", "noisy", "dense", "sparse", "9.38 %", "density below"})
    EXPECT_TRUE(has(outcome.out, words)) << words << "\n" << outcome.out;
  for (const char* stage :
       {"selection of blocks: 100 %", "sparse attention: 100 %", "dense attention: 100 %"})
    EXPECT_TRUE(has(outcome.err, stage)) << stage << "\n" << outcome.err;
  for (const char* name : {"noisy.png", "dense.png", "sparse.png"})
    EXPECT_EQ(written(name).shape(), (Shape{64, 64, 3})) << name;
  EXPECT_EQ(written("mask.png").shape(), (Shape{64, 64, 1}));
  EXPECT_EQ(written("comparison.png").shape(), (Shape{64, 4 * 64 + 3 * 4, 3}));
}

// What is printed as decibels is of the pictures that are written, up to their rounding to bytes.
TEST_F(Demo, ThePicturesAreBetterThanTheNoise) {
  ASSERT_EQ(tool("demo --input " + photograph(61, 83, 3) + " --sigma 0.15" + out()).status, 0);
  const Tensor original = image::to_picture(image::read_png(file("photograph.png")));
  auto quality = [&](const char* name) { return image::psnr(image::to_picture(written(name)), original); };
  EXPECT_NEAR(quality("noisy.png"), 17, 1);
  EXPECT_GT(quality("dense.png"), quality("noisy.png") + 5);
  EXPECT_GT(quality("sparse.png"), quality("noisy.png") + 5);
}

TEST_F(Demo, AllBlocksAreAsDense) {
  ASSERT_EQ(tool("demo --size 40 --topk 25" + out()).status, 0);
  EXPECT_LE(max_abs_difference(written("sparse.png").to(f32), written("dense.png").to(f32)), 1);
}

TEST_F(Demo, GrayPicturesAndNoDense) {
  const Outcome outcome = tool("demo --no-dense --input " + photograph(24, 40, 1) + out());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(written("sparse.png").shape(), (Shape{24, 40, 1}));
  EXPECT_FALSE(std::filesystem::exists(file("pictures/dense.png")));
}

TEST_F(Demo, IsTheSameOnEveryTarget) {
  ASSERT_EQ(tool("demo --size 16" + out()).status, 0);
  const Tensor dense = written("dense.png"), sparse = written("sparse.png");
  for (const std::string target : {"interpreter", "emulated"}) {
    const Outcome outcome = tool("demo --size 16 --target " + target + out());
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_LE(max_abs_difference(written("dense.png").to(f32), dense.to(f32)), 1) << target;
    EXPECT_LE(max_abs_difference(written("sparse.png").to(f32), sparse.to(f32)), 1) << target;
  }
}

TEST_F(Demo, ReachesItsGoalsOnAGpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "this machine has no CUDA device";
  const Outcome outcome = tool("demo --check --target cuda" + out());
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
}

TEST_F(Demo, FailsWhereAGoalIsMissedOnRequest) {
  const std::string dense = "demo --size 16 --topk 4" + out();
  EXPECT_EQ(tool(dense).status, 0);
  const Outcome outcome = tool(dense + " --check");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.out, "NO      density below 10 %")) << outcome.out;
}

TEST_F(Demo, RefusesWrongCalls) {
  std::ofstream(file("letter.png")) << "Dear reader,";
  const std::string whole = contents(photograph(64, 64, 3));
  std::ofstream(file("half.png"), std::ios::binary) << whole.substr(0, whole.size() / 2);
  std::ofstream(file("occupied")) << "a file";
  const struct {
    std::string arguments, words;
  } table[] = {
      {"--input " + file("missing.png"), "missing.png"},
      {"--input " + file("letter.png"), "not a PNG"},
      {"--input " + file("half.png"), "truncated"},
      {"--input " + photograph(7, 64, 3, "low.png"), "both sides need 8"},
      {"--out " + file("occupied"), "occupied: cannot be made"},
      {"--sigma 0", "--sigma"},
      {"--sigma nan", "--sigma"},
      {"--topk -1", "--topk"},
      {"--size -1", "--size"},
      {"--target moon", "moon"},
  };
  for (const auto& row : table) {
    const Outcome outcome = tool("demo " + row.arguments);
    EXPECT_EQ(outcome.status, 2) << row.arguments << outcome.err;
    EXPECT_TRUE(has(outcome.err, row.words)) << row.arguments << "\n" << outcome.err;
  }
}

}  // namespace
}  // namespace tegula
