// For tests: a driver whose devices are host memory. It copies and clears at once, runs no kernel, and writes
// down what it is asked, so that what the host does can be tested without a GPU.
#pragma once
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/testing/fake_driver_text.hpp"
#include "runtime/execution/host_compiler.hpp"
#include "runtime/files/file_io.hpp"
#include "tegula/error.hpp"

namespace tegula::cuda::testing {

// Built once for the process.
inline const std::string& fake_library_path() {
  static const TemporaryDirectory directory;
  static const std::string path = [] {
    const HostCompiler* compiler = host_compiler();
    if (!compiler) throw DeviceError("the fake driver needs a C++ compiler");
    const std::string built = directory.file("libcuda.so.1");
    compiler->compile({std::string("#include <cstdarg>\n") + fake_driver_text, {"-w"}, {}}, built);
    return built;
  }();
  return path;
}

inline Library open_fake() {
  return Library::open_first(std::vector{fake_library_path()}, "the fake driver", "");
}

template <class... Args>
void ask(const Library& library, const char* name, Args... args) {
  const int code = Function<Args...>(library, name)(args...);
  internal_assert(code == 0, "the fake driver answers");
}

class FakeDriver {
 public:
  explicit FakeDriver(int devices = 2);

  const Driver& driver() const { return driver_; }
  // What was asked since the last time, one call a line: "launch grid 6 block 128 shared 0 stream 1".
  std::vector<std::string> calls() const;
  // From now on the first words of each launch's parameter are kept. The caller says how many there are at
  // least: a driver learns a parameter's size from the code that it loads, and this one loads none.
  void keep_words(std::size_t count);
  // Those of the last launch.
  std::vector<std::uint64_t> words() const;
  // The call of that name fails once with the code.
  void fail_next(const std::string& name, int code) const;
  // What a kernel would have done with its memory.
  static void write(DeviceAddress address, std::uint64_t value) {
    *reinterpret_cast<std::uint64_t*>(address) = value;
  }

 private:
  const Driver& driver_;  // as long as the process, like the GPUs that were found through it
  std::unique_ptr<Library> library_;
  std::size_t words_ = 0;
};

inline FakeDriver::FakeDriver(int devices)
    : driver_(*new Driver(open_fake())), library_(std::make_unique<Library>(open_fake())) {
  ask(*library_, "fake_devices", devices);
  keep_words(0);
  calls();
}

inline std::vector<std::string> FakeDriver::calls() const {
  const char* text = nullptr;
  ask(*library_, "fake_calls", &text);
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline void FakeDriver::keep_words(std::size_t count) {
  ask(*library_, "fake_keep", count);
  words_ = count;
}

inline std::vector<std::uint64_t> FakeDriver::words() const {
  std::vector<std::uint64_t> result(words_);
  ask(*library_, "fake_words", result.data());
  return result;
}

inline void FakeDriver::fail_next(const std::string& name, int code) const {
  ask(*library_, "fake_fail", name.c_str(), code);
}

}  // namespace tegula::cuda::testing
