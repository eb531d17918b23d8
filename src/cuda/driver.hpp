// The CUDA driver: the functions that Tegula calls, declared here and found at run time.
//
// Members have the names of the driver's functions without their prefix. The declarations restate the public
// interface of CUDA 12.3, which later drivers keep.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cuda/library.hpp"

namespace tegula::cuda {

// The driver's handles and addresses.
using DeviceHandle = int;
using ContextHandle = struct ContextTag*;
using ModuleHandle = struct ModuleTag*;
using FunctionHandle = struct FunctionTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using GraphHandle = struct GraphTag*;
using GraphExecHandle = struct GraphExecTag*;
using PoolHandle = struct PoolTag*;
using UserObjectHandle = struct UserObjectTag*;
using DeviceAddress = std::uint64_t;

// What calls return; the other values are known by the driver's own names for them.
enum Result : int { success = 0, no_device = 100, not_ready = 600, capture_implicit = 906 };

enum class DeviceAttribute : int {
  clock_khz = 13,
  multiprocessors = 16,
  l2_bytes = 38,
  compute_major = 75,
  compute_minor = 76,
  shared_bytes_optin = 97,
  memory_pools = 115,
};
enum class FunctionAttribute : int {
  max_threads = 0,
  shared_bytes = 1,
  local_bytes = 3,
  registers = 4,
  max_dynamic_shared_bytes = 8,
  shared_carveout = 9,
};
enum class CaptureStatus : int { none = 0, active = 1, invalidated = 2 };
enum class CaptureMode : int { global = 0, thread_local_ = 1, relaxed = 2 };

struct LaunchAttribute {
  enum Id : int { cluster_dimension = 4, programmatic_stream_serialization = 6 };
  int id = 0;
  int padding = 0;
  union {
    char bytes[64];
    int integer;
    unsigned cluster[3];
  } value{};
};
static_assert(sizeof(LaunchAttribute) == 72);

struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  StreamHandle stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
static_assert(sizeof(LaunchConfig) == 56);

// Rows of bytes, from device memory to device memory.
struct RowsCopy {
  struct End {
    std::size_t x = 0, y = 0;
    int memory = 2;  // of a device
    const void* host = nullptr;
    DeviceAddress device = 0;
    void* array = nullptr;
    std::size_t pitch = 0;
  };
  End from, to;
  std::size_t bytes = 0, rows = 0;
};
static_assert(sizeof(RowsCopy) == 128);

// Describes a tensor to the unit that copies tiles (TMA).
struct alignas(64) TensorMap {
  std::uint64_t words[16];
};
enum class TensorMapType : int {
  u8 = 0,
  u16 = 1,
  u32 = 2,
  i32 = 3,
  u64 = 4,
  i64 = 5,
  f16 = 6,
  f32 = 7,
  f64 = 8,
  bf16 = 9,
};
enum class Swizzle : int { none = 0, bytes_32 = 1, bytes_64 = 2, bytes_128 = 3 };

class Driver {
 public:
  // Loads the functions; a DeviceError if one is missing or the driver is too old. Does not start the driver.
  explicit Driver(Library library);

  // Throws a DeviceError with the call and the driver's own words for the code.
  [[noreturn]] void fail(int code, const char* call) const;
  template <class... Args, class... Given>
  void operator()(const Function<Args...>& function, Given... given) const {
    if (const int code = function(given...)) fail(code, function.name());
  }
  int version() const { return version_; }
  const std::string& path() const { return library_.path(); }

 private:
  Library library_;
  int version_ = 0;

 public:
  template <class... Args>
  using F = Function<Args...>;
  F<unsigned> Init{library_, "cuInit"};
  F<int*> DriverGetVersion{library_, "cuDriverGetVersion"};
  F<int, const char**> GetErrorName{library_, "cuGetErrorName"};
  F<int, const char**> GetErrorString{library_, "cuGetErrorString"};
  F<int*> DeviceGetCount{library_, "cuDeviceGetCount"};
  F<DeviceHandle*, int> DeviceGet{library_, "cuDeviceGet"};
  F<char*, int, DeviceHandle> DeviceGetName{library_, "cuDeviceGetName"};
  F<int*, DeviceAttribute, DeviceHandle> DeviceGetAttribute{library_, "cuDeviceGetAttribute"};
  F<PoolHandle*, DeviceHandle> DeviceGetDefaultMemPool{library_, "cuDeviceGetDefaultMemPool"};
  F<PoolHandle, int, void*> MemPoolSetAttribute{library_, "cuMemPoolSetAttribute"};
  F<ContextHandle*, DeviceHandle> DevicePrimaryCtxRetain{library_, "cuDevicePrimaryCtxRetain"};
  F<ContextHandle*> CtxGetCurrent{library_, "cuCtxGetCurrent"};
  F<ContextHandle> CtxPushCurrent{library_, "cuCtxPushCurrent_v2"};
  F<ContextHandle*> CtxPopCurrent{library_, "cuCtxPopCurrent_v2"};
  F<> CtxSynchronize{library_, "cuCtxSynchronize"};

  F<ModuleHandle*, const void*> ModuleLoadData{library_, "cuModuleLoadData"};
  F<ModuleHandle> ModuleUnload{library_, "cuModuleUnload"};
  F<FunctionHandle*, ModuleHandle, const char*> ModuleGetFunction{library_, "cuModuleGetFunction"};
  F<FunctionHandle, FunctionAttribute, int> FuncSetAttribute{library_, "cuFuncSetAttribute"};
  F<int*, FunctionHandle, int, std::size_t> OccupancyMaxActiveBlocks{
      library_, "cuOccupancyMaxActiveBlocksPerMultiprocessor"};
  F<const LaunchConfig*, FunctionHandle, void**, void**> LaunchKernelEx{library_, "cuLaunchKernelEx"};
  F<TensorMap*, TensorMapType, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*,
    const std::uint32_t*, const std::uint32_t*, int, Swizzle, int, int>
      TensorMapEncodeTiled{library_, "cuTensorMapEncodeTiled"};

  F<DeviceAddress*, std::size_t> MemAlloc{library_, "cuMemAlloc_v2"};
  F<DeviceAddress> MemFree{library_, "cuMemFree_v2"};
  F<DeviceAddress*, std::size_t, StreamHandle> MemAllocAsync{library_, "cuMemAllocAsync"};
  F<DeviceAddress, StreamHandle> MemFreeAsync{library_, "cuMemFreeAsync"};
  F<void**, std::size_t, unsigned> MemHostAlloc{library_, "cuMemHostAlloc"};
  F<DeviceAddress*, void*, unsigned> MemHostGetDevicePointer{library_, "cuMemHostGetDevicePointer_v2"};
  F<DeviceAddress, const void*, std::size_t, StreamHandle> MemcpyHtoDAsync{library_, "cuMemcpyHtoDAsync_v2"};
  F<void*, DeviceAddress, std::size_t, StreamHandle> MemcpyDtoHAsync{library_, "cuMemcpyDtoHAsync_v2"};
  F<DeviceAddress, DeviceAddress, std::size_t, StreamHandle> MemcpyDtoDAsync{library_,
                                                                             "cuMemcpyDtoDAsync_v2"};
  F<const RowsCopy*, StreamHandle> Memcpy2DAsync{library_, "cuMemcpy2DAsync_v2"};
  F<DeviceAddress, ContextHandle, DeviceAddress, ContextHandle, std::size_t, StreamHandle> MemcpyPeerAsync{
      library_, "cuMemcpyPeerAsync"};
  F<DeviceAddress, unsigned char, std::size_t, StreamHandle> MemsetD8Async{library_, "cuMemsetD8Async"};
  F<DeviceAddress, std::size_t, unsigned char, std::size_t, std::size_t, StreamHandle> MemsetD2D8Async{
      library_, "cuMemsetD2D8Async"};

  F<StreamHandle*, unsigned> StreamCreate{library_, "cuStreamCreate"};
  F<StreamHandle*, unsigned, int> StreamCreateWithPriority{library_, "cuStreamCreateWithPriority"};
  F<StreamHandle> StreamDestroy{library_, "cuStreamDestroy_v2"};
  F<StreamHandle> StreamSynchronize{library_, "cuStreamSynchronize"};
  F<StreamHandle, EventHandle, unsigned> StreamWaitEvent{library_, "cuStreamWaitEvent"};
  F<StreamHandle, CaptureMode> StreamBeginCapture{library_, "cuStreamBeginCapture_v2"};
  F<StreamHandle, GraphHandle*> StreamEndCapture{library_, "cuStreamEndCapture"};
  F<StreamHandle, CaptureStatus*> StreamIsCapturing{library_, "cuStreamIsCapturing"};
  F<StreamHandle, CaptureStatus*, std::uint64_t*, GraphHandle*, const void**, std::size_t*>
      StreamGetCaptureInfo{library_, "cuStreamGetCaptureInfo_v2"};
  F<CaptureMode*> ThreadExchangeStreamCaptureMode{library_, "cuThreadExchangeStreamCaptureMode"};
  F<EventHandle*, unsigned> EventCreate{library_, "cuEventCreate"};
  F<EventHandle> EventDestroy{library_, "cuEventDestroy_v2"};
  F<EventHandle, StreamHandle> EventRecord{library_, "cuEventRecord"};
  F<EventHandle> EventSynchronize{library_, "cuEventSynchronize"};
  F<EventHandle> EventQuery{library_, "cuEventQuery"};
  F<float*, EventHandle, EventHandle> EventElapsedTime{library_, "cuEventElapsedTime"};

  F<GraphExecHandle*, GraphHandle, std::uint64_t> GraphInstantiate{library_, "cuGraphInstantiateWithFlags"};
  F<GraphExecHandle, StreamHandle> GraphLaunch{library_, "cuGraphLaunch"};
  F<GraphExecHandle> GraphExecDestroy{library_, "cuGraphExecDestroy"};
  F<GraphHandle> GraphDestroy{library_, "cuGraphDestroy"};
  F<GraphHandle, UserObjectHandle, unsigned, unsigned> GraphRetainUserObject{library_,
                                                                             "cuGraphRetainUserObject"};
  F<UserObjectHandle*, void*, void (*)(void*), unsigned, unsigned> UserObjectCreate{library_,
                                                                                    "cuUserObjectCreate"};
};

// Where the driver may be.
std::vector<std::string> driver_paths();
// The driver of `paths`, not started.
Driver load_driver(const std::vector<std::string>& paths);
// The driver of the process, started; a DeviceError if there is none or no device.
const Driver& driver();
// Whether there is one, with a device.
bool is_driver_usable();

// For tests: `replacement` is what `driver()` gives until the end of the scope.
class ScopedDriver {
 public:
  explicit ScopedDriver(const Driver& replacement);
  ~ScopedDriver();
  ScopedDriver(const ScopedDriver&) = delete;
  ScopedDriver& operator=(const ScopedDriver&) = delete;

 private:
  const Driver* before_;
};

}  // namespace tegula::cuda
