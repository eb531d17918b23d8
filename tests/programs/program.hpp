// Programs of families beyond the library's operators, written as a user would write them. Each has small
// calls whose results a plain formula in double precision knows, and forms: itself with the tiles that it is
// meant for.
#pragma once
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace programs {

using namespace tegula::lang;
using tegula::Shape;
using Data = tegula::Tensor;  // elements in memory; `Tensor` is a parameter of a program

// An array in double precision.
class Numbers {
 public:
  Shape shape;
  std::vector<double> values;

  Numbers() = default;
  explicit Numbers(Shape of, double value = 0)
      : shape(std::move(of)), values(static_cast<std::size_t>(tegula::nelements(shape)), value) {}
  explicit Numbers(const Data& data) : shape(data.shape()), values(data.values<double>()) {}

  template <class... I>
  double& operator()(I... index) {
    return values[offset(index...)];
  }
  template <class... I>
  double operator()(I... index) const {
    return values[offset(index...)];
  }
  Data to(DType type) const { return Data::from(values, shape).to(type); }

 private:
  template <class... I>
  std::size_t offset(I... index) const {
    std::int64_t at = 0;
    std::size_t dim = 0;
    ((at = at * shape[dim++] + static_cast<std::int64_t>(index)), ...);
    return static_cast<std::size_t>(at);
  }
};

// f(i), f(i, j), … for all indices below the extents.
template <class F>
void each(std::int64_t n, F f) {
  for (std::int64_t i = 0; i < n; ++i) f(static_cast<int>(i));
}
template <class F>
void each(std::int64_t m, std::int64_t n, F f) {
  each(m, [&](int i) { each(n, [&](int j) { f(i, j); }); });
}
template <class F>
void each(std::int64_t l, std::int64_t m, std::int64_t n, F f) {
  each(l, [&](int h) { each(m, n, [&](int i, int j) { f(h, i, j); }); });
}
template <class F>
double sum_of(std::int64_t n, F f) {
  double total = 0;
  each(n, [&](int i) { total += f(i); });
  return total;
}

inline Data normal(Shape shape, DType type, int seed, double deviation = 1) {
  return Data::random_normal(std::move(shape), type, static_cast<std::uint64_t>(seed), 0, deviation);
}
inline Data uniform(Shape shape, DType type, int seed, double low = 0, double high = 1) {
  return Data::random_uniform(std::move(shape), type, static_cast<std::uint64_t>(seed), low, high);
}
inline Data integers(Shape shape, DType type, int seed, int low, int high) {
  return Data::random_integers(std::move(shape), i32, static_cast<std::uint64_t>(seed), low, high).to(type);
}

// What an output must hold after a call. Errors are relative to the largest magnitude. NaN stands for what
// the program leaves alone: outputs are NaN before the call, or those of integers 77, or `before`.
struct Wanted {
  Numbers exact;
  DType type = f32;
  double tolerance = 1e-2;
  std::optional<Data> before = {};
};
using Value = std::variant<Data, Wanted, double, int>;

struct Prepared {
  Kernel kernel;
  std::vector<Value> values;  // in the order of the parameters
};
struct Call {
  std::string name;
  std::function<Prepared()> prepare;
};
// The program with tiles for work of real size, and how it is written.
struct Form {
  std::string name;
  std::function<Kernel()> kernel;
};

struct Program {
  std::string family, name;
  std::string computes;  // in a line of words
  std::vector<Call> calls;
  std::vector<Form> forms;
};

std::vector<Program> all_programs();

}  // namespace programs
