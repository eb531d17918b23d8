// The system's C++ compiler: turns the text of a kernel into functions of this process.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/execution/kernel_cache.hpp"

namespace tegula {

// A shared object in this process; closed with its last owner.
class SharedObject {
 public:
  explicit SharedObject(const std::string& path);
  // Address of a function, a DeviceError if there is none of that name.
  void* symbol(const std::string& name) const;
  template <class Function>
  Function* function(const std::string& name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  std::shared_ptr<void> handle_;
};

class HostCompiler {
 public:
  // TEGULA_CXX (an ArgumentError if it does not work), else g++, c++ or clang++ on PATH, else nothing.
  static std::optional<HostCompiler> find();

  struct Source {
    std::string text;
    std::vector<std::string> flags;
    // Files that the text includes by "name".
    struct Header {
      std::string name;
      std::string text;
    };
    std::vector<Header> headers;
  };

  // Compiles, or loads from the cache. A failure is a DeviceError with the compiler's first lines.
  SharedObject load(const Source& source, const KernelCache& cache) const;
  // Compiles to a file, without a cache.
  void compile(const Source& source, const std::string& output) const;

  const std::string& path() const { return path_; }
  const std::string& version() const { return version_; }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

 private:
  HostCompiler(std::string path, std::string version)
      : path_(std::move(path)), version_(std::move(version)) {}
  std::string path_;
  std::string version_;
  std::chrono::milliseconds timeout_{120'000};
};

// The compiler of the process, looked for once; null if there is none.
const HostCompiler* host_compiler();

// What that compiler makes of the source; where there is none, what any compiler has left in the cache, if
// anything.
std::optional<SharedObject> load_compiled(const HostCompiler::Source& source, const KernelCache& cache);

}  // namespace tegula
