#include "runtime/machine/thread_pool.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tegula {
namespace {

constexpr int most_threads = 4096;

// How long a thread looks for work before it sleeps: waking a sleeper costs tens of microseconds.
constexpr std::chrono::microseconds spin_time{50};

// While so many blocks are left for each worker, it takes one before it is free: if its block is not much
// longer than others, nobody waits for the one that it keeps.
constexpr std::int64_t many_blocks = 4;

thread_local bool inside_body = false;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

template <class Condition>
bool spin_until(bool may_spin, const Condition& condition) {
  if (condition()) return true;
  if (!may_spin) return false;
  const auto end = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 16; ++i) {
      if (condition()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

struct Arena {
  void* data = nullptr;
  std::size_t bytes = 0;
  ~Arena() { std::free(data); }
  void release() {
    std::free(data);
    data = nullptr;
    bytes = 0;
  }
};
thread_local Arena arena;

// Those that this process may use: std::thread counts all of the machine, also where taskset, a container or
// a batch system has given some of them.
int available_processors() {
#if defined(__linux__)
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) == 0) return CPU_COUNT(&mine);
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int default_threads() {
  if (const auto wanted = environment_integer(Variable::num_threads, 1, most_threads))
    return static_cast<int>(*wanted);
  return available_processors();
}

}  // namespace

// One call of run_blocks. It lives on the caller's stack; a helper touches it only while it is counted.
struct ThreadPool::Job {
  std::int64_t count;
  std::span<const std::int64_t> order;
  const ThreadPool::BlockBody& body;
  int workers;
  std::atomic<std::int64_t> next{0};
  std::atomic<int> helpers{0};
  std::exception_ptr error{};
  std::mutex error_mutex{};

  bool has_work() const { return next.load(std::memory_order_relaxed) < count; }
  std::int64_t block(std::int64_t i) const { return order.empty() ? i : order[i]; }
  // Its place in the order; no_block if there is none.
  std::int64_t take() {
    const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
    return i < count ? i : ThreadPool::no_block;
  }
  // An order is given where blocks differ.
  std::int64_t take_early() {
    const bool many = count - next.load(std::memory_order_relaxed) > many_blocks * workers;
    return many && order.empty() ? take() : ThreadPool::no_block;
  }

  void work(int worker) noexcept {
    inside_body = true;
    try {
      for (std::int64_t i = take(); i != ThreadPool::no_block;) {
        const std::int64_t early = take_early();
        body(block(i), early == ThreadPool::no_block ? early : block(early), worker);
        i = early == ThreadPool::no_block ? take() : early;
      }
    } catch (...) {
      next.store(count, std::memory_order_relaxed);
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
    inside_body = false;
  }
};

struct ThreadPool::State {
  int size = 1;
  bool may_spin = true;
  std::mutex mutex;
  std::condition_variable wake, finished;
  std::vector<Job*> jobs;
  std::atomic<std::uint64_t> epoch{0};  // counts published jobs; changed under the mutex
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;

  // A job with blocks left, counted as helped by the caller.
  Job* join_job() {
    const std::lock_guard lock(mutex);
    for (Job* job : jobs) {
      if (!job->has_work()) continue;
      job->helpers.fetch_add(1, std::memory_order_relaxed);
      return job;
    }
    return nullptr;
  }

  void leave_job(Job& job) {
    bool last = false;
    {
      const std::lock_guard lock(mutex);
      last = job.helpers.fetch_sub(1, std::memory_order_release) == 1;
    }
    if (last) finished.notify_all();
  }

  void help(int worker) {
    while (!stop.load(std::memory_order_acquire)) {
      const std::uint64_t seen = epoch.load(std::memory_order_acquire);
      if (Job* job = join_job()) {
        job->work(worker);
        leave_job(*job);
        continue;
      }
      const auto called = [&] {
        return epoch.load(std::memory_order_acquire) != seen || stop.load(std::memory_order_acquire);
      };
      if (spin_until(may_spin, called)) continue;
      std::unique_lock lock(mutex);
      wake.wait(lock, called);
    }
  }

  void publish(Job& job) {
    {
      const std::lock_guard lock(mutex);
      jobs.push_back(&job);
      epoch.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
  }

  void withdraw(Job& job) {
    {
      const std::lock_guard lock(mutex);
      std::erase(jobs, &job);
    }
    const auto done = [&] { return job.helpers.load(std::memory_order_acquire) == 0; };
    if (spin_until(may_spin, done)) return;
    std::unique_lock lock(mutex);
    finished.wait(lock, done);
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  if (threads < 0 || threads > most_threads) {
    throw ArgumentError(
        fmt::format("a thread pool of {} threads: between 1 and {} are possible", threads, most_threads));
  }
  state_->size = threads == 0 ? default_threads() : threads;
  // A spinning thread would take a processor from one that has work.
  state_->may_spin = state_->size <= available_processors();
  for (int worker = 1; worker < state_->size; ++worker) {
    try {
      state_->threads.emplace_back([state = state_.get(), worker] { state->help(worker); });
    } catch (const std::system_error&) {  // a limit of the system or of a container
      state_->size = worker;
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop.store(true, std::memory_order_release);
  }
  state_->wake.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::size() const { return state_->size; }

void ThreadPool::parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  run_blocks(count, {}, [&](std::int64_t i, std::int64_t, int) { body(i); });
}

void ThreadPool::run_blocks(std::int64_t count, std::span<const std::int64_t> order, const BlockBody& body) {
  internal_assert(order.empty() || static_cast<std::int64_t>(order.size()) == count,
                  "the order of the blocks must name each of them");
  Job job{count, order, body, state_->size};
  if (inside_body || count <= 1 || state_->size == 1) {
    for (std::int64_t i = 0; i < count; ++i)
      body(job.block(i), i + 1 < count ? job.block(i + 1) : no_block, 0);
    return;
  }
  state_->publish(job);
  job.work(0);
  state_->withdraw(job);
  if (job.error) std::rethrow_exception(job.error);
}

void* ThreadPool::scratch(std::size_t bytes) {
  if (bytes > arena.bytes) {
    constexpr std::size_t alignment = 64;
    arena.release();
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    arena.data = std::aligned_alloc(alignment, rounded);
    if (arena.data == nullptr)
      throw DeviceError(fmt::format("out of memory: {} bytes of scratch for a thread", bytes));
    arena.bytes = rounded;
  }
  return arena.data;
}

void ThreadPool::release_scratch() { arena.release(); }

namespace {

std::atomic<ThreadPool*> pool_of_process = nullptr;
std::mutex pool_is_made;

}  // namespace

// The threads of a process are not in the children that it forks: these start their own.
ThreadPool& thread_pool() {
  if (ThreadPool* pool = pool_of_process.load(std::memory_order_acquire)) return *pool;
  const std::lock_guard lock(pool_is_made);
  if (!pool_of_process.load(std::memory_order_relaxed)) {
    static const bool forgets = pthread_atfork([] { pool_is_made.lock(); }, [] { pool_is_made.unlock(); },
                                               [] {
                                                 pool_of_process = nullptr;
                                                 pool_is_made.unlock();
                                               }) == 0;
    internal_assert(forgets, "a child process would wait for threads that it does not have");
    pool_of_process.store(new ThreadPool, std::memory_order_release);
  }
  return *pool_of_process;
}

}  // namespace tegula
