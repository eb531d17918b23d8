#include "tegula/files.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/files/file_io.hpp"
#include "runtime/testing/expect_error.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

class Files : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return directory_.file(name); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  TemporaryDirectory directory_;
};

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i & 0xff);
  return text;
}

std::string npy(const std::string& header, const std::string& data, int major = 1) {
  return "\x93NUMPY" + little_endian(major, 1) + little_endian(0, 1) +
         little_endian(header.size(), major == 1 ? 2 : 4) + header + data;
}

std::string npy_of(const std::string& descr, const std::string& shape, const std::string& data,
                   bool fortran = false) {
  return npy("{'descr': " + descr + ", 'fortran_order': " + (fortran ? "True" : "False") +
                 ", 'shape': " + shape + ", }\n",
             data);
}

std::string safetensors(const std::string& header, const std::string& data) {
  return little_endian(header.size(), 8) + header + data;
}

const Shape shapes[] = {{}, {0}, {7}, {3, 0, 2}, {2, 3, 4}, {1, 1, 5}};

TEST_F(Files, NpyRoundTrip) {
  for (const DType type : all_dtypes) {
    for (const Shape& shape : shapes) {
      const Tensor tensor = Tensor::random_integers(shape, type, 3, 0, 100);
      write_npy(path("t.npy"), tensor);
      const Tensor back = read_npy(path("t.npy"));
      EXPECT_EQ(back.dtype(), type);
      EXPECT_EQ(first_difference(back, tensor), std::nullopt) << describe(tensor);
    }
  }
  const Tensor tensor = Tensor::random_normal({4, 5, 6}, f32, 1).permute({2, 0, 1}).flip(1);
  write_npy(path("t.npy"), tensor);
  EXPECT_TRUE(equal(read_npy(path("t.npy")), tensor));
}

TEST_F(Files, NpyIsWhatNumpyWrites) {
  write_npy(path("t.npy"), Tensor::from<float>({1, 2}));
  const std::string text = read("t.npy");
  EXPECT_EQ(text.substr(0, 8), std::string("\x93NUMPY\1\0", 8));
  EXPECT_EQ(text.size(), 128u + 8);
  EXPECT_EQ(text.substr(10, 60), "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }   ");
  EXPECT_EQ(text[127], '\n');
  write_npy(path("t.npy"), Tensor::zeros({2, 2}, e4m3));
  EXPECT_NE(read("t.npy").find("'descr': [('float8_e4m3fn', '|u1')]"), std::string::npos);
}

TEST_F(Files, NpyReadsOtherWriters) {
  const std::string six = little_endian(0x060504030201, 6);
  const auto values = [&](const std::string& bytes) { return read_npy(write("t.npy", bytes)).values<int>(); };
  EXPECT_EQ(values(npy_of("'<u1'", "(2, 3)", six)), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values(npy_of("'|u1'", "(2, 3)", six, true)), (std::vector<int>{1, 3, 5, 2, 4, 6}));
  EXPECT_EQ(values(npy_of("'>i1'", "(6)", six)), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  for (const int major : {1, 2, 3}) {
    const std::string header = "{\"shape\": (6,), \"fortran_order\":False,\"descr\":'|i1'}";
    EXPECT_EQ(values(npy(header, six, major)), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  }
  write("t.npy", npy_of("'<V2'", "(1,)", "\x80\x3f"));
  EXPECT_EQ(read_npy(path("t.npy")).dtype(), bf16);
  EXPECT_EQ(read_npy(path("t.npy")).get({0}), 1);
  EXPECT_EQ(read_npy(path("t.npy"), f16).dtype(), f16);
  write("t.npy", npy_of("'|V1'", "(1,)", "\x38"));
  EXPECT_EQ(read_npy(path("t.npy"), e4m3).get({0}), 1);
}

TEST_F(Files, NpyRefusesWhatItCannotRead) {
  struct Case {
    std::string bytes, message;
  };
  const std::string four(4, '\0'), good = npy_of("'<f4'", "(1,)", four);
  const Case cases[] = {
      {"", "magic: the file is too short"},
      {"PK\3\4 not an array", "magic: this is not an .npy file"},
      {npy("{}", "", 4), "version: 4.0 is unknown"},
      {good.substr(0, 20), "header length: "},
      {good.substr(0, good.size() - 1), "shape: f32 [1] does not match the 3 bytes"},
      {good + "x", "shape: f32 [1] does not match the 5 bytes"},
      {npy_of("'>f4'", "(1,)", four), "descr: '>f4' is big-endian"},
      {npy_of("'<c8'", "(1,)", four), "descr: no dtype corresponds to '<c8'"},
      {npy_of("'<u2'", "(2,)", four), "descr: no dtype corresponds to '<u2'"},
      {npy_of("'|O'", "(1,)", four), "descr: '|O' is not a type"},
      {npy_of("'|V1'", "(4,)", four), "descr: '|V1' is raw; specify the dtype"},
      {npy_of("[('x', '<f4')]", "(1,)", four), "descr: no dtype corresponds to '<f4 of field x'"},
      {npy_of("[('x', '<f4'), ('y', '<f4')]", "(1,)", four), "header: records of several fields"},
      {npy_of("'<f4'", "(-1,)", four), "header: an extent is not a nonnegative 64-bit integer"},
      {npy_of("'<f4'", "(99999999999999999999,)", four), "header: an extent is not a nonnegative"},
      {npy_of("'<f4'", "(4294967296, 4294967296)", four),
       "shape: shape [4294967296, 4294967296] has more elements"},
      {npy_of("'<f4'", "(9223372036854775807,)", four), "shape: f32 [9223372036854775807] does not match"},
      {npy_of("'<f4'", "(1", four), "header: "},
      {npy("{'descr': '<f4', 'shape': (1,)}", four),
       "header: one of the keys descr, fortran_order, shape is missing"},
      {npy("{'descr': '<f4', 'descr': '<f4'}", four), "header: key 'descr' appears twice"},
      {npy("{'color': 'red'}", four), "header: unknown key 'color'"},
      {npy("{'descr': '<f4', 'fortran_order': 0}", four), "header: True or False is missing"},
      {npy("{'descr': '<f4", four), "header: a string does not end"},
      {npy("{'descr': '<f4'} x", four), "header: text after the closing"},
      {"\x93NUMPY\2" + std::string(1, '\0') + "\xff\xff\xff\xff{}", "header length: 4294967295 bytes"},
  };
  for (const Case& c : cases) {
    write("t.npy", c.bytes);
    EXPECT_ERROR(ArgumentError, path("t.npy") + ": " + c.message, read_npy(path("t.npy")));
  }
}

TEST_F(Files, NamesOfFilesAreChecked) {
  EXPECT_ERROR(ArgumentError, "cannot be opened: No such file", read_npy(path("missing.npy")));
  EXPECT_ERROR(ArgumentError, "is not a regular file", read_npy(directory_.path()));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_ERROR(ArgumentError, "is not a regular file", read_npy(path("pipe")));
  EXPECT_ERROR(ArgumentError, "is not a regular file", write_npy(path("pipe"), Tensor()));
  EXPECT_ERROR(ArgumentError, "cannot be written", write_npy(path("no/such/folder.npy"), Tensor()));
  const TensorRef far(nullptr, f32, {2}, Device{DeviceKind::cuda, 0});
  EXPECT_ERROR(ArgumentError, "copy it to the cpu first", write_npy(path("far.npy"), far));
  EXPECT_FALSE(std::filesystem::exists(path("far.npy")));
}

TEST_F(Files, WritingReplacesWholeFiles) {
  write("target.npy", "before");
  std::filesystem::create_symlink("target.npy", path("link.npy"));
  {
    OutputFile file(path("target.npy"));
    file.write("half");
  }
  EXPECT_EQ(read("target.npy"), "before") << "without commit nothing changes";
  write_npy(path("link.npy"), Tensor::from<float>({5}));
  EXPECT_EQ(read_npy(path("target.npy")).get({0}), 5);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.npy")));
  int files = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(directory_.path())) ++files;
  EXPECT_EQ(files, 2) << "no temporary file is left";
}

TEST_F(Files, SafetensorsRoundTrip) {
  std::vector<NamedRef> refs;
  std::vector<Tensor> tensors;
  for (const DType type : all_dtypes) {
    for (const Shape& shape : shapes) {
      tensors.push_back(Tensor::random_integers(shape, type, 3, 0, 100));
      refs.push_back({std::string(type.name()) + describe(shape), tensors.back()});
    }
  }
  tensors.push_back(Tensor::random_normal({4, 6}, f32, 2).transpose(0, 1));
  refs.push_back({"a \"quoted\" näme", tensors.back()});
  write_safetensors(path("t.safetensors"), refs, {{"format", "pt"}});
  const SafetensorsFile file(path("t.safetensors"));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(file.entries().size(), refs.size());
  EXPECT_EQ(file.read_all().size(), refs.size());
  for (std::size_t i = 0; i < refs.size(); ++i) {
    EXPECT_TRUE(file.contains(refs[i].name));
    const Tensor back = file.read(refs[i].name);
    EXPECT_EQ(back.dtype(), tensors[i].dtype());
    EXPECT_TRUE(equal(back, tensors[i])) << refs[i].name;
  }
  EXPECT_FALSE(file.contains("b"));
  EXPECT_ERROR(ArgumentError, "tensor 'b': is not in the file, which has: bool[]", file.read("b"));
  EXPECT_EQ((file.entries().front().begin) % 8, 0u);
}

TEST_F(Files, SafetensorsRefusesWhatItCannotWrite) {
  const Tensor t = Tensor::zeros({1}, f32);
  const std::string target = path("t.safetensors");
  EXPECT_ERROR(ArgumentError, "tensor 'a': the name is taken",
               (write_safetensors(target, {{"a", t}, {"a", t}}), 0));
  EXPECT_ERROR(ArgumentError, "the name is taken", (write_safetensors(target, {{"__metadata__", t}}), 0));
  EXPECT_ERROR(ArgumentError, "not UTF-8", (write_safetensors(target, {{"\xff", t}}), 0));
  EXPECT_FALSE(std::filesystem::exists(target));
}

TEST_F(Files, SafetensorsRefusesWhatItCannotRead) {
  struct Case {
    std::string bytes, message;
  };
  const std::string four(4, '\0');
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const auto one = [&](const std::string& entry) { return safetensors("{\"a\":" + entry + "}", four); };
  const std::string good = tensor("F32", "[1]", "[0,4]");
  const Case cases[] = {
      {"abc", "header length: the file is too short"},
      {little_endian(~0ull, 8) + "{}", "header length: 18446744073709551615 bytes, but 2 remain"},
      {safetensors("", ""), "header: does not begin with '{'"},
      {safetensors("[]", ""), "header: does not begin with '{'"},
      {safetensors("{\"a\"", ""), "header: is not JSON at character"},
      {safetensors("{} x", ""), "header: is not JSON at character"},
      {safetensors("{\"a\xff\":1}", ""), "header: is not JSON at character"},
      {safetensors("{\"a\":1}", ""), "tensor 'a': a number instead of an object"},
      {safetensors("{\"a\":null}", ""), "tensor 'a': null instead of an object"},
      {safetensors("{\"a\":[1]}", ""), "tensor 'a': an array instead of an object"},
      {safetensors("{\"a\":" + good + ",\"a\":" + good + "}", four), "tensor 'a': the name appears twice"},
      {one(tensor("F32", "[1]", "[0,3]")),
       "tensor 'a': f32 [1] does not match the 3 bytes of its data_offsets"},
      {one(tensor("F32", "[2]", "[0,8]")), "tensor 'a': data_offsets [0, 8] are not within the 4 bytes"},
      {one(tensor("F32", "[1]", "[4,0]")), "tensor 'a': data_offsets [4, 0] are not within"},
      {one(tensor("U8", "[3]", "[1,4]")), "tensor 'a': begins at 1 while the tensor before it ends at 0"},
      {one(tensor("U8", "[3]", "[0,3]")), "elements: the tensors take 3 bytes, but 4 follow"},
      {one(tensor("U64", "[1]", "[0,4]")), "tensor 'a': no dtype corresponds to U64"},
      {one(tensor("F32", "[-1]", "[0,4]")), "tensor 'a': a negative number as shape"},
      {one(tensor("F32", "[1.0]", "[0,4]")), "tensor 'a': a fraction as shape"},
      {one(tensor("F32", "1", "[0,4]")), "tensor 'a': a number as shape"},
      {one(tensor("F32", "[[1]]", "[0,4]")), "tensor 'a': an array as shape"},
      {one(tensor("F32", "[18446744073709551615]", "[0,4]")), "tensor 'a': an extent is beyond 64 bits"},
      {one(tensor("F32", "[4294967296,4294967296]", "[0,4]")),
       "tensor 'a': shape [4294967296, 4294967296] has more"},
      {one(tensor("F32", "[4611686018427387905]", "[0,4]")),
       "tensor 'a': f32 [4611686018427387905] does not match"},
      {one(tensor("F32", "[1]", "[0,4,8]")), "tensor 'a': data_offsets has more than 2 numbers"},
      {one(tensor("F32", "[1]", "[0]")), "tensor 'a': data_offsets are not two numbers"},
      {one("{\"dtype\":\"F32\",\"shape\":[1]}"), "tensor 'a': dtype, shape or data_offsets is missing"},
      {one("{\"dtype\":\"F32\",\"dtype\":\"F32\"}"), "tensor 'a': key 'dtype' appears twice"},
      {one("{\"color\":1}"), "tensor 'a': unknown key 'color'"},
      {one("{\"dtype\":{}}"), "tensor 'a': an object as dtype"},
      {safetensors("{\"__metadata__\":{\"x\":1}}", ""), "tensor '__metadata__': a number as x"},
      {safetensors("{\"a\":" + std::string(100'000, '['), ""), "tensor 'a': an array instead of an object"},
  };
  for (const Case& c : cases) {
    write("t.safetensors", c.bytes);
    EXPECT_ERROR(ArgumentError, path("t.safetensors") + ": " + c.message,
                 SafetensorsFile(path("t.safetensors")));
  }
}

}  // namespace
}  // namespace tegula
