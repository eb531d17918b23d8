#include "runtime/execution/kernel_cache.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "runtime/files/file_io.hpp"
#include "runtime/testing/expect_error.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

namespace fs = std::filesystem;

std::string key_of(int number) { return KeyBuilder().add(std::to_string(number)).key(); }

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class Cache : public testing::Test {
 protected:
  // What the entry holds, built as `payload` if it is missing.
  std::string load(const KernelCache& cache, int number, const std::string& payload) {
    std::string found;
    cache.load_or_build(
        key_of(number), ".bin",
        [&](const std::string& path) {
          ++builds_;
          write(path, payload);
        },
        [&](const std::string& path) { found = text_of(path).substr(0, payload.size()); });
    return found;
  }
  std::string path_of(int number) const { return cache_.directory() + "/" + key_of(number) + ".bin"; }
  void set_age(int number, std::chrono::minutes age) const {
    fs::last_write_time(path_of(number), fs::file_time_type::clock::now() - age);
  }

  TemporaryDirectory directory_;
  KernelCache cache_{directory_.file("cache"), 1 << 20};
  int builds_ = 0;
};

TEST_F(Cache, KeysDependOnEveryText) {
  EXPECT_EQ(KeyBuilder().add("").key().size(), 32u);
  EXPECT_NE(KeyBuilder().add("ab").add("c").key(), KeyBuilder().add("a").add("bc").key());
  EXPECT_NE(KeyBuilder().add("a").key(), KeyBuilder().add("a").add("").key());
  EXPECT_EQ(KeyBuilder().add("a").add("b").key(), KeyBuilder().add("a").add("b").key());
}

TEST_F(Cache, BuildsOnce) {
  EXPECT_FALSE(cache_.contains(key_of(1), ".bin"));
  EXPECT_EQ(load(cache_, 1, "payload"), "payload");
  EXPECT_EQ(load(cache_, 1, "payload"), "payload");
  EXPECT_EQ(load(KernelCache(cache_.directory(), 1 << 20), 1, "payload"), "payload");
  EXPECT_EQ(builds_, 1);
  EXPECT_TRUE(cache_.contains(key_of(1), ".bin"));
  EXPECT_GT(cache_.bytes(), 7u);
  cache_.clear();
  EXPECT_EQ(cache_.bytes(), 0u);
}

TEST_F(Cache, TheDirectoryIsPrivate) {
  struct stat status {};
  ASSERT_EQ(stat(cache_.directory().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(chmod(cache_.directory().c_str(), 0770), 0);
  EXPECT_ERROR(ArgumentError, "other users may write to it", KernelCache(cache_.directory(), 1));
  ASSERT_EQ(chmod(cache_.directory().c_str(), 0702), 0);
  EXPECT_ERROR(ArgumentError, "other users may write to it", KernelCache(cache_.directory(), 1));
  write(directory_.file("plain"), "");
  EXPECT_ERROR(ArgumentError, "cannot be used as a directory", KernelCache(directory_.file("plain"), 1));
  EXPECT_ERROR(ArgumentError, "cannot be created", KernelCache(directory_.file("plain/below"), 1));
  if (geteuid() == 0) {
    ASSERT_EQ(chmod(cache_.directory().c_str(), 0700), 0);
    ASSERT_EQ(chown(cache_.directory().c_str(), 12345, 12345), 0);
    EXPECT_ERROR(ArgumentError, "belongs to another user", KernelCache(cache_.directory(), 1));
  }
}

TEST_F(Cache, DamagedEntriesAreBuiltAgain) {
  const std::string payload(1000, 'x');
  load(cache_, 1, payload);
  const std::string intact = text_of(path_of(1));
  const auto damage = [&](const std::string& text) {
    write(path_of(1), text);
    builds_ = 0;
    EXPECT_EQ(load(cache_, 1, payload), payload);
    EXPECT_EQ(builds_, 1);
    EXPECT_EQ(text_of(path_of(1)), intact);
  };
  for (const std::size_t length : {std::size_t{0}, std::size_t{31}, std::size_t{32}, intact.size() - 1}) {
    damage(intact.substr(0, length));
  }
  damage(intact + "y");
  for (std::size_t i = 0; i < intact.size(); i += i < payload.size() ? 97 : 1) {
    std::string text = intact;
    text[i] = static_cast<char>(text[i] ^ 4);
    damage(text);
  }
}

TEST_F(Cache, EntriesThatDoNotLoadAreBuiltAgainOnce) {
  load(cache_, 1, "another machine's");
  builds_ = 0;
  const auto use = [&](const std::string& wanted) {
    cache_.load_or_build(
        key_of(1), ".bin",
        [&](const std::string& path) {
          ++builds_;
          write(path, "this one's");
        },
        [&](const std::string& path) {
          if (!text_of(path).starts_with(wanted)) throw DeviceError("does not load");
        });
  };
  use("this one's");
  EXPECT_EQ(builds_, 1);
  EXPECT_ERROR(DeviceError, "does not load", use("a third's"));
  EXPECT_EQ(builds_, 2);
}

// What is there under any name of a compiler: intact, of the key and the kind, the last one used first.
TEST_F(Cache, AnyCompilersEntryServes) {
  const auto build = [&](int number, const std::string& suffix, const std::string& payload) {
    cache_.load_or_build(
        key_of(number), suffix, [&](const std::string& path) { write(path, payload); },
        [](const std::string&) {});
  };
  const auto found = [&](const std::string& refused = "none") {
    std::string text;
    const bool any = cache_.load_any(key_of(1), ".so", [&](const std::string& path) {
      if (text_of(path).starts_with(refused)) throw DeviceError("does not load");
      text = text_of(path).substr(0, 5);
    });
    EXPECT_EQ(any, !text.empty());
    return text;
  };
  EXPECT_EQ(found(), "");
  build(2, ".first.so", "other");
  build(1, ".first.cubin", "cubin");
  EXPECT_EQ(found(), "");
  build(1, ".first.so", "first");
  build(1, ".second.so", "later");
  const std::string first = cache_.directory() + "/" + key_of(1) + ".first.so";
  fs::last_write_time(first, fs::file_time_type::clock::now() - std::chrono::minutes(5));
  EXPECT_EQ(found(), "later");
  EXPECT_EQ(found("later"), "first");
  write(cache_.directory() + "/" + key_of(1) + ".second.so", "later, but broken");
  EXPECT_EQ(found(), "first");
  write(first, "first, but broken");
  EXPECT_EQ(found(), "");
}

TEST_F(Cache, AFailedBuildLeavesNothing) {
  const auto never = [](const std::string&) { FAIL(); };
  EXPECT_ERROR(ArgumentError, "no luck",
               cache_.load_or_build(
                   key_of(1), ".bin",
                   [](const std::string& path) {
                     write(path, "half");
                     throw ArgumentError("no luck");
                   },
                   never));
  EXPECT_ERROR(DeviceError, "was not built",
               cache_.load_or_build(
                   key_of(1), ".bin", [](const std::string&) {}, never));
  EXPECT_TRUE(fs::is_empty(cache_.directory()));
}

TEST_F(Cache, TheLeastRecentlyUsedGoFirst) {
  const std::string payload(1000, 'x');
  const KernelCache small(cache_.directory(), 3500);
  for (int i = 0; i < 3; ++i) {
    load(small, i, payload);
    set_age(i, std::chrono::minutes(30 - i));
  }
  write(cache_.directory() + "/notes.txt", std::string(100'000, 'n'));
  load(small, 0, payload);  // the oldest becomes the youngest
  load(small, 3, payload);
  EXPECT_EQ(builds_, 4);
  EXPECT_TRUE(small.contains(key_of(0), ".bin"));
  EXPECT_FALSE(small.contains(key_of(1), ".bin"));
  EXPECT_TRUE(small.contains(key_of(2), ".bin"));
  EXPECT_TRUE(small.contains(key_of(3), ".bin"));
  EXPECT_TRUE(fs::exists(cache_.directory() + "/notes.txt")) << "files of others are left alone";
  EXPECT_EQ(load(KernelCache(cache_.directory(), 0), 4, payload), payload) << "larger than the limit";
}

TEST_F(Cache, AbandonedTemporaryFilesAreRemoved) {
  const std::string old = cache_.directory() + "/.tegula-part-1-1-1.bin",
                    fresh = cache_.directory() + "/.tegula-part-2-1-1.bin";
  write(old, "x");
  write(fresh, "x");
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  load(KernelCache(cache_.directory(), 0), 1, "a");
  load(KernelCache(cache_.directory(), 0), 2, "b");
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));
}

TEST_F(Cache, RemovalBeforeUseIsSurvived) {
  int uses = 0;
  cache_.load_or_build(
      key_of(1), ".bin", [](const std::string& path) { write(path, "x"); },
      [&](const std::string& path) {
        if (++uses < 3) {
          fs::remove(path);
          throw DeviceError("gone");
        }
      });
  EXPECT_EQ(uses, 3);
}

// One process: loads all entries many times from a cache that is too small for them and is emptied at times.
int hammer(const std::string& directory, int process) {
  const KernelCache cache(directory, 20'000);
  for (int round = 0; round < 60; ++round) {
    const int number = (process * 7 + round) % 10;
    const std::string payload(1000 + 500 * number, static_cast<char>('a' + number));
    bool good = false;
    cache.load_or_build(
        key_of(number), ".bin", [&](const std::string& path) { write(path, payload); },
        [&](const std::string& path) {
          const std::string found = text_of(path);
          if (found.empty()) throw DeviceError("gone");
          good = found.substr(0, payload.size()) == payload && found.size() == payload.size() + 32;
        });
    if (!good) return 1;
    if (round % 20 == 19) cache.clear();
  }
  return 0;
}

TEST_F(Cache, ManyProcessesAtOnce) {
  std::vector<pid_t> children;
  for (int process = 0; process < 8; ++process) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      int code = 2;
      try {
        code = hammer(cache_.directory(), process);
      } catch (...) {}
      _exit(code);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  for (const auto& file : fs::directory_iterator(cache_.directory())) {
    EXPECT_NE(file.path().filename().string().front(), '.') << "a temporary file is left";
  }
}

TEST_F(Cache, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { failures += hammer(cache_.directory(), t); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace tegula
