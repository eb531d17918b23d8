// The CUDA driver's functions, found at run time: a bundle runs on machines without them as long as nobody
// asks.
#pragma once
#include <dlfcn.h>

#include "bind.hpp"

namespace bundle {

struct LaunchAttribute {
  int id = 0, padding = 0;
  union {
    char bytes[64];
    int integer;
  } value{};
};
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, shared_bytes = 0;
  void* stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
struct alignas(64) TensorMap {
  std::uint64_t words[16];
};

template <class... Args>
class Function {
 public:
  Function(void* library, const char* name)
      : name_(name), call_(library ? reinterpret_cast<int (*)(Args...)>(dlsym(library, name)) : nullptr) {}
  void operator()(Args... args) const {
    if (!call_)
      throw Failure{tegula_no_device,
                    std::string("the CUDA driver was not found, or has no function ") + name_};
    if (const int code = call_(args...))
      throw Failure{tegula_no_device,
                    std::string(name_) + " failed with CUDA's error " + std::to_string(code)};
  }

 private:
  const char* name_;
  int (*call_)(Args...);
};

struct Driver {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  template <class... Args>
  using F = Function<Args...>;
  F<unsigned> Init{library, "cuInit"};
  F<int*, int> DeviceGet{library, "cuDeviceGet"};
  F<int*, int, int> DeviceGetAttribute{library, "cuDeviceGetAttribute"};
  F<void**, int> DevicePrimaryCtxRetain{library, "cuDevicePrimaryCtxRetain"};
  F<void*> CtxPushCurrent{library, "cuCtxPushCurrent_v2"};
  F<void**> CtxPopCurrent{library, "cuCtxPopCurrent_v2"};
  F<void**, const void*> ModuleLoadData{library, "cuModuleLoadData"};
  F<void**, void*, const char*> ModuleGetFunction{library, "cuModuleGetFunction"};
  F<void*, int, int> FuncSetAttribute{library, "cuFuncSetAttribute"};
  F<int*, void*, int, std::size_t> OccupancyMaxActiveBlocks{library,
                                                            "cuOccupancyMaxActiveBlocksPerMultiprocessor"};
  F<const LaunchConfig*, void*, void**, void**> LaunchKernelEx{library, "cuLaunchKernelEx"};
  F<TensorMap*, int, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*, const std::uint32_t*,
    const std::uint32_t*, int, int, int, int>
      TensorMapEncodeTiled{library, "cuTensorMapEncodeTiled"};
  F<std::uint64_t*, std::size_t, void*> MemAllocAsync{library, "cuMemAllocAsync"};
  F<std::uint64_t, void*> MemFreeAsync{library, "cuMemFreeAsync"};
  F<std::uint64_t, unsigned char, std::size_t, void*> MemsetD8Async{library, "cuMemsetD8Async"};
  F<void*, std::uint64_t, std::size_t, void*> MemcpyDtoHAsync{library, "cuMemcpyDtoHAsync_v2"};
  F<void*> StreamSynchronize{library, "cuStreamSynchronize"};
};

inline const Driver& driver() {
  static const Driver& one = *new Driver;
  return one;
}

}  // namespace bundle
