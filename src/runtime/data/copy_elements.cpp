#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda/memory.hpp"
#include "runtime/data/convert_row.hpp"
#include "runtime/machine/thread_pool.hpp"
#include "tegula/error.hpp"
#include "tegula/tensor.hpp"

namespace tegula {
namespace {

struct CopiedDim {
  std::int64_t extent, from, to;  // the strides, in bytes
};

// The walk over both tensors with as few and as long dimensions as possible; the last one is innermost.
std::vector<CopiedDim> common_walk(const TensorRef& from, const TensorRef& to) {
  std::vector<CopiedDim> dims;
  for (std::size_t i = 0; i < from.shape.size(); ++i) {
    const CopiedDim dim{from.shape[i], from.strides[i] * from.dtype.bytes(),
                        to.strides[i] * to.dtype.bytes()};
    if (dim.extent == 1) continue;
    if (!dims.empty() && dims.back().from == dim.extent * dim.from && dims.back().to == dim.extent * dim.to) {
      dims.back() = {dims.back().extent * dim.extent, dim.from, dim.to};
    } else {
      dims.push_back(dim);
    }
  }
  if (dims.empty()) dims.push_back({1, from.dtype.bytes(), to.dtype.bytes()});
  return dims;
}

// Calls row(from, to) at the start of every innermost row.
template <class Row>
void for_each_row(const std::vector<CopiedDim>& dims, const std::byte* from, std::byte* to, const Row& row) {
  std::vector<std::int64_t> index(dims.size() - 1);
  while (true) {
    row(from, to);
    std::size_t d = index.size();
    while (d > 0) {
      --d;
      from += dims[d].from;
      to += dims[d].to;
      if (++index[d] < dims[d].extent) break;
      from -= dims[d].from * dims[d].extent;
      to -= dims[d].to * dims[d].extent;
      index[d] = 0;
      if (d == 0) return;
    }
    if (index.empty()) return;
  }
}

template <class T>
void copy_row(const CopiedDim& row, const std::byte* from, std::byte* to) {
  for (std::int64_t i = 0; i < row.extent; ++i) std::memcpy(to + i * row.to, from + i * row.from, sizeof(T));
}

using RowCopy = void (*)(const CopiedDim&, const std::byte*, std::byte*);

RowCopy same_type_row(int bytes) {
  switch (bytes) {
    case 1:
      return copy_row<std::uint8_t>;
    case 2:
      return copy_row<std::uint16_t>;
    case 4:
      return copy_row<std::uint32_t>;
    default:
      return copy_row<std::uint64_t>;
  }
}

void copy_same_type(const std::vector<CopiedDim>& dims, int bytes, const std::byte* from, std::byte* to) {
  const CopiedDim& inner = dims.back();
  if (inner.from == bytes && inner.to == bytes) {
    for_each_row(dims, from, to,
                 [&](const std::byte* f, std::byte* t) { std::memcpy(t, f, inner.extent * bytes); });
  } else {
    const RowCopy row = same_type_row(bytes);
    for_each_row(dims, from, to, [&](const std::byte* f, std::byte* t) { row(inner, f, t); });
  }
}

// Work of less than this is done before another thread would have begun.
constexpr std::int64_t least_of_a_thread = 1 << 16;

// Calls work(dims, from, to) for ranges of the walk that together are all of it.
template <class Work>
void in_ranges(std::vector<CopiedDim> dims, const std::byte* from, std::byte* to, const Work& work) {
  std::int64_t elements = 1;
  for (const CopiedDim& dim : dims) elements *= dim.extent;
  const auto longest = static_cast<std::size_t>(
      std::max_element(dims.begin(), dims.end(), [](auto& a, auto& b) { return a.extent < b.extent; }) -
      dims.begin());
  const CopiedDim whole = dims[longest];
  const std::int64_t ranges = std::min(whole.extent, elements / least_of_a_thread);
  if (ranges <= 1) return work(dims, from, to);
  thread_pool().parallel_for(ranges, [&](std::int64_t range) {
    const std::int64_t begin = whole.extent * range / ranges, end = whole.extent * (range + 1) / ranges;
    std::vector<CopiedDim> mine = dims;
    mine[longest].extent = end - begin;
    work(mine, from + begin * whole.from, to + begin * whole.to);
  });
}

void check_copy(const TensorRef& from, const TensorRef& to) {
  if (from.shape != to.shape) {
    throw ArgumentError(fmt::format("cannot copy {} to {}: the shapes differ", describe(from), describe(to)));
  }
}

}  // namespace

void copy_elements(const TensorRef& from, const TensorRef& to) {
  check_copy(from, to);
  if (nelements(from) == 0) return;
  if (!from.device.is_cpu() || !to.device.is_cpu()) return cuda::copy_elements(from, to);
  const std::vector<CopiedDim> dims = common_walk(from, to);
  const auto* source = static_cast<const std::byte*>(from.data);
  auto* target = static_cast<std::byte*>(to.data);
  in_ranges(dims, source, target, [&](const std::vector<CopiedDim>& range, const std::byte* f, std::byte* t) {
    if (from.dtype == to.dtype) return copy_same_type(range, from.dtype.bytes(), f, t);
    const CopiedDim& row = range.back();
    for_each_row(range, f, t, [&](const std::byte* f, std::byte* t) {
      convert_row(from.dtype, {f, row.from}, to.dtype, {t, row.to}, row.extent);
    });
  });
}

}  // namespace tegula
