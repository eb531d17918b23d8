// Panels filled from rows, columns and gathered rows of every type; what may not be read is on a trapping
// page or is NaN, padding is zero.
#include <cmath>
#include <random>

#include "device/cpu/testing/sets.hpp"

namespace tegula_cpu_testing {
namespace {

struct Shape {
  long k, n;
};
constexpr Shape shapes[] = {{1, 1}, {3, 5}, {16, 16}, {64, 64}, {17, 33}, {40, 100}, {65, 8}};

// Exactly as many source elements as exist, so that a read beyond them is an error of the sanitizer, filled
// with bytes that every type reads as a number.
struct Source {
  long stride;
  std::vector<std::uint8_t> bytes;

  Source(const Packing& packing, long lines, long length, long gap) : stride(length + gap) {
    bytes.resize(std::size_t(((lines - 1) * stride + length) * packing.bytes));
    std::mt19937 random(unsigned(lines * 131 + length));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::uint8_t(random() % 0x3c);
  }
  const std::uint8_t* at(const Packing& packing, long line, long i) const {
    return bytes.data() + (line * stride + i) * packing.bytes;
  }
};

class PackTest : public CpuSet {
 protected:
  struct Panels {
    std::vector<float> f;
    std::vector<std::int32_t> i;
    std::vector<double> d;
  };
  void* allocate(char kind, long size) {
    panels.f.assign(std::size_t(size), NAN), panels.i.assign(std::size_t(size), -77);
    panels.d.assign(std::size_t(size), NAN);
    return kind == 'f'   ? static_cast<void*>(panels.f.data())
           : kind == 'i' ? static_cast<void*>(panels.i.data())
                         : panels.d.data();
  }
  double element(char kind, long at) const {
    return kind == 'f' ? double(panels.f[at]) : kind == 'i' ? double(panels.i[at]) : panels.d[at];
  }
  long padded(long n) const { return (n + set.width - 1) / set.width * set.width; }

  template <class Expected>
  void expect(const Packing& packing, Shape shape, const char* what, Expected expected) {
    for (long p = 0; p < shape.k; ++p) {
      for (long j = 0; j < padded(shape.n); ++j) {
        double value = j < shape.n ? expected(p, j) : 0;
        if (packing.kind == 'f') value = float(value);
        ASSERT_EQ(element(packing.kind, set.panel_index(shape.k, shape.n, p, j)), value)
            << set.name << " " << packing.name << " " << what << " " << shape.k << " x " << shape.n << " at "
            << p << ", " << j;
      }
    }
  }
  Panels panels;
};
TEGULA_ON_ALL_CPU_SETS(PackTest);

TEST_P(PackTest, RowsAndColumnsClipAtBounds) {
  for (const Packing& packing : set.packings) {
    for (const Shape shape : shapes) {
      const Bounds cases[] = {{0, shape.k, 0, shape.n},
                              {0, shape.k / 2, 0, (shape.n + 1) / 2},
                              {shape.k / 3, shape.k, shape.n / 3, shape.n},
                              {shape.k / 2, shape.k / 2, 0, shape.n}};
      for (const Bounds& b : cases) {
        const double fill = packing.kind == 'f' ? -INFINITY : 5;
        const auto inside = [&](long p, long j) {
          return p >= b.k_begin && p < b.k_end && j >= b.n_begin && j < b.n_end;
        };
        void* to = allocate(packing.kind, set.panel_size(shape.k, shape.n));
        // Only the inside exists in memory: the origin of the tile is before it.
        const long lines = std::max(b.k_end - b.k_begin, 1l), length = std::max(b.n_end - b.n_begin, 1l);
        const Source rows(packing, lines, length, 3);
        packing.rows(rows.bytes.data() - (b.k_begin * rows.stride + b.n_begin) * packing.bytes, rows.stride,
                     shape.k, shape.n, b, fill, to);
        expect(packing, shape, "rows", [&](long p, long j) {
          return inside(p, j) ? packing.load1(rows.at(packing, p - b.k_begin, j - b.n_begin)) : fill;
        });
        to = allocate(packing.kind, set.panel_size(shape.k, shape.n));
        const Source columns(packing, length, lines, 3);
        packing.columns(columns.bytes.data() - (b.n_begin * columns.stride + b.k_begin) * packing.bytes,
                        columns.stride, shape.k, shape.n, b, fill, to);
        expect(packing, shape, "columns", [&](long p, long j) {
          return inside(p, j) ? packing.load1(columns.at(packing, j - b.n_begin, p - b.k_begin)) : fill;
        });
        const long stride = padded(shape.n) + set.width;
        to = allocate(packing.kind, shape.k * stride);
        packing.copied_rows(rows.bytes.data() - (b.k_begin * rows.stride + b.n_begin) * packing.bytes,
                            rows.stride, shape.k, shape.n, b, fill, to, stride);
        for (long p = 0; p < shape.k; ++p) {
          for (long j = 0; j < shape.n; ++j) {
            double value =
                inside(p, j) ? packing.load1(rows.at(packing, p - b.k_begin, j - b.n_begin)) : fill;
            if (packing.kind == 'f') value = float(value);
            ASSERT_EQ(element(packing.kind, p * stride + j), value)
                << set.name << " " << packing.name << " copy";
          }
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(PackTest, MissingGatheredRowsAreZero) {
  constexpr long table_rows = 20;
  for (const Packing& packing : set.packings) {
    for (const Shape shape : shapes) {
      std::mt19937 random(11);
      std::vector<int> index(std::size_t(std::max(shape.k, shape.n)));
      for (int& i : index) i = int(random() % (table_rows + 4)) - 2;
      const auto missing = [&](long i) { return index[i] < 0 || index[i] >= table_rows; };
      const Source rows(packing, table_rows, shape.n, 0), columns(packing, table_rows, shape.k, 0);
      void* to = allocate(packing.kind, set.panel_size(shape.k, shape.n));
      packing.gathered_rows(rows.bytes.data(), rows.stride, table_rows, index.data(), shape.k, shape.n, to);
      expect(packing, shape, "gathered rows",
             [&](long p, long j) { return missing(p) ? 0 : packing.load1(rows.at(packing, index[p], j)); });
      to = allocate(packing.kind, set.panel_size(shape.k, shape.n));
      packing.gathered_columns(columns.bytes.data(), columns.stride, table_rows, index.data(), shape.k,
                               shape.n, to);
      expect(packing, shape, "gathered columns", [&](long p, long j) {
        return missing(j) ? 0 : packing.load1(columns.at(packing, index[j], p));
      });
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tegula_cpu_testing
