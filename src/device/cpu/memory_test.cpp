// Loads and stores of every element type beside pages that may not be touched.
#include <sys/mman.h>
#include <unistd.h>


#include "device/cpu/testing/sets.hpp"

namespace tegula_cpu_testing {
namespace {

// One page of memory between two that trap.
class GuardedPage {
 public:
  GuardedPage() : size_(std::size_t(sysconf(_SC_PAGESIZE))) {
    base_ =
        static_cast<std::uint8_t*>(mmap(nullptr, 3 * size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + size_, size_, PROT_READ | PROT_WRITE)) throw std::bad_alloc();
  }
  ~GuardedPage() { munmap(base_, 3 * size_); }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;
  std::uint8_t* begin() { return base_ + size_; }
  std::uint8_t* end() { return base_ + 2 * size_; }

 private:
  std::size_t size_;
  std::uint8_t* base_;
};

class MemoryTest : public CpuSet {
 protected:
  // What a lane reads as: a mask of booleans is -1.
  double lane_of(const Storage& s, double value) const { return is_boolean(s) && value != 0 ? -1 : value; }
  bool is_boolean(const Storage& s) const { return std::string(s.name) == "bool"; }

  // Small positive whole numbers, which all types hold.
  void write_values(const Storage& s, std::uint8_t* p, int n) {
    for (int i = 0; i < n; ++i) s.store1(p + i * s.bytes, is_boolean(s) ? (i * 5 % 3 != 0) : i % 8 + 1);
  }
  double value(const Storage& s, int i) const { return is_boolean(s) ? (i * 5 % 3 != 0) : i % 8 + 1; }

  GuardedPage page;
};
TEGULA_ON_ALL_CPU_SETS(MemoryTest);

TEST_P(MemoryTest, TailLoadsStayInside) {
  for (const Storage& s : set.storage) {
    for (int n = 0; n <= set.width; ++n) {
      double plain[16], strided[16];
      std::uint8_t* p = page.end() - n * s.bytes;
      write_values(s, p, n);
      s.load_n(p, n, plain);
      s.load_strided(p, 1, n, strided);
      for (int i = 0; i < set.width; ++i) {
        const double expected = i < n ? lane_of(s, value(s, i)) : 0;
        ASSERT_EQ(plain[i], expected) << s.name << " " << n << " " << i;
        ASSERT_EQ(strided[i], expected) << s.name << " " << n << " " << i;
      }
    }
  }
}

TEST_P(MemoryTest, TailStoresStayInside) {
  for (const Storage& s : set.storage) {
    double lanes[16];
    for (int i = 0; i < 16; ++i) lanes[i] = lane_of(s, value(s, i));
    for (int n = 0; n <= set.width; ++n) {
      for (bool strided : {false, true}) {
        std::memset(page.begin(), 0x11, std::size_t(page.end() - page.begin()));
        std::uint8_t* p = page.end() - n * s.bytes;
        if (strided)
          s.store_strided(p, 1, lanes, n);
        else
          s.store_n(p, lanes, n);
        for (int i = 0; i < n; ++i) ASSERT_EQ(s.load1(p + i * s.bytes), value(s, i)) << s.name << " " << n;
        for (int i = 1; i <= 64; ++i) ASSERT_EQ(*(p - i), 0x11) << s.name << " " << n << " wrote before";
      }
    }
    s.store_n(page.begin(), lanes, 1);
    for (int i = s.bytes; i < 64; ++i) ASSERT_EQ(page.begin()[i], 0x11) << s.name << " wrote behind";
  }
}

TEST_P(MemoryTest, StridesOfAnySign) {
  for (const Storage& s : set.storage) {
    for (long stride : {1, 2, 3, 7, -1, -5}) {
      const long reach = stride * (set.width - 1);
      std::uint8_t* p = stride < 0 ? page.end() - s.bytes : page.end() - (reach + 1) * s.bytes;
      double lanes[16], back[16];
      for (int i = 0; i < 16; ++i) lanes[i] = lane_of(s, value(s, i));
      s.store_strided(p, stride, lanes, set.width);
      s.load_strided(p, stride, set.width, back);
      for (int i = 0; i < set.width; ++i) {
        ASSERT_EQ(back[i], lanes[i]) << s.name << " " << stride;
        ASSERT_EQ(s.load1(p + i * stride * s.bytes), value(s, i)) << s.name << " " << stride;
      }
    }
  }
}

TEST_P(MemoryTest, NarrowIntegersWrap) {
  const std::int64_t values[] = {300, -300, 40000, -40000, 255, -1, 128, -129};
  for (const Storage& s : set.storage) {
    const std::string name = s.name;
    if (name != "i8" && name != "i16" && name != "u8") continue;
    for (std::int64_t value : values) {
      const double expected = name == "i8"    ? std::int8_t(value)
                              : name == "i16" ? std::int16_t(value)
                                              : std::uint8_t(value);
      double lanes[16], back[16];
      std::fill_n(lanes, 16, double(value));
      s.store(page.begin(), lanes);
      s.load(page.begin(), back);
      for (int i = 0; i < set.width; ++i) ASSERT_EQ(back[i], expected) << name << " " << value;
      s.store1(page.begin(), double(value));
      ASSERT_EQ(s.load1(page.begin()), expected) << name << " " << value;
    }
  }
}

}  // namespace
}  // namespace tegula_cpu_testing
