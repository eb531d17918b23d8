// Shared libraries of CUDA, found at run time: nothing of CUDA is needed to build Tegula.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tegula::cuda {

class Library {
 public:
  // The first of `paths` (or plain names, for the system's search) that can be loaded. If there is none, a
  // DeviceError: "`what` was not found …; `remedy`".
  static Library open_first(std::span<const std::string> paths, const std::string& what,
                            const std::string& remedy);

  // Address of a function; a DeviceError if there is none of that name.
  void* symbol(const char* name) const;
  // The file that was loaded.
  const std::string& path() const { return path_; }

 private:
  Library(std::shared_ptr<void> handle, std::string path)
      : handle_(std::move(handle)), path_(std::move(path)) {}
  std::shared_ptr<void> handle_;
  std::string path_;
};

// Where a library may be under one of its names, best first: the directories of TEGULA_CUDA; then, name by
// name, the system's search and the usual places of toolkits, newest first. Empty if TEGULA_CUDA is 'none'.
std::vector<std::string> library_paths(std::span<const std::string> names);

// A function of a C library that returns a code, 0 for success.
template <class... Args>
class Function {
 public:
  Function(const Library& library, const char* name)
      : name_(name), address_(reinterpret_cast<int (*)(Args...)>(library.symbol(name))) {}
  const char* name() const { return name_; }
  int operator()(Args... args) const { return address_(args...); }

 private:
  const char* name_;
  int (*address_)(Args...);
};

// A version as CUDA counts it: 12030 is 12.3.
constexpr int oldest_version = 12030;
std::string version_text(int version);

}  // namespace tegula::cuda
