// Thousands of damaged files: each is read or refused with an ArgumentError, never anything else. The
// sanitizers see the rest.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>

#include "runtime/files/file_io.hpp"
#include "tegula/error.hpp"
#include "tegula/files.hpp"

namespace tegula {
namespace {

constexpr std::uint32_t seed = 20'240'917;
constexpr int mutations = 3000;

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class Mutator {
 public:
  explicit Mutator(std::uint32_t start) : random_(start) {}

  // One to four small changes. Most fall into the beginning of the file, where its header is.
  std::string mutate(std::string bytes) {
    for (int changes = 1 + below(4); changes > 0; --changes) change(bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  std::size_t position(const std::string& bytes) {
    return below(below(4) == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 200));
  }

  void change(std::string& bytes) {
    static constexpr std::string_view tokens[] = {"0",
                                                  "-1",
                                                  "4294967296",
                                                  "9223372036854775807",
                                                  "18446744073709551615",
                                                  "1e9",
                                                  "null",
                                                  "true",
                                                  "{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  "(",
                                                  ")",
                                                  "\"",
                                                  "'",
                                                  ",",
                                                  ":",
                                                  "{}",
                                                  "[[[[",
                                                  "\"a\":",
                                                  "'<f8'",
                                                  "\\u0000",
                                                  "\xff"};
    if (bytes.empty()) return;
    const std::size_t at = position(bytes);
    switch (below(7)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        break;
      case 1:
        bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, 1 + below(8));
        break;
      case 4:
        bytes.insert(at, tokens[below(std::size(tokens))]);
        break;
      case 5:
        bytes.insert(at, bytes.substr(position(bytes), below(40)));
        break;
      case 6:
        replace_digits(bytes, at, tokens[below(6)]);
        break;
    }
  }

  // Puts another number in the place of the next one.
  static void replace_digits(std::string& bytes, std::size_t at, std::string_view number) {
    constexpr std::string_view digits = "0123456789";
    const std::size_t begin = bytes.find_first_of(digits, at);
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(bytes.find_first_not_of(digits, begin), bytes.size());
    bytes.replace(begin, end - begin, number);
  }

  std::mt19937 random_;
};

class FileFuzz : public testing::Test {
 protected:
  template <class Read>
  void fuzz(const std::string& valid, const Read& read) {
    std::printf("seed %u, %d mutations\n", seed, mutations);
    const std::string path = directory_.file("mutant");
    int refused = 0;
    for (int i = 0; i < mutations; ++i) {
      std::remove(path.c_str());  // truncating it would make some file systems wait for the disk
      std::ofstream(path, std::ios::binary) << Mutator(seed + i).mutate(valid);
      try {
        read(path);
      } catch (const ArgumentError& error) {
        ++refused;
        EXPECT_EQ(std::string(error.what()).rfind(path, 0), 0u) << error.what();
      } catch (const std::exception& error) { ADD_FAILURE() << "mutation " << i << ": " << error.what(); }
    }
    EXPECT_GT(refused, mutations / 2);
    EXPECT_LT(refused, mutations) << "some mutations change the elements only";
  }

  std::string npy(const Tensor& tensor) const {
    write_npy(directory_.file("valid"), tensor);
    return contents(directory_.file("valid"));
  }

  TemporaryDirectory directory_;
};

// The elements must be there, so that a sanitizer sees storage that is too small.
void touch(const Tensor& tensor) { (void)tensor.to(f64).values<double>(); }

TEST_F(FileFuzz, Npy) {
  const auto read = [](const std::string& path) { touch(read_npy(path)); };
  fuzz(npy(Tensor::random_normal({3, 5}, f32, 1)), read);
  fuzz(npy(Tensor::random_normal({2, 2, 2}, e4m3, 1)), read);
  std::string fortran = npy(Tensor::random_normal({40, 3}, bf16, 1));
  fortran.replace(fortran.find("False"), 5, "True ");
  fuzz(fortran, read);
}

TEST_F(FileFuzz, Safetensors) {
  const Tensor a = Tensor::random_normal({3, 5}, f32, 1), b = Tensor::zeros({2, 0}, i64),
               c = Tensor::zeros({}, e5m2);
  write_safetensors(directory_.file("valid"), {{"a", a}, {"weights.b", b}, {"c", c}}, {{"format", "pt"}});
  fuzz(contents(directory_.file("valid")), [](const std::string& path) {
    for (const NamedTensor& named : SafetensorsFile(path).read_all()) touch(named.tensor);
  });
}

}  // namespace
}  // namespace tegula
