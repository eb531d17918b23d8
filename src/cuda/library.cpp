#include "cuda/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

namespace tegula::cuda {
namespace {

namespace fs = std::filesystem;

// Where the libraries are within a toolkit, or a directory that holds nothing else.
constexpr const char* folders[] = {"lib64", "lib", "targets/x86_64-linux/lib", "."};

void add_toolkit(std::vector<std::string>& paths, const fs::path& root, const std::string& name) {
  for (const char* folder : folders) {
    const fs::path path = root / folder / name;
    std::error_code error;
    if (fs::exists(path, error)) paths.push_back(path.lexically_normal().string());
  }
}

// The numbers in cuda-12.10, for an order in which it follows cuda-12.9.
std::vector<int> numbers(const std::string& name) {
  std::vector<int> result;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] < '0' || name[i] > '9') continue;
    if (i == 0 || name[i - 1] < '0' || name[i - 1] > '9') result.push_back(0);
    result.back() = result.back() * 10 + (name[i] - '0');
  }
  return result;
}

std::vector<fs::path> installed_toolkits() {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/usr/local", error)) {
    if (entry.path().filename().string().rfind("cuda-", 0) == 0) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    return numbers(a.filename().string()) > numbers(b.filename().string());
  });
  found.insert(found.begin(), "/usr/local/cuda");
  return found;
}

std::string loaded_path(void* handle, const std::string& asked) {
  char directory[4096];
  if (dlinfo(handle, RTLD_DI_ORIGIN, directory) != 0) return asked;
  return (fs::path(directory) / fs::path(asked).filename()).string();
}

}  // namespace

Library Library::open_first(std::span<const std::string> paths, const std::string& what,
                            const std::string& remedy) {
  std::vector<std::string> reasons;
  for (const std::string& path : paths) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      std::shared_ptr<void> owner(handle, [](void* open) { dlclose(open); });
      return Library(std::move(owner), loaded_path(handle, path));
    }
    const char* reason = dlerror();
    reasons.emplace_back(reason ? reason : path);
  }
  if (reasons.empty()) reasons.emplace_back("TEGULA_CUDA is 'none'");
  throw DeviceError(fmt::format("{} was not found ({}); {}", what, fmt::join(reasons, "; "), remedy));
}

void* Library::symbol(const char* name) const {
  if (void* address = dlsym(handle_.get(), name)) return address;
  throw DeviceError(fmt::format("{} has no function {}: it is older than CUDA {}; install a newer one", path_,
                                name, version_text(oldest_version)));
}

std::vector<std::string> library_paths(std::span<const std::string> names) {
  std::vector<std::string> paths;
  const std::optional<std::string> chosen = environment(Variable::cuda);
  if (chosen == "none") return paths;
  const std::vector<fs::path> toolkits = installed_toolkits();
  if (chosen) {
    for (const std::string& name : names) add_toolkit(paths, *chosen, name);
  }
  for (const std::string& name : names) {
    paths.push_back(name);
    for (const fs::path& root : toolkits) add_toolkit(paths, root, name);
  }
  return paths;
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace tegula::cuda
