// The layout of a fragment: which thread holds each element, and in which register.
//
// The thread number and the register number are mixed-radix numbers, their digits listed from fastest to
// slowest. A step of a digit moves the element by its stride in each dimension; the coordinate is the sum
// over all digits. A thread digit without any stride is a replica: its threads hold the same elements. The
// digits may reach beyond the shape; registers whose coordinate is outside hold nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tegula::layout {

using Coordinates = std::vector<std::int64_t>;

struct Digit {
  std::int64_t extent;
  std::vector<std::int64_t> stride;  // one for each dimension

  bool is_replica() const;
  friend bool operator==(const Digit&, const Digit&) = default;
};
using Digits = std::vector<Digit>;

// A thread and one of its registers.
struct Place {
  std::int64_t thread, reg;
  friend bool operator==(const Place&, const Place&) = default;
};

class Layout {
 public:
  Layout() = default;
  // Brings the digits to canonical form: none of extent 1, none that could be merged with its neighbour, no
  // register digit without a stride. Layouts that place alike are then equal.
  Layout(Coordinates shape, Digits threads, Digits registers);

  const Coordinates& shape() const { return shape_; }
  const Digits& threads() const { return threads_; }
  const Digits& registers() const { return registers_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  std::int64_t thread_count() const;
  std::int64_t register_count() const;
  std::int64_t replicas() const;

  Coordinates coordinates(std::int64_t thread, std::int64_t reg) const;
  bool is_inside(const Coordinates& at) const;
  // Whether some digits reach beyond the shape in that dimension.
  bool overhangs(int dim) const;
  // All places of an element.
  std::vector<Place> places(const Coordinates& at) const;
  // Whether every element has places, as many as there are replicas, and no thread holds one twice.
  bool is_valid() const;

  // Without a dimension, as the result of a reduction is: threads that differed in it become replicas.
  Layout slice(int dim) const;
  // Dimension d of the result is dimension order[d] of this one.
  Layout permute(const std::vector<int>& order) const;

  std::string text() const;
  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  Coordinates shape_;
  Digits threads_, registers_;
};

// A digit along one dimension of `rank`.
Digit digit(int rank, int dim, std::int64_t extent, std::int64_t stride);
Digit replica(int rank, std::int64_t extent);

}  // namespace tegula::layout
