#include "cuda/ranges.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "tegula/error.hpp"

namespace tegula::cuda {
namespace {

// A profiler asks for the tables of all modules of NVTX and fills in the functions that it implements. The
// numbers are NVTX's: of modules, and of the functions of a module, where number 0 is no function.
using Function = void (*)();
constexpr unsigned counts[] = {0, 16, 9, 15, 7, 16, 7};
constexpr int core = 1, push_text = 9, pop = 11;
constexpr std::size_t modules = std::size(counts), most = 16;

struct Tables {
  Function functions[modules][most] = {};
  Function* addresses[modules][most + 1] = {};

  Tables() {
    for (std::size_t module = 0; module < modules; ++module)
      for (unsigned i = 1; i < counts[module]; ++i) addresses[module][i] = &functions[module][i];
  }
};

// A profiler may keep the addresses for as long as the process lives.
Tables& tables() {
  static Tables* const of_process = new Tables;
  return *of_process;
}

int table_of_module(int module, Function*** table, unsigned* count) {
  if (module < 1 || module >= static_cast<int>(modules)) return 0;
  if (table) *table = tables().addresses[module];
  if (count) *count = counts[module];
  return 1;
}

const void* exported(std::uint32_t what) {
  static const struct {
    std::size_t bytes = sizeof(*this);
    int (*table)(int, Function***, unsigned*) = table_of_module;
  } callbacks;
  static const struct {
    std::size_t bytes = sizeof(*this);
    std::uint32_t version = 3, reserved = 0;
    void (*tell_version)(std::uint32_t) = [](std::uint32_t) {};
  } versions;
  switch (what) {
    case 1:
      return &callbacks;
    case 3:
      return &versions;
    default:
      return nullptr;
  }
}

}  // namespace

RangeFunctions load_ranges(const std::string& profiler) {
  try {
    const std::array paths{profiler};
    auto library = std::make_shared<const Library>(Library::open_first(paths, "the profiler", ""));
    using Initialize = int(const void* (*)(std::uint32_t));
    auto* initialize = reinterpret_cast<Initialize*>(library->symbol("InitializeInjectionNvtx2"));
    if (!initialize(exported)) return {nullptr, nullptr, nullptr};
    const auto& functions = tables().functions[core];
    return {reinterpret_cast<int (*)(const char*)>(functions[push_text]),
            reinterpret_cast<int (*)()>(functions[pop]), std::move(library)};
  } catch (const DeviceError&) { return {nullptr, nullptr, nullptr}; }  // profiled calls go without names
}

const RangeFunctions& Range::of_process() {
  // The library stays loaded: its functions may be called while static objects are destroyed.
  static const RangeFunctions* const functions = [] {
    const char* profiler = std::getenv("NVTX_INJECTION64_PATH");
    return new RangeFunctions(profiler ? load_ranges(profiler) : RangeFunctions{});
  }();
  return *functions;
}

}  // namespace tegula::cuda
