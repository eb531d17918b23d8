// A call on the CPU: blocks are taken in turn by threads that live as long as the grid.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "bind.hpp"

namespace bundle {

struct Contribution {
  std::int32_t id;
  std::int64_t order, size;
  std::vector<std::int64_t> bytes;
};

// What blocks report to while one grid runs.
struct Reports {
  const CpuKernel& kernel;
  const char* name;
  std::mutex mutex;
  std::vector<Contribution> contributions;
};

inline void on_print(void* context, std::int32_t id, const std::int32_t*, std::int32_t type,
                     std::int64_t integer, double real) {
  auto& reports = *static_cast<Reports*>(context);
  const std::lock_guard<std::mutex> lock(reports.mutex);
  if (type == real_value)
    std::printf("%s = %.9g\n", reports.kernel.prints[id], real);
  else
    std::printf("%s = %lld\n", reports.kernel.prints[id], static_cast<long long>(integer));
}

inline void on_fail(void* context, std::int32_t id, const std::int32_t*) {
  const auto& reports = *static_cast<Reports*>(context);
  throw Failure{tegula_assertion, std::string("kernel '") + reports.name +
                                      "': assertion failed: " + reports.kernel.assertions[id]};
}

inline void* on_contribute(void* context, std::int32_t id, std::int64_t order, std::int64_t size) {
  auto& reports = *static_cast<Reports*>(context);
  const std::lock_guard<std::mutex> lock(reports.mutex);
  reports.contributions.push_back(
      {id, order, size, std::vector<std::int64_t>(static_cast<std::size_t>(size + 7) / 8)});
  return reports.contributions.back().bytes.data();
}

inline int best_isa() {
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return avx512 ? 2 : avx2 ? 1 : 0;
}

inline std::int64_t thread_count() {
  const char* asked = std::getenv("TEGULA_NUM_THREADS");
  const long given = asked ? std::atol(asked) : 0;
  return given > 0 ? given : std::max(1u, std::thread::hardware_concurrency());
}

struct Extents {
  std::int64_t n[3];
  std::int64_t strip;

  std::int64_t blocks() const { return n[0] * n[1] * n[2]; }
  void index(std::int64_t block, std::int32_t* at) const {
    const std::int64_t plane = block % (n[0] * n[1]);
    std::int64_t x = plane % n[0], y = plane / n[0];
    if (strip > 0) {
      const std::int64_t height = std::min(strip, n[1]), first = plane / (height * n[0]) * height;
      const std::int64_t rows = std::min(height, n[1] - first), rest = plane - first * n[0];
      x = rest / rows, y = first + rest % rows;
    }
    at[0] = static_cast<std::int32_t>(x), at[1] = static_cast<std::int32_t>(y);
    at[2] = static_cast<std::int32_t>(block / (n[0] * n[1]));
  }
};

struct Memory {
  explicit Memory(std::size_t bytes)
      : data(static_cast<char*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64))) {
    if (!data) throw Failure{tegula_no_device, "no memory is left"};
  }
  ~Memory() { std::free(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data;
};

// Threads that are joined however their scope ends; fewer where the system gives no more.
struct Team {
  std::vector<std::thread> threads;

  template <class Work>
  Team(std::int64_t count, const Work& work) {
    try {
      for (std::int64_t i = 0; i < count; ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {}
  }
  ~Team() {
    for (std::thread& thread : threads) thread.join();
  }
};

inline void run_blocks(const Extents& extents, const CpuGrid& grid, const TegulaCall& call) {
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;
  std::unique_ptr<Failure> failure;
  const int isa = best_isa();
  const auto work = [&] {
    try {
      const Memory scratch(grid.scratch_bytes);
      std::memset(scratch.data, 0, grid.record_bytes);
      for (std::int64_t block; (block = next++) < extents.blocks();) {
        std::int32_t at[3];
        extents.index(block, at);
        grid.block[isa](&call, at, nullptr, scratch.data);
      }
    } catch (const Failure& own) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!failure) failure = std::make_unique<Failure>(own);
      next = extents.blocks();
    }
  };
  {
    const Team team(std::min(thread_count(), extents.blocks()) - 1, work);
    work();
  }
  if (failure) throw *failure;
}

// Elements of a view, one by one.
inline void clear(const View& view, std::size_t dim, std::int64_t offset) {
  const std::int64_t bytes = bytes_of(view.type);
  if (dim == view.shape.size()) {
    std::memset(view.data + offset * bytes, 0, static_cast<std::size_t>(bytes));
    return;
  }
  for (std::int64_t i = 0; i < view.shape[dim]; ++i) clear(view, dim + 1, offset + i * view.strides[dim]);
}

inline void clear(const View& view) {
  if (!view.contiguous()) return clear(view, 0, 0);
  if (view.elements() > 0)
    std::memset(view.data, 0, static_cast<std::size_t>(view.elements() * bytes_of(view.type)));
}

inline void apply(Reports& reports) {
  std::stable_sort(reports.contributions.begin(), reports.contributions.end(),
                   [](const Contribution& a, const Contribution& b) { return a.order < b.order; });
  for (const Contribution& c : reports.contributions)
    reports.kernel.apply[c.id].apply[best_isa()](c.bytes.data(), c.size);
}

inline void run_on_cpu(Call& call) {
  const Kernel& k = call.kernel;
  if (!k.cpu.grids)
    throw Failure{tegula_no_device, std::string("kernel '") + k.name + "' was not built for CPUs"};
  finish(call, thread_count());
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<void*> data;
  std::vector<std::int64_t> strides, extents;
  for (std::int32_t t = 0; t < k.buffer_count; ++t) {
    View& view = call.tensors[static_cast<std::size_t>(t)];
    if (t >= k.parameters) {
      memory.push_back(
          std::make_unique<Memory>(static_cast<std::size_t>(view.elements() * bytes_of(view.type))));
      view.data = memory.back()->data;
    }
    if (k.buffers[t].zero) clear(view);
    data.push_back(view.data);
    strides.insert(strides.end(), view.strides.begin(), view.strides.end());
    extents.insert(extents.end(), view.shape.begin(), view.shape.end());
  }
  const std::vector<std::int64_t> words = words_of(call);
  for (std::int32_t g = 0; g < k.grid_count; ++g) {
    Reports reports{k.cpu, k.name, {}, {}};
    const TegulaCall given{data.data(), strides.data(), extents.data(), words.data(),
                           &reports,    on_print,       on_fail,        on_contribute};
    const Extents n{
        {extent_of(call, k.grids[g], 0), extent_of(call, k.grids[g], 1), extent_of(call, k.grids[g], 2)},
        k.grids[g].strip};
    run_blocks(n, k.cpu.grids[g], given);
    apply(reports);
  }
}

}  // namespace bundle
