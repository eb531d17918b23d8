#include "cuda/driver.hpp"

#include <fmt/format.h>

#include <atomic>
#include <optional>

#include "tegula/error.hpp"

namespace tegula::cuda {
namespace {

std::atomic<const Driver*> replaced{nullptr};

struct Started {
  Driver driver;
  Started() : driver(load_driver(driver_paths())) { driver(driver.Init, 0u); }
};

}  // namespace

Driver::Driver(Library library) : library_(std::move(library)) {
  (*this)(DriverGetVersion, &version_);
  if (version_ >= oldest_version) return;
  throw DeviceError(
      fmt::format("the CUDA driver {} serves CUDA {} at most, but {} or newer is needed; update NVIDIA's "
                  "driver to 545 or newer",
                  path(), version_text(version_), version_text(oldest_version)));
}

void Driver::fail(int code, const char* call) const {
  const char *name = nullptr, *text = nullptr;
  if (GetErrorName(code, &name) != success || name == nullptr) name = "unknown error";
  if (GetErrorString(code, &text) != success || text == nullptr) text = "the driver does not describe it";
  throw DeviceError(fmt::format("{} failed with {} ({}): {}", call, name, code, text));
}

std::vector<std::string> driver_paths() {
  const std::string names[] = {"libcuda.so.1"};
  std::vector<std::string> paths = library_paths(names);
  if (!paths.empty()) paths.emplace_back("/usr/lib/wsl/lib/libcuda.so.1");
  return paths;
}

Driver load_driver(const std::vector<std::string>& paths) {
  return Driver(Library::open_first(
      paths, "the CUDA driver",
      "install NVIDIA's driver 545 or newer, or use the CPU (Target::cpu()) or the interpreter"));
}

const Driver& driver() {
  if (const Driver* other = replaced) return *other;
  // Not destroyed: the driver's threads and the modules of kernels last as long as the process.
  static const Started& started = *new Started;
  return started.driver;
}

bool is_driver_usable() {
  try {
    int count = 0;
    return driver().DeviceGetCount(&count) == success && count > 0;
  } catch (const DeviceError&) { return false; }
}

ScopedDriver::ScopedDriver(const Driver& replacement) : before_(replaced.exchange(&replacement)) {}
ScopedDriver::~ScopedDriver() { replaced = before_; }

}  // namespace tegula::cuda
