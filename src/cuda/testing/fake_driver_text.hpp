// The source of the fake driver, for the host's compiler. Handles are small numbers; memory is malloc's.
#pragma once

namespace tegula::cuda::testing {

inline constexpr const char* fake_driver_text = R"text(
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {
std::recursive_mutex mutex;
std::string log_text, failing;
int failing_code = 0, device_count = 2;
std::uintptr_t handles = 0;
std::vector<std::uint64_t> parameter;  // as many words as are to be kept
struct Capture { std::uint64_t id; void* graph; };
std::map<void*, Capture> captures;
struct Object { void* data; void (*destroy)(void*); };
std::map<void*, Object> objects;
std::multimap<void*, void*> held;  // by graphs
std::uint64_t capture_ids = 0;
thread_local void* context[16];
thread_local int depth = 0;

void note(const char* format, ...) __attribute__((format(printf, 1, 2)));
void note(const char* format, ...) {
  char line[256];
  va_list list;
  va_start(list, format);
  vsnprintf(line, sizeof(line), format, list);
  va_end(list);
  log_text += line;
  log_text += '\n';
}
void* fresh() { return reinterpret_cast<void*>(++handles); }
unsigned long number(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }
// 0, or the code with which this call is to fail.
int entered(const char* name) {
  if (failing != name) return 0;
  failing.clear();
  return failing_code;
}
}  // namespace

#define CU(name, parameters, ...)                        \
  extern "C" int name parameters {                       \
    const std::lock_guard<std::recursive_mutex> guard(mutex); \
    if (const int code = entered(#name)) return code;    \
    __VA_ARGS__                                          \
    return 0;                                            \
  }
using Size = std::size_t;
using Address = std::uint64_t;
static void* at(Address a) { return reinterpret_cast<void*>(a); }

CU(cuInit, (unsigned), )
CU(cuDriverGetVersion, (int* v), *v = 12040;)
CU(cuGetErrorName, (int code, const char** name), *name = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE";)
CU(cuGetErrorString, (int, const char** text), *text = "an error of the fake driver";)
CU(cuDeviceGetCount, (int* n), *n = device_count;)
CU(cuDeviceGet, (int* d, int i), *d = i;)
CU(cuDeviceGetName, (char* name, int n, int), snprintf(name, Size(n), "Fake GPU");)
CU(cuDeviceGetAttribute, (int* v, int a, int),
   *v = a == 13 ? 1980000 : a == 16 ? 132 : a == 38 ? 50 << 20 : a == 75 ? 9 : a == 76 ? 0 : a == 97 ? 232448 : 1;)
CU(cuDeviceGetDefaultMemPool, (void** p, int d), *p = at(Address(d) + 1);)
CU(cuMemPoolSetAttribute, (void*, int, void*), )
CU(cuDevicePrimaryCtxRetain, (void** c, int d), *c = at(1000 + Address(d));)
CU(cuCtxGetCurrent, (void** c), *c = depth == 0 ? nullptr : context[depth - 1];)
CU(cuCtxPushCurrent_v2, (void* c), context[depth++] = c;)
CU(cuCtxPopCurrent_v2, (void** c), *c = context[--depth];)
CU(cuCtxSynchronize, (), note("synchronize device");)
CU(cuModuleLoadData, (void** m, const void*), *m = fresh(); note("load module");)
CU(cuModuleUnload, (void*), note("unload module");)
CU(cuModuleGetFunction, (void** f, void*, const char*), *f = fresh();)
CU(cuFuncSetAttribute, (void*, int a, int v), note("attribute %d = %d", a, v);)
CU(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int* n, void*, int, Size), *n = 1;)
struct Config { unsigned grid[3], block[3], shared; void* stream; unsigned* attributes; unsigned count; };
CU(cuLaunchKernelEx, (const Config* c, void*, void** parameters, void**),
   if (depth == 0) return 201;
   unsigned cluster = 1;
   bool early = false;
   for (unsigned i = 0; i < c->count; ++i) {
     const unsigned* attribute = c->attributes + 18 * i;
     if (attribute[0] == 4) cluster = attribute[2];
     early |= attribute[0] == 6 && attribute[2] == 1;
   }
   note("launch grid %u block %u shared %u stream %lu cluster %u%s", c->grid[0], c->block[0], c->shared,
        number(c->stream), cluster, early ? " early" : "");
   if (!parameter.empty()) memcpy(parameter.data(), parameters[0], 8 * parameter.size());)
CU(cuTensorMapEncodeTiled, (std::uint64_t* map, int type, std::uint32_t rank, void* address, const std::uint64_t*,
                            const std::uint64_t*, const std::uint32_t*, const std::uint32_t*, int, int swizzle, int, int),
   note("encode rank %u type %d swizzle %d", rank, type, swizzle); map[0] = number(address);)
CU(cuMemAlloc_v2, (Address* a, Size n), *a = Address(aligned_alloc(256, (n + 255) / 256 * 256)); note("alloc %zu", n);)
CU(cuMemFree_v2, (Address a), free(at(a)); note("free");)
CU(cuMemAllocAsync, (Address* a, Size n, void* s),
   *a = Address(aligned_alloc(256, (n + 255) / 256 * 256)); note("alloc %zu stream %lu", n, number(s));)
CU(cuMemFreeAsync, (Address a, void* s), free(at(a)); note("free stream %lu", number(s));)
CU(cuMemHostAlloc, (void** p, Size n, unsigned), *p = calloc(1, n);)
CU(cuMemHostGetDevicePointer_v2, (Address* a, void* p, unsigned), *a = Address(p);)
CU(cuMemcpyHtoDAsync_v2, (Address to, const void* from, Size n, void* s), memcpy(at(to), from, n); note("copy in %zu stream %lu", n, number(s));)
CU(cuMemcpyDtoHAsync_v2, (void* to, Address from, Size n, void* s), memcpy(to, at(from), n); note("copy out %zu stream %lu", n, number(s));)
CU(cuMemcpyDtoDAsync_v2, (Address to, Address from, Size n, void* s), memmove(at(to), at(from), n); note("copy %zu stream %lu", n, number(s));)
struct Rows { struct { Size x, y; int memory; void* host; Address address; void* array; Size pitch; } from, to; Size bytes, rows; };
CU(cuMemcpy2DAsync_v2, (const Rows* r, void* s),
   for (Size i = 0; i < r->rows; ++i) memcpy(at(r->to.address + i * r->to.pitch), at(r->from.address + i * r->from.pitch), r->bytes);
   note("copy %zu x %zu stream %lu", r->rows, r->bytes, number(s));)
CU(cuMemcpyPeerAsync, (Address to, void*, Address from, void*, Size n, void* s), memcpy(at(to), at(from), n); note("copy across %zu stream %lu", n, number(s));)
CU(cuMemsetD8Async, (Address a, unsigned char v, Size n, void* s), memset(at(a), v, n); note("clear %zu stream %lu", n, number(s));)
CU(cuMemsetD2D8Async, (Address a, Size pitch, unsigned char v, Size width, Size rows, void* s),
   for (Size i = 0; i < rows; ++i) memset(at(a + i * pitch), v, width);
   note("clear %zu x %zu stream %lu", rows, width, number(s));)
CU(cuStreamCreate, (void** s, unsigned), *s = fresh();)
CU(cuStreamCreateWithPriority, (void** s, unsigned, int), *s = fresh();)
CU(cuStreamDestroy_v2, (void* s), note("destroy stream %lu", number(s));)
CU(cuStreamSynchronize, (void* s), if (captures.count(s)) return 900; note("synchronize stream %lu", number(s));)
CU(cuStreamWaitEvent, (void* s, void*, unsigned), note("wait stream %lu", number(s));)
CU(cuStreamBeginCapture_v2, (void* s, int), captures[s] = {++capture_ids, fresh()};)
CU(cuStreamEndCapture, (void* s, void** g), *g = captures[s].graph; captures.erase(s);)
CU(cuStreamIsCapturing, (void* s, int* status), *status = captures.count(s) ? 1 : 0;)
CU(cuStreamGetCaptureInfo_v2, (void* s, int* status, std::uint64_t* id, void** graph, const void**, Size*),
   *status = captures.count(s) ? 1 : 0;
   if (*status) { *id = captures[s].id; *graph = captures[s].graph; })
CU(cuThreadExchangeStreamCaptureMode, (int*), )
CU(cuEventCreate, (void** e, unsigned), *e = fresh();)
CU(cuEventDestroy_v2, (void*), )
CU(cuEventRecord, (void*, void* s), note("record stream %lu", number(s));)
CU(cuEventSynchronize, (void*), )
CU(cuEventQuery, (void*), )
CU(cuEventElapsedTime, (float* ms, void*, void*), *ms = 1.5f;)
CU(cuGraphInstantiateWithFlags, (void** e, void* g, std::uint64_t), *e = g; note("instantiate");)
CU(cuGraphLaunch, (void*, void* s), note("launch graph stream %lu", number(s));)
CU(cuGraphExecDestroy, (void*), )
CU(cuGraphDestroy, (void* g),
   for (auto [from, to] = held.equal_range(g); from != to; ++from) objects[from->second].destroy(objects[from->second].data);
   held.erase(g);)
CU(cuGraphRetainUserObject, (void* g, void* o, unsigned, unsigned), held.emplace(g, o);)
CU(cuUserObjectCreate, (void** o, void* data, void (*destroy)(void*), unsigned, unsigned), *o = fresh(); objects[*o] = {data, destroy};)

CU(fake_devices, (int n), device_count = n;)
CU(fake_calls, (const char** text), static std::string kept; kept = log_text; log_text.clear(); *text = kept.c_str();)
CU(fake_keep, (Size words), parameter.assign(words, 0);)
CU(fake_words, (std::uint64_t* to), for (std::uint64_t word : parameter) *to++ = word;)
CU(fake_fail, (const char* name, int code), failing = name; failing_code = code;)
)text";

}  // namespace tegula::cuda::testing
