// Wrong calls and hostile files: status 2, one message that names the fault on stderr, nothing on stdout, no
// file written.
#include <sys/stat.h>

#include <cstring>

#include "runtime/testing/scoped_variable.hpp"
#include "tests/tool/tool.hpp"

namespace tegula {
namespace {

class Refused : public Tool {
 protected:
  Refused() {
    write_npy(file("a.npy"), Tensor::zeros({4, 4}, f32));
    write_npy(file("integers.npy"), Tensor::zeros({4, 4}, i32));
    write_npy(file("vector.npy"), Tensor::zeros({4}, f32));
    write_npy(file("wide.npy"), Tensor::zeros({4, 5}, f32));
    write_safetensors(file("w.safetensors"), {{"w", Tensor::zeros({4, 4}, f32)}});
    text("text.txt", "a");
  }
  void text(const std::string& name, const std::string& bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
  }
  // `@` stands for the folder.
  std::string placed(std::string arguments) const {
    for (std::size_t at; (at = arguments.find('@')) != std::string::npos;)
      arguments.replace(at, 1, folder.string() + "/");
    return arguments;
  }
  void expect_refused(const std::string& arguments, const std::string& words) const {
    const auto outcome = tool(placed(arguments));
    EXPECT_EQ(outcome.status, 2) << arguments << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_TRUE(has(outcome.err, words)) << arguments << "\n" << outcome.err;
    for (auto* name : {"c.npy", "pictures"}) EXPECT_FALSE(std::filesystem::exists(file(name))) << arguments;
  }
  struct Row {
    std::string arguments, words;
  };
  void expect_all_refused(const std::vector<Row>& table) const {
    for (const Row& row : table) expect_refused(row.arguments, row.words);
  }
};

TEST_F(Refused, NamesThatAreNotThere) {
  expect_all_refused({
      {"", "a command is needed"},
      {"colour", "there is no command 'colour'"},
      {"chekc", "did you mean check"},
      {"list gem", "did you mean gemm"},
      {"run atention", "did you mean attention"},
      {"show block_sparse", "did you mean block_sparse_attention"},
      {"check topkblocks", "did you mean topk_blocks"},
      {"bench xyz", "There are: attention"},
      {"bench nsa --target cpu", "measure nsa_combine"},
  });
}

TEST_F(Refused, WrongInputs) {
  expect_all_refused({
      {"run", "operator is required"},
      {"run gemm", "needs the input 'a'"},
      {"run gemm --input a", "name=value"},
      {"run gemm --input =x.npy", "name=value"},
      {"run gemm --input c=@a.npy", "there is no input of gemm 'c'"},
      {"run gemm --input bais=@a.npy", "did you mean bias"},
      {"run gemm --input a=@a.npy --input a=@a.npy", "twice"},
      {"run gemm --input a=@a.npy", "needs the input 'b'"},
      {"run gemm --input a=@integers.npy --input b=@a.npy", "dtype i32 is not supported"},
      {"run gemm --input a=@vector.npy --input b=@a.npy", "a"},
      {"run gemm --input a=@wide.npy --input b=@a.npy --output @c.npy", "5"},
  });
}

TEST_F(Refused, WrongOptionsAndOutputs) {
  expect_all_refused({
      {"run gemm --case squares", "did you mean square"},
      {"run gemm --case square --option colour=1", "no option 'colour'"},
      {"run gemm --case square --option activation=red", "one of none, relu"},
      {"run gemm --case square --option tile_m=ten", "integer"},
      {"run gemm --case square --option tile_m=1 --option tile_m=2", "twice"},
      {"run gemm --case square --option tile_m=4294967312", "expected extents from 1 to 4096"},
      {"run block_sparse_attention --case lists --option q_block_size=2147483648", "given '2147483648'"},
      {"run gemm --case square --output sum=@c.npy", "no such output"},
      {"run gemm --case square --output @c.txt", ".npy"},
      {"run gemm --case square --output @c.npy --output out=@c.npy", "both go to"},
      {"run gemm --case square --output @missing/c.npy", "there is no folder"},
      {"run gemm --case square --output @text.txt/c.npy", "text.txt"},
      {"run gemm --case square --target moon", "moon"},
  });
}

TEST_F(Refused, WrongRandomInputs) {
  expect_all_refused({
      {"run gemm --random a=4 --random b=4x4", "a"},
      {"run gemm --random a=4xred --random b=4x4", "'red' is not a valid extent"},
      {"run gemm --random a=4x-4 --random b=4x4", "extent"},
      {"run gemm --random a=4x4:red --random b=4x4", "'red' is not a dtype"},
      {"run gemm --random a=4x4:i32 --random b=4x4", "need a range"},
      {"run gemm --random a=4x4:i32:5..3 --random b=4x4", "range is empty"},
      {"run gemm --random a=4x4:i32:5 --random b=4x4", "'5' is not a valid range"},
      {"run gemm --random a=9000000000x9000000000 --random b=4x4", "9000000000"},
  });
}

TEST_F(Refused, WrongTextsToShow) {
  expect_all_refused({
      {"show gemm --cpp --target interpreter", "interpreter"},
      {"show gemm --cuda --target interpreter", "interpreter"},
      {"show gemm --cuda --arch 75", "--arch"},
      {"show gemm --asm", "--asm"},
      {"show gemm --svg @pictures", "ask for --layout, --schedule or both"},
      {"show gemm --cuda --svg @pictures", "ask for --layout, --schedule or both"},
      {"show gemm --layout --svg", "--svg"},
      {"show gemm --layout --svg ''", "names none"},
      {"show gemm --layout --svg @a.npy", "a.npy': is no folder"},
      {"show gemm --schedule --svg @a.npy/pictures", "Not a directory"},
      {"show gemm --schedule --svg /proc/pictures", "/proc/pictures"},
      {"show gem --layout --svg @pictures", "did you mean gemm"},
  });
}

TEST_F(Refused, WrongMeasurementsAndChecks) {
  expect_all_refused({
      {"bench gemm --rounds 0", "--rounds"},
      {"check gemm --seed red", "--seed"},
      {"check gemm --case squares", "no case of gemm 'squares'; did you mean square? There are: "},
      {"check --case square", "an operator is needed"},
  });
}

std::string npy(const std::string& dictionary, const std::string& elements) {
  std::string header = dictionary + std::string(118 - dictionary.size() % 64, ' ') + "\n";
  const auto length = static_cast<std::uint16_t>(header.size());
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes.append(reinterpret_cast<const char*>(&length), 2);
  return bytes + header + elements;
}

std::string safetensors(const std::string& header, const std::string& elements,
                        std::optional<std::uint64_t> claimed = std::nullopt) {
  const std::uint64_t length = claimed.value_or(header.size());
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + elements;
}

TEST_F(Refused, HostileFiles) {
  const std::string sixteen(64, '\0');
  struct {
    std::string name, bytes;
  } table[] = {
      {"empty.npy", ""},
      {"short.npy", "\x93NUMPY"},
      {"other.npy", "GIF89a and more of a picture"},
      {"truncated.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), }", "1234")},
      {"longer.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), }", sixteen + "1")},
      {"huge.npy",
       npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000, 4000000000), }", sixteen)},
      {"negative.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -4), }", sixteen)},
      {"object.npy", npy("{'descr': '|O', 'fortran_order': False, 'shape': (4, 4), }", sixteen)},
      {"nonsense.npy", npy("{'descr': __import__('os')}", sixteen)},
      {"empty.safetensors", ""},
      {"long_header.safetensors", safetensors("{}", "", ~std::uint64_t{0})},
      {"no_json.safetensors", safetensors("{\"a\":", "")},
      {"deep.safetensors", safetensors(std::string(100000, '['), "")},
      {"outside.safetensors",
       safetensors(R"({"a":{"dtype":"F32","shape":[4,4],"data_offsets":[0,6400]}})", sixteen)},
      {"size.safetensors",
       safetensors(R"({"a":{"dtype":"F32","shape":[4,5],"data_offsets":[0,64]}})", sixteen)},
      {"overflow.safetensors",
       safetensors(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "")},
      {"dtype.safetensors",
       safetensors(R"({"a":{"dtype":"F99","shape":[4,4],"data_offsets":[0,64]}})", sixteen)},
  };
  for (auto& row : table) {
    text(row.name, row.bytes);
    expect_refused("run gemm --input a=@" + row.name + " --input b=@a.npy --output @c.npy", row.name);
  }
}

TEST_F(Refused, WhatIsNoFile) {
  ASSERT_EQ(mkfifo(file("pipe.npy").c_str(), 0600), 0);
  std::filesystem::create_directory(file("folder.npy"));
  struct {
    std::string place, words;
  } table[] = {
      {"@missing.npy", "missing.npy"},
      {"@folder.npy", "folder.npy"},
      {"@pipe.npy", "pipe.npy"},
      {"/dev/zero", "/dev/zero"},
      {"@missing.safetensors:w", "missing.safetensors"},
      {"@w.safetensors:x", "x"},
      {"@w.safetensors", "a"},
      {"", "a"},
  };
  for (auto& row : table) expect_refused("run gemm --input a=" + row.place + " --input b=@a.npy", row.words);
}

// The variable is at fault.
TEST_F(Refused, WithoutACompiler) {
  const auto outcome = tool("run gemm --case ragged_bias_gelu --target cpu",
                            "TEGULA_CXX=/nowhere/c++ TEGULA_CACHE_DIR='" + file("cache") + "'");
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_TRUE(has(outcome.err, "TEGULA_CXX")) << outcome.err;
}

TEST_F(Refused, RemediesAreOptionsOfTheTool) {
  const ScopedVariable cuda(Variable::cuda, "none");
  const Outcome outcome = tool("run gemm --case square --target cuda");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(has(outcome.err, "--target cpu")) << outcome.err;
  EXPECT_FALSE(has(outcome.err, "Target::")) << outcome.err;
}

}  // namespace
}  // namespace tegula
