#include "runtime/machine/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "runtime/testing/expect_error.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

class Pools : public testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam()};
};

TEST_P(Pools, EveryBlockRunsOnce) {
  for (const int count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> runs(count);
    pool_.parallel_for(count, [&](std::int64_t i) { ++runs[i]; });
    for (const auto& n : runs) EXPECT_EQ(n, 1);
  }
}

TEST_P(Pools, ManySmallLoops) {
  std::atomic<std::int64_t> sum{0};
  for (int i = 0; i < 5000; ++i) pool_.parallel_for(3, [&](std::int64_t j) { sum += j; });
  EXPECT_EQ(sum, 15'000);
}

TEST_P(Pools, BlocksBeginInTheGivenOrder) {
  std::vector<std::int64_t> order(500);
  std::iota(order.rbegin(), order.rend(), 0);
  std::mutex mutex;
  std::vector<std::vector<std::int64_t>> seen(pool_.size());
  pool_.run_blocks(500, order, [&](std::int64_t block, std::int64_t, int worker) {
    const std::lock_guard lock(mutex);
    seen.at(worker).push_back(block);
  });
  std::size_t total = 0;
  for (const auto& blocks : seen) {
    total += blocks.size();
    EXPECT_TRUE(std::is_sorted(blocks.rbegin(), blocks.rend()));
  }
  EXPECT_EQ(total, 500u);
}

TEST_P(Pools, WorkersRunTheBlocksThatTheyAreToldNext) {
  std::vector<std::int64_t> told(pool_.size(), ThreadPool::no_block);
  std::atomic<int> runs{0}, announced{0};
  pool_.run_blocks(300, {}, [&](std::int64_t block, std::int64_t next, int worker) {
    EXPECT_TRUE(told.at(worker) == ThreadPool::no_block || told[worker] == block);
    told[worker] = next;
    ++runs, announced += next != ThreadPool::no_block;
  });
  EXPECT_EQ(runs, 300);
  EXPECT_GT(announced, 0);
  for (const std::int64_t next : told) EXPECT_EQ(next, ThreadPool::no_block);
}

TEST_P(Pools, UnevenAndLastBlocksAreLeftToWhoIsFree) {
  if (pool_.size() == 1) return;
  const auto body = [](std::int64_t, std::int64_t next, int) { EXPECT_EQ(next, ThreadPool::no_block); };
  pool_.run_blocks(4, {}, body);
  std::vector<std::int64_t> order(300);
  std::iota(order.rbegin(), order.rend(), 0);
  pool_.run_blocks(300, order, body);
}

TEST_P(Pools, WorkersAreNotShared) {
  std::vector<std::atomic<int>> busy(pool_.size());
  pool_.run_blocks(2000, {}, [&](std::int64_t, std::int64_t, int worker) {
    EXPECT_EQ(busy.at(worker).fetch_add(1), 0);
    busy[worker].fetch_sub(1);
  });
}

TEST_P(Pools, TheFirstExceptionStopsTheLoop) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::atomic<int> runs{0};
    EXPECT_ERROR(ArgumentError, "block 3", pool_.parallel_for(1'000'000, [&](std::int64_t i) {
      ++runs;
      if (i == 3) throw ArgumentError("block 3");
    }));
    EXPECT_LT(runs, 1'000'000);
  }
  std::atomic<int> runs{0};
  pool_.parallel_for(100, [&](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 100) << "the pool works on after an exception";
}

TEST_P(Pools, NestedLoopsRunInline) {
  std::atomic<int> runs{0};
  pool_.parallel_for(20, [&](std::int64_t) {
    const std::thread::id self = std::this_thread::get_id();
    pool_.parallel_for(10, [&](std::int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      ++runs;
    });
  });
  EXPECT_EQ(runs, 200);
}

// Of a process that may not have so much memory for stacks.
[[noreturn]] void make_large_pool_in_little_memory() {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t room = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
  const rlimit limit{room, room};
  setrlimit(RLIMIT_AS, &limit);
  constexpr int asked = 256;
  ThreadPool pool(asked);
  std::atomic<int> runs{0};
  pool.parallel_for(1000, [&](std::int64_t) { ++runs; });
  std::_Exit(pool.size() < asked && runs == 1000 ? 0 : 1);
}

TEST(ThreadPool, HasFewerThreadsWhereTheSystemGivesNoMore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(make_large_pool_in_little_memory(), testing::ExitedWithCode(0), "");
}

TEST_P(Pools, SeveralCallersAtOnce) {
  std::vector<std::thread> callers;
  std::vector<std::int64_t> sums(4);
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      for (int repeat = 0; repeat < 200; ++repeat) {
        std::atomic<std::int64_t> sum{0};
        pool_.parallel_for(50, [&](std::int64_t i) { sum += i; });
        sums[c] += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, std::vector<std::int64_t>(4, 200 * 1225));
}

TEST_P(Pools, ScratchIsAlignedPrivateAndReused) {
  std::mutex mutex;
  std::set<void*> addresses;
  pool_.parallel_for(1000, [&](std::int64_t i) {
    auto* data = static_cast<char*>(ThreadPool::scratch(1000));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
    std::fill_n(data, 1000, static_cast<char>(i));
    EXPECT_EQ(std::count(data, data + 1000, static_cast<char>(i)), 1000);
    const std::lock_guard lock(mutex);
    addresses.insert(data);
  });
  EXPECT_LE(addresses.size(), static_cast<std::size_t>(pool_.size()));
  void* large = ThreadPool::scratch(100'000);
  EXPECT_EQ(ThreadPool::scratch(1), large);
  ThreadPool::release_scratch();
}

INSTANTIATE_TEST_SUITE_P(Sizes, Pools, testing::Values(1, 2, 3, 8));

TEST(ThreadPool, RefusesImpossibleSizes) {
  EXPECT_ERROR(ArgumentError, "-1 threads", ThreadPool(-1));
  EXPECT_ERROR(ArgumentError, "1000000 threads", ThreadPool(1'000'000));
  EXPECT_GE(thread_pool().size(), 1);
}

}  // namespace
}  // namespace tegula
