// The elements of a tensor or tile during one run, with what the interpreter knows about each of them.
#pragma once
#include <cstddef>
#include <cstring>
#include <vector>

#include "interp/cell.hpp"
#include "interp/marks.hpp"
#include "ir/view.hpp"
#include "tegula/tensor.hpp"

namespace tegula::interp {

// State of an element: `undefined`, `given` by the call, the site of the statement that wrote it last, or
// `poisoned` + the cause of the invalid value that was stored.
inline constexpr std::uint32_t undefined = 0, given = 1, first_site = 2, poisoned = 1u << 31;
inline bool is_defined(std::uint32_t state) { return state - 1 < poisoned - 1; }

// Elements that several tensors may share.
struct Region {
  std::vector<std::byte> bytes;
  std::vector<std::uint32_t> state;
  std::vector<Moment> writer;
  std::vector<Seen> reads, combines;
};

struct Memory {
  const ir::Buffer* buffer = nullptr;
  DType type = f32;    // of the elements
  DType format = f32;  // in which they are kept: tiles of small types are kept in the compute type
  std::byte* data = nullptr;
  std::uint32_t* state = nullptr;  // null: all defined
  Moment* writer = nullptr;        // null: never written
  Seen* reads = nullptr;           // null: never read where unordered writes are possible
  Seen* combines = nullptr;        // null: no atomics
  std::int64_t elements = 0;
  std::int64_t origin = 0;  // position of the first element
  Shape shape, strides;
  Moment born = 0;      // of a tile: its declaration
  bool strict = false;  // this grid accumulates into it, so that any other access in the grid conflicts

  // Position → index, for messages.
  Shape index_of(std::int64_t position) const;
};

// The contents of the register file and of elements: load and store one element.
Cell load_element(const Memory& memory, std::int64_t position);
void store_element(const Memory& memory, std::int64_t position, const Cell& value);
// The value as the type keeps it, held in the compute type.
Cell rounded(DType type, const Cell& value);

}  // namespace tegula::interp
