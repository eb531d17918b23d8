// What the host hands to a printed kernel; the same layout on both sides.
#pragma once
#include <stdint.h>

extern "C" {

// What is printed.
enum TegulaPrinted { integer_value, real_value, truth_value };

struct TegulaCall {
  void* const* tensor;    // data of each tensor
  const int64_t* stride;  // of all dimensions of all tensors, in elements
  const int64_t* extent;  // in the same places
  const int64_t* value;   // dims and scalars; floats as bits, in the low bytes
  void* context;          // of the functions below
  // `indices` are those of the loops around the statement.
  void (*print)(void* context, int32_t id, const int32_t* indices, int32_t type, int64_t integer,
                double real);
  void (*fail)(void* context, int32_t id, const int32_t* indices);
  // Memory for contributions of `bytes` bytes, to be added when the grid is done, in the order of `order`.
  void* (*contribute)(void* context, int32_t id, int64_t order, int64_t bytes);
  // How products of bf16 may be multiplied: as f32, 0; by the tile registers of AMX, 1; by pairs, 2, which
  // instructions of AVX512-BF16 multiply.
  int32_t has_tiles;
};

// One block of a grid. `next` is the block that the thread runs after it; null if that is not known.
// `scratch` is aligned to 64 bytes.
typedef void TegulaBlock(const struct TegulaCall* call, const int32_t* block, const int32_t* next,
                         char* scratch);
// Adds what a block contributed.
typedef void TegulaApply(const void* contribution, int64_t bytes);
}
