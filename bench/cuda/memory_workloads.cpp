// Tile programs that do little but read and write, over a tensor of 1 GiB, beside the driver's own copy.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "pool.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"
#include "workloads.hpp"

namespace tegula::bench {
namespace {

constexpr std::int64_t gibibyte = std::int64_t{1} << 30;
constexpr int columns = 4096;
constexpr double epsilon = 1e-5;

// What is done with one row, given as a fragment [1, columns] of f32.
using OfRow = void (*)(lang::Fragment& x);

void silu(lang::Fragment& x) {
  using namespace lang;
  parallel(x, [&](Index i, Index j) { x(i, j) = x(i, j) / (1 + exp(-x(i, j))); });
}

void softmax(lang::Fragment& x) {
  using namespace lang;
  Fragment most = reduce_max(x);
  parallel(x, [&](Index i, Index j) { x(i, j) = exp(x(i, j) - most(i)); });
  Fragment sum = reduce_sum(x);
  parallel(x, [&](Index i, Index j) { x(i, j) = x(i, j) / sum(i); });
}

void rms_norm(lang::Fragment& x) {
  using namespace lang;
  Fragment square({1, columns}, f32);
  parallel(x, [&](Index i, Index j) { square(i, j) = x(i, j) * x(i, j); });
  Fragment sum = reduce_sum(square);
  parallel(x, [&](Index i, Index j) { x(i, j) = x(i, j) * rsqrt(sum(i) / columns + float(epsilon)); });
}

lang::Kernel row_kernel(const char* name, DType type, OfRow of_row) {
  using namespace lang;
  return kernel(fmt::format("{}_{}", name, type.name()), [&] {
    Dim rows("rows");
    lang::Tensor x = input("x", {rows, columns}, type), y = output("y", {rows, columns}, type);
    grid(rows, {.threads = 256}, [&](Index r) {
      Fragment row({1, columns}, f32);
      copy(x.at(r), row);
      of_row(row);
      copy(row, y.at(r));
    });
  });
}

// Without tiles: every element by itself.
lang::Kernel copy_kernel(DType type) {
  using namespace lang;
  return kernel(fmt::format("copy_{}", type.name()), [&] {
    constexpr int part = 16384;
    Dim parts("parts");
    lang::Tensor x = input("x", {parts, part}, type), y = output("y", {parts, part}, type);
    grid(parts, {.threads = 256}, [&](Index p) { parallel(part, [&](Index i) { y(p, i) = x(p, i); }); });
  });
}

lang::Kernel kernel_of(const std::string& what, DType type) {
  if (what == "copy") return copy_kernel(type);
  if (what == "silu") return row_kernel("silu", type, silu);
  if (what == "softmax") return row_kernel("softmax", type, softmax);
  return row_kernel("rms_norm", type, rms_norm);
}

// Element `column` of what becomes of a row.
double exact(const std::string& what, const std::vector<double>& row, std::size_t column) {
  const double x = row[column];
  if (what == "silu") return x / (1 + std::exp(-x));
  double sum = 0;
  for (const double y : row) sum += what == "softmax" ? std::exp(y) : y * y;
  if (what == "softmax") return std::exp(x) / sum;
  return what == "rms norm" ? x / std::sqrt(sum / columns + epsilon) : x;
}

Workload memory_workload(const std::string& what, DType type) {
  const std::int64_t elements = gibibyte / type.bytes(), rows = elements / columns;
  Workload workload;
  workload.name = fmt::format("{} {} 1 GiB", what, type.name());
  workload.flops = 2.0 * gibibyte;  // bytes: TB/s instead of TFLOPS
  workload.prepare = [=] {
    const auto pool = std::make_shared<Pool>(type, elements);
    const Shape shape = what == "copy" ? Shape{elements / 16384, 16384} : Shape{rows, columns};
    const Tensor x = pool->take(shape, 0), y = unwritten(shape, type);
    Workload::Ready ready;
    if (what == "driver's copy")
      ready.call = [=] { copy_elements(x, y); };
    else
      ready.call = [=, f = compile(kernel_of(what, type), Target::cuda())] { f(x, y); };
    ready.error = [=] {
      double worst = 0;
      for (const std::int64_t row : {std::int64_t{0}, rows / 3, rows - 1}) {
        std::vector<double> own(columns);
        for (int i = 0; i < columns; ++i) own[static_cast<std::size_t>(i)] = pool->at(row * columns, i);
        const std::int64_t column = row * 31 % columns;
        const Tensor result =
            y.reshape({elements}).slice(0, row * columns + column, row * columns + column + 1);
        worst = worse(
            worst, std::abs(result.values<double>()[0] - exact(what, own, static_cast<std::size_t>(column))));
      }
      return worst;
    };
    return ready;
  };
  return workload;
}

}  // namespace

std::vector<Workload> memory_workloads() {
  std::vector<Workload> all;
  for (const DType type : {bf16, f32})
    for (const char* what : {"driver's copy", "copy", "silu", "softmax", "rms norm"})
      all.push_back(memory_workload(what, type));
  return all;
}

}  // namespace tegula::bench
