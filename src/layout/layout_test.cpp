// Layouts against enumeration of all threads and registers.
#include "layout/layout.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "layout/fragments.hpp"

namespace tegula::layout {
namespace {

// A digit list evaluated without any merging.
Coordinates plain(const Digits& threads, const Digits& registers, int rank, std::int64_t t, std::int64_t r) {
  Coordinates at(static_cast<std::size_t>(rank), 0);
  auto step = [&](const Digits& digits, std::int64_t n) {
    for (const Digit& d : digits) {
      for (std::size_t k = 0; k < at.size(); ++k) at[k] += n % d.extent * d.stride[k];
      n /= d.extent;
    }
  };
  step(threads, t);
  step(registers, r);
  return at;
}

std::int64_t product(const Digits& digits) {
  std::int64_t n = 1;
  for (const Digit& d : digits) n *= d.extent;
  return n;
}

class RandomDigits {
 public:
  explicit RandomDigits(unsigned seed) : random_(seed) {}
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  // Digits that tile a box: each continues one dimension, dealt to threads or registers in any order.
  void deal(int rank, Digits& threads, Digits& registers, Coordinates& shape) {
    shape.assign(static_cast<std::size_t>(rank), 1);
    for (std::int64_t n = number(1, 6); n > 0; --n) {
      const std::int64_t extent = number(1, 4);
      const bool to_thread = number(0, 1) == 0;
      if (to_thread && number(0, 4) == 0) {
        threads.push_back(replica(rank, extent));
        continue;
      }
      const auto d = static_cast<std::size_t>(number(0, rank - 1));
      (to_thread ? threads : registers).push_back(digit(rank, static_cast<int>(d), extent, shape[d]));
      shape[d] *= extent;
    }
  }

 private:
  std::mt19937 random_;
};

TEST(Layout, CanonicalFormPlacesAsItsDigitsDo) {
  RandomDigits random(1);
  for (int round = 0; round < 500; ++round) {
    const int rank = static_cast<int>(random.number(1, 3));
    Digits threads, registers;
    Coordinates shape;
    random.deal(rank, threads, registers, shape);
    const Layout layout(shape, threads, registers);
    ASSERT_EQ(layout.thread_count(), product(threads));
    ASSERT_EQ(layout.register_count(), product(registers));
    for (std::int64_t t = 0; t < product(threads); ++t)
      for (std::int64_t r = 0; r < product(registers); ++r)
        ASSERT_EQ(layout.coordinates(t, r), plain(threads, registers, rank, t, r)) << layout.text();
    EXPECT_TRUE(layout.is_valid()) << layout.text();
  }
}

TEST(Layout, EqualExactlyWhereAllPlacesAreEqual) {
  RandomDigits random(2);
  for (int round = 0; round < 3000; ++round) {
    Digits threads[2], registers[2];
    Coordinates shape[2];
    for (int k = 0; k < 2; ++k) random.deal(1, threads[k], registers[k], shape[k]);
    const Layout a(shape[0], threads[0], registers[0]), b(shape[1], threads[1], registers[1]);
    bool same = shape[0] == shape[1] && a.thread_count() == b.thread_count() &&
                a.register_count() == b.register_count();
    for (std::int64_t t = 0; same && t < a.thread_count(); ++t)
      for (std::int64_t r = 0; same && r < a.register_count(); ++r)
        same = a.coordinates(t, r) == b.coordinates(t, r);
    EXPECT_EQ(a == b, same) << a.text() << " | " << b.text();
  }
}

TEST(Layout, PlacesInvertCoordinates) {
  RandomDigits random(3);
  for (int round = 0; round < 200; ++round) {
    Digits threads, registers;
    Coordinates shape;
    random.deal(2, threads, registers, shape);
    const Layout layout(shape, threads, registers);
    for (std::int64_t i = 0; i < shape[0]; ++i)
      for (std::int64_t j = 0; j < shape[1]; ++j) {
        const std::vector<Place> places = layout.places({i, j});
        ASSERT_EQ(static_cast<std::int64_t>(places.size()), layout.replicas());
        for (const Place& p : places) EXPECT_EQ(layout.coordinates(p.thread, p.reg), (Coordinates{i, j}));
      }
  }
}

TEST(Layout, SliceHoldsEveryElementWhereItsRowIs) {
  RandomDigits random(4);
  for (int round = 0; round < 300; ++round) {
    Digits threads, registers;
    Coordinates shape;
    random.deal(2, threads, registers, shape);
    const Layout whole(shape, threads, registers);
    for (int dim = 0; dim < 2; ++dim) {
      const Layout slice = whole.slice(dim);
      EXPECT_EQ(slice.thread_count(), whole.thread_count());
      EXPECT_TRUE(slice.is_valid()) << slice.text();
      // A thread holds an element of the slice exactly if it holds elements of that row.
      std::map<std::int64_t, std::map<std::int64_t, bool>> rows;
      const std::size_t kept = dim == 0 ? 1 : 0;
      for (std::int64_t t = 0; t < whole.thread_count(); ++t)
        for (std::int64_t r = 0; r < whole.register_count(); ++r)
          rows[t][whole.coordinates(t, r)[kept]] = true;
      for (std::int64_t t = 0; t < slice.thread_count(); ++t) {
        EXPECT_EQ(static_cast<std::int64_t>(rows[t].size()), slice.register_count());
        for (std::int64_t r = 0; r < slice.register_count(); ++r)
          EXPECT_TRUE(rows[t].count(slice.coordinates(t, r)[0]) > 0);
      }
    }
  }
}

TEST(Layout, PermutedTwiceIsTheSame) {
  const Layout a = wgmma_accumulator(128, 96, {2, 1});
  EXPECT_EQ(a.permute({1, 0}).permute({1, 0}), a);
  EXPECT_EQ(a.permute({1, 0}).slice(0), a.slice(1));
}

TEST(Fragments, BlockedHoldsEveryElementOnce) {
  const std::vector<Coordinates> shapes{{1},       {5},        {33},      {128},     {1000},
                                        {3, 7},    {16, 24},   {33, 45},  {64, 64},  {128, 72},
                                        {2, 3, 5}, {7, 4, 16}, {1, 1, 9}, {128, 128}};
  for (const Coordinates& shape : shapes)
    for (const std::int64_t threads : {32, 96, 128, 256, 384})
      for (const std::int64_t vector : {1, 2, 4}) {
        const Layout layout = blocked(threads, shape, vector);
        EXPECT_EQ(layout.thread_count(), threads) << layout.text();
        EXPECT_TRUE(layout.is_valid()) << layout.text();
      }
  EXPECT_EQ(blocked(128, {}, 1).replicas(), 128);
}

// The accumulator of m64nN as the instruction set documents it.
TEST(Fragments, WgmmaAccumulator) {
  const Layout layout = wgmma_accumulator(64, 24, {1, 1});
  ASSERT_EQ(layout.register_count(), 12);
  for (std::int64_t t = 0; t < 128; ++t)
    for (std::int64_t r = 0; r < 12; ++r)
      EXPECT_EQ(layout.coordinates(t, r), (Coordinates{16 * (t / 32) + t % 32 / 4 + 8 * (r / 2 % 2),
                                                       8 * (r / 4) + 2 * (t % 4) + r % 2}));
}

TEST(Fragments, WarpGroupsDivideTheProduct) {
  struct Case {
    std::int64_t m, n;
    Division groups;
  };
  for (const Case& c : {Case{128, 128, {2, 1}}, Case{64, 256, {1, 2}}, Case{192, 40, {3, 1}},
                        Case{256, 64, {2, 1}}, Case{128, 96, {2, 2}}, Case{40, 16, {1, 1}}}) {
    const Layout layout = wgmma_accumulator(c.m, c.n, c.groups);
    EXPECT_EQ(layout.thread_count(), 128 * c.groups.along_m * c.groups.along_n);
    EXPECT_TRUE(layout.is_valid()) << layout.text();
    // Group g owns its own rows.
    for (std::int64_t t = 0; t < layout.thread_count(); ++t)
      for (std::int64_t r = 0; r < layout.register_count(); ++r)
        EXPECT_EQ(layout.coordinates(t, r)[0] / 64 % c.groups.along_m, t / 128 % c.groups.along_m);
  }
}

// All threads have elements of a row that is alone, in rounds that its length may cut.
TEST(Fragments, RowsAreSharedByThreadsThatAreNoPowerOfTwo) {
  for (const auto& [threads, features] : {std::pair{160, 2560}, {320, 5120}, {448, 14336}, {96, 1280}}) {
    const Layout layout = blocked(threads, {1, features}, 8);
    EXPECT_TRUE(layout.is_valid()) << layout.text();
    EXPECT_EQ(layout.replicas(), 1) << layout.text();
    EXPECT_EQ(layout.overhangs(1), features % (8 * threads) != 0);
  }
}

TEST(Fragments, MmaFragments) {
  const Layout c = mma_accumulator(32, 48, {2, 3}), a = mma_operand_a(32, 32, {2, 3});
  for (const Layout* layout : {&c, &a}) {
    EXPECT_EQ(layout->thread_count(), 192);
    EXPECT_TRUE(layout->is_valid()) << layout->text();
  }
  EXPECT_EQ(c.replicas(), 1);
  EXPECT_EQ(a.replicas(), 3);
}

// What lets the result of one product be the operand of the next without moving.
TEST(Fragments, AccumulatorIsOperandOfTheNextProduct) {
  for (const std::int64_t n : {16, 64, 80, 128, 176}) {
    EXPECT_EQ(wgmma_accumulator(128, n, {2, 1}), wgmma_operand_a(128, n, {2, 1}));
    EXPECT_EQ(mma_accumulator(64, n, {4, 1}), mma_operand_a(64, n, {4, 1}));
    EXPECT_EQ(wgmma_accumulator(64, n, {1, 1}), mma_accumulator(64, n, {4, 1}));
  }
  // Row statistics of both products agree, whatever their widths.
  EXPECT_EQ(wgmma_accumulator(128, 176, {2, 1}).slice(1), wgmma_accumulator(128, 64, {2, 1}).slice(1));
}

TEST(LayoutTest, RowsThatEndWithinRunsHaveFewIdleThreads) {
  for (const int width : {33, 65, 129, 257, 511, 999, 1001})
    for (const int rows : {1, 4})
      for (const int threads : {32, 128, 96})
        for (const int vector : {4, 8}) {
          const Layout layout = blocked_in_cut_rows(threads, {rows, width}, vector);
          SCOPED_TRACE(layout.text());
          EXPECT_TRUE(layout.is_valid());
          EXPECT_EQ(layout.registers()[0].extent % vector, 0);
        }
  EXPECT_EQ(blocked_in_cut_rows(128, {16, 257}, 8).text(),
            "[16, 257] threads (8: 0,8) (16: 1,0) registers (8: 0,1) (5: 0,64)");
  EXPECT_EQ(blocked_in_cut_rows(128, {1, 1001}, 8).text(), "[1, 1001] threads (128: 0,8) registers (8: 0,1)");
  EXPECT_EQ(blocked_in_cut_rows(288, {1, 2049}, 8).text(), "[1, 2049] threads (288: 0,8) registers (8: 0,1)");
  EXPECT_EQ(blocked_in_cut_rows(288, {1, 4097}, 8).text(),
            "[1, 4097] threads (288: 0,8) registers (8: 0,1) (2: 0,2304)");
}

TEST(LayoutTest, WarpsHaveRowsOfFewRounds) {
  for (const auto& [rows, width, vector] : {std::array{4, 768, 8}, {4, 1024, 8}, {12, 1536, 8}, {8, 384, 4}})
    for (const int threads : {96, 128}) {
      const Layout layout = in_pieces(threads, {rows, width}, vector, true);
      SCOPED_TRACE(layout.text());
      EXPECT_TRUE(layout.is_valid());
      EXPECT_FALSE(layout.overhangs(1)) << "no thread is idle";
    }
  EXPECT_EQ(in_pieces(128, {4, 768}, 8, true).text(),
            "[4, 768] threads (32: 0,8) (4: 1,0) registers (8: 0,1) (3: 0,256)");
  for (const int rows : {2, 4})  // too few for all threads, or a kernel with products
    EXPECT_EQ(in_pieces(128, {rows, 768}, 8, rows == 2), blocked(128, {rows, 768}, 8));
  EXPECT_EQ(in_pieces(128, {4, 896}, 8, true), blocked(128, {4, 896}, 8)) << "an eighth is idle";
}

TEST(LayoutTest, RowsOfHalvesOfRunsAreNotShifted) {
  EXPECT_EQ(in_pieces(128, {4, 500}, 8, true).text(),
            "[4, 500] threads (32: 0,4) (4: 1,0) registers (4: 0,1) (4: 0,128)");
  EXPECT_EQ(in_pieces(128, {4, 380}, 8, true).registers()[1].extent, 3);
  for (const auto& [rows, width, vector] :
       {std::array{2, 500, 8}, {4, 420, 8}, {4, 501, 8}, {4, 502, 8}, {4, 250, 4}, {4, 1000, 16}})
    EXPECT_NE(in_pieces(128, {rows, width}, vector, true).threads()[0].stride,
              digit(2, 1, 1, vector / 2).stride)
        << rows << " x " << width;
  EXPECT_EQ(in_pieces(128, {4, 500}, 8, false), blocked(128, {4, 500}, 4)) << "a kernel with products";
}

TEST(LayoutTest, ThreadsHaveRowsOfFewHalvesOfRuns) {
  EXPECT_EQ(rows_of_threads(128, {128, 20}, 8)->text(), "[128, 20] threads (128: 1,0) registers (20: 0,1)");
  EXPECT_EQ(rows_of_threads(64, {128, 28}, 8)->text(),
            "[128, 28] threads (64: 1,0) registers (28: 0,1) (2: 64,0)");
  for (const int width : {12, 20, 28}) EXPECT_TRUE(rows_of_threads(96, {192, width}, 8)->is_valid());
  for (const auto& [rows, width, vector] : {std::array{64, 20, 8},
                                            {128, 16, 8},
                                            {128, 24, 8},
                                            {128, 4, 8},
                                            {128, 36, 8},
                                            {128, 18, 8},
                                            {128, 10, 4}})
    EXPECT_EQ(rows_of_threads(128, {rows, width}, vector), std::nullopt) << rows << " x " << width;
}

}  // namespace
}  // namespace tegula::layout
