// run: files in, files out.
#include "tests/tool/tool.hpp"

namespace tegula {
namespace {

class Product : public Tool {
 protected:
  Product() {
    write_npy(file("a.npy"), a);
    write_npy(file("b.npy"), b);
    write_safetensors(file("both.safetensors"), {{"a", a}, {"weights", b}});
  }
  void expect_product(const Tensor& c) const {
    ASSERT_EQ(c.shape(), (Shape{5, 3}));
    for (int i = 0; i < 5; ++i)
      for (int j = 0; j < 3; ++j) {
        double sum = 0;
        for (int k = 0; k < 7; ++k) sum += a.get({i, k}) * b.get({k, j});
        EXPECT_EQ(c.get({i, j}), sum);
      }
  }
  Tensor a = Tensor::random_integers({5, 7}, f32, 1, -9, 9),
         b = Tensor::random_integers({7, 3}, f32, 2, -9, 9);
};

TEST_F(Product, OfEveryKindOfFile) {
  const std::string inputs[] = {
      "--input a=" + file("a.npy") + " --input b=" + file("b.npy"),
      "--input a=" + file("both.safetensors") + " b=" + file("both.safetensors") + ":weights",
      "--input a=" + file("both.safetensors") + ":a --input b=" + file("b.npy"),
  };
  const std::string outputs[] = {file("c.npy"), "out=" + file("c.npy"), file("c.safetensors"),
                                 "out=" + file("c.safetensors") + ":product"};
  for (auto& input : inputs)
    for (auto& output : outputs) {
      const auto outcome = tool("run gemm " + input + " --output " + output);
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      EXPECT_TRUE(has(outcome.out, "-> ")) << outcome.out;
      if (output.find(".npy") != std::string::npos)
        expect_product(read_npy(file("c.npy")));
      else
        expect_product(SafetensorsFile(file("c.safetensors"))
                           .read(output.find(":product") != std::string::npos ? "product" : "out"));
      std::filesystem::remove(file("c.npy"));
      std::filesystem::remove(file("c.safetensors"));
    }
}

TEST_F(Product, OnEveryTarget) {
  for (auto* target : {"auto", "interpreter", "cpu"}) {
    const auto outcome = tool("run gemm --input a=" + file("a.npy") + " --input b=" + file("b.npy") +
                              " --output " + file("c.npy") + " --target " + target);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    expect_product(read_npy(file("c.npy")));
  }
}

TEST_F(Product, RunsOnTheTargetOfTheEnvironment) {
  const std::string call = "run gemm --random a=64x64 --random b=64x64 --explain";
  EXPECT_TRUE(has(tool(call, "TEGULA_TARGET=interpreter").out, "the interpreter runs"));
  EXPECT_TRUE(has(tool(call, "TEGULA_TARGET=emulated_sm90").out, "multiply-add: "));
  EXPECT_TRUE(has(tool(call + " --target cpu", "TEGULA_TARGET=interpreter").out, "compiled C++"));
  const auto wrong = tool(call, "TEGULA_TARGET=gpu");
  EXPECT_NE(wrong.status, 0);
  EXPECT_TRUE(has(wrong.err, "TEGULA_TARGET=gpu: must be one of automatic, interpreter, cpu")) << wrong.err;
}

TEST_F(Product, MayReplaceItsInput) {
  const auto outcome = tool("run gemm --input a=" + file("a.npy") + " --input b=" + file("b.npy") +
                            " --output " + file("a.npy"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  expect_product(read_npy(file("a.npy")));
}

TEST_F(Product, WithoutAFileIsDescribed) {
  const auto outcome = tool("run gemm --input a=" + file("a.npy") + " --input b=" + file("b.npy"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(has(outcome.out, "out: ")) << outcome.out;
}

TEST_F(Tool, WritesAllOutputsIntoOneArchive) {
  const std::string call = "run attention --random q=1x20x2x16 --random k=1x30x1x16 --random v=1x30x1x8 ";
  ASSERT_EQ(tool(call + "--output " + file("all.safetensors")).status, 0);
  const SafetensorsFile all(file("all.safetensors"));
  EXPECT_EQ(all.read("out").shape(), (Shape{1, 20, 2, 8}));
  EXPECT_EQ(all.read("lse").shape(), (Shape{1, 2, 20}));

  ASSERT_EQ(tool(call + "--output lse=" + file("two.safetensors") + ":x --output " + file("out.npy")).status,
            0);
  const SafetensorsFile one(file("two.safetensors"));
  EXPECT_EQ(first_difference(one.read("x"), all.read("lse"), 0), std::nullopt);
  EXPECT_EQ(first_difference(read_npy(file("out.npy")), all.read("out"), 0), std::nullopt);
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  const SafetensorsFile archive(path);
  for (auto& entry : archive.entries()) names.push_back(entry.name);
  return names;
}

// An output under a condition that the call does not meet is left out of an archive of all.
TEST_F(Tool, WritesThoseOutputsThatTheCallHas) {
  std::string call = "run attention_backward --target interpreter";
  for (auto* tensor : {"dout=1x5x2x8", "q=1x5x2x8", "k=1x6x1x8", "v=1x6x1x8", "out=1x5x2x8", "lse=1x2x5"})
    call += std::string(" --random ") + tensor;
  const std::string to_all = " --output " + file("all.safetensors");
  const auto without = tool(call + to_all);
  ASSERT_EQ(without.status, 0) << without.err;
  EXPECT_EQ(names_in(file("all.safetensors")), (std::vector<std::string>{"dq", "dk", "dv"}));
  const auto with = tool(call + " --random sinks=2" + to_all);
  ASSERT_EQ(with.status, 0) << with.err;
  EXPECT_EQ(names_in(file("all.safetensors")), (std::vector<std::string>{"dq", "dk", "dv", "dsinks"}));
  const auto wrong = tool(call + " --output dsinks=" + file("none.npy"));
  EXPECT_NE(wrong.status, 0);
  EXPECT_TRUE(has(wrong.err, "--output dsinks: this call has no such result; it has dq, dk, dv"))
      << wrong.err;
}

TEST_F(Tool, OptionsAndInputsReplaceThoseOfACase) {
  const auto outcome =
      tool("run gemm --case square --random a=10x64 --option activation=relu --output " + file("c.npy"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Tensor c = read_npy(file("c.npy"));
  EXPECT_EQ(c.shape(), (Shape{10, 64}));
  double least = 0;
  for (double x : c.values<double>()) least = std::min(least, x);
  EXPECT_EQ(least, 0);
}

TEST_F(Tool, RunsOnEmptyTensors) {
  const auto outcome = tool("run gemm --random a=0x8 --random b=8x4 --output " + file("c.npy"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(read_npy(file("c.npy")).shape(), (Shape{0, 4}));
}

}  // namespace
}  // namespace tegula
