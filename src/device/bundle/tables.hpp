// What a bundle says of its kernels: tables that are printed with them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "call.hpp"
#include "tegula_bundle.h"

namespace bundle {

// Operations of host expressions; the names are those of the language's.
enum class Op : std::uint8_t {
  constant,
  variable,
  add,
  sub,
  mul,
  div,
  mod,
  floordiv,
  floormod,
  ceildiv,
  min,
  max,
  neg,
  abs,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  logical_and,
  logical_or,
  logical_not,
  isnan,
  select,
  cast
};

// Operands come before operations.
struct Step {
  Op op;
  std::uint8_t type;     // tegula_type, of the result
  std::int32_t slot;     // of a variable
  std::int64_t integer;  // of a constant
  double real;
};
struct Expr {
  const Step* steps;
  std::int32_t count;
};

enum class Role : std::uint8_t { input, output, inout, workspace };

struct Extent {
  bool solves;  // gives the dim `slot` its value
  std::int32_t slot;
  Expr value;
};
struct Buffer {
  const char* name;
  std::uint8_t type;
  Role role;
  bool zero;
  std::int32_t rank;
  const Extent* extents;
};
struct Dim {
  const char* name;
  std::int64_t multiple;
};
struct Requirement {
  Expr condition;
  const char* text;
};
// A buffer that the kernel views in another shape: it must be contiguous.
struct Reshape {
  std::int32_t buffer, rank;
  const Expr* shape;
};
// Buffers that may not share bytes.
struct Pair {
  std::int32_t a, b;
};

struct Grid {
  Expr extents[3];
  std::int32_t rank;
  std::int64_t strip;  // of the order of blocks on CPUs; 0: the first index runs fastest
};

inline constexpr int isa_count = 3;  // portable, AVX2, AVX-512
struct CpuGrid {
  TegulaBlock* block[isa_count];
  std::size_t scratch_bytes;
  std::size_t record_bytes;  // at its beginning, cleared before the first block
};
struct CpuApply {
  TegulaApply* apply[isa_count];
};
struct CpuKernel {
  const CpuGrid* grids;  // null: nothing for CPUs
  const CpuApply* apply;
  const char* const* assertions;
  const char* const* prints;
};

struct CudaGrid {
  const char* function;
  std::int32_t threads, ctas;  // of a CTA, and these of a block
  std::uint32_t shared_bytes;
  bool persistent, even, waits;
};
struct CudaMap {
  std::int32_t tensor;
  const std::int32_t* box;
  std::int32_t columns;
  bool swizzled, rest;
};
struct CudaAligned {
  std::int32_t tensor, bytes;  // at a multiple of which its rows begin
};
struct CudaProgram {
  const unsigned char* cubin;  // null: there is none
  const CudaGrid* grids;
  const CudaMap* maps;
  std::int32_t map_count;
  const CudaAligned* aligned;
  std::int32_t aligned_count;
  const char* const* assertions;
  std::int32_t assertion_count;
};

struct Kernel {
  const char* name;
  const Buffer* buffers;  // parameters, then workspaces
  std::int32_t parameters, buffer_count;
  const Dim* dims;
  std::int32_t dim_count, scalar_count, value_count;  // values: dims, scalars, numbers of processors
  const std::uint8_t* scalar_types;
  const Requirement* requirements;
  std::int32_t requirement_count;
  const Reshape* reshapes;
  std::int32_t reshape_count;
  const Pair* pairs;
  std::int32_t pair_count;
  const Grid* grids;
  std::int32_t grid_count;
  CpuKernel cpu;
  // The one for tensors that the copy engine takes, and the one for all others.
  CudaProgram cuda[2];
  std::int32_t architecture;
};

struct Scalar {
  std::int64_t integer;
  double real;
};

}  // namespace bundle
