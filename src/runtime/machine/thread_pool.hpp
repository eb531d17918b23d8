// Threads that wait for work, so that a parallel loop starts within microseconds.
//
// Any thread may call; calls from several threads share the pool's workers. A call made from inside a body
// runs its iterations one after another on the calling thread. The first exception of a body stops the loop
// (iterations already begun finish) and is thrown to the caller.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace tegula {

class ThreadPool {
 public:
  // `threads` counts the calling thread; 0 means TEGULA_NUM_THREADS or else the machine's processors.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;  // the number of workers, the caller among them

  // body(i) for i in [0, count), in any order.
  void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);
  // body(block, next, worker) for every block of `order`, begun in that order; each worker takes the next
  // block when it is free. `worker` is in [0, size()) and no two bodies that run at once in one call share
  // it. An empty order means 0, 1, … count - 1, and blocks of similar length: while there are many, a worker
  // takes one early. `next` is the block that it runs next, or no_block if it does not know.
  static constexpr std::int64_t no_block = -1;
  using BlockBody = std::function<void(std::int64_t block, std::int64_t next, int worker)>;
  void run_blocks(std::int64_t count, std::span<const std::int64_t> order, const BlockBody& body);

  // Memory for the running body, 64-byte aligned and reused by later bodies of this thread: valid until
  // the same thread asks again or its body returns. Contents are undefined.
  static void* scratch(std::size_t bytes);
  // Frees what the calling thread holds.
  static void release_scratch();

 private:
  struct Job;
  struct State;
  std::unique_ptr<State> state_;
};

// The pool of the process, started on first use. Like all that calls share it is never destroyed, since the
// process may end while another thread is in a call.
ThreadPool& thread_pool();

}  // namespace tegula
