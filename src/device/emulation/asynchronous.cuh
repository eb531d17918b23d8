// The functions of src/device/cuda/asynchronous.cuh in plain C++. What they begin is over when they return.
#pragma once
#include "barriers.cuh"
#include "kernel.cuh"
#include "wgmma.cuh"

namespace tg {

// As the emulated executor writes it; see cuTensorMapEncodeTiled.
struct alignas(64) TensorMap {
  uint64_t address;
  uint32_t rank, element_bytes;
  uint64_t extents[5], strides[5];  // the fastest dimension first, strides in bytes
  uint32_t box[5];
  uint32_t swizzle;  // 0: none, 1: rows of 32 bytes, 2: of 64, 3: of 128
};

TG_DEVICE void fence_async_shared() {}
TG_DEVICE void fence_async_global() {}

// ---- among threads of a block
TG_DEVICE bool elected() { return threadIdx.x % 32 == 0; }
TG_DEVICE int zero_of_thread() { return 0; }
template <int id, int threads>
TG_DEVICE void team_sync() {
  tegula_threads->wait(id, threads);
}
template <int first, int groups>
TG_DEVICE void take_turn(int group) {
  tegula_threads->wait(first + group, 256);
}
template <int first, int groups>
TG_DEVICE void give_turn(int group) {
  tegula_threads->arrive(first + (group + 1 == groups ? 0 : group + 1), 256);
}
template <int ctas>
TG_DEVICE unsigned char* memory_of_cta(unsigned char* memory) {
  return memory + blockIdx.x % ctas * tegula_shared_bytes;
}
template <int ctas, class T, class V>
TG_DEVICE void store_in_all(T* p, V x) {
  const unsigned cta = threadIdx.x % 32;
  const int distance = (int(cta) - int(blockIdx.x % ctas)) * tegula_shared_bytes;
  if (cta < ctas) store((T*)((unsigned char*)p + distance), x);
}
template <int ctas, class T>
TG_DEVICE void send_to_all(T* p, T x, uint32_t barrier) {
  store_in_all<ctas>(p, x);
  const unsigned cta = threadIdx.x % 32;
  const int distance = (int(cta) - int(blockIdx.x % ctas)) * int(tegula_shared_bytes);
  if (cta < ctas) barrier_complete(uint32_t(int(barrier) + distance), sizeof(T));
}
// An instruction of all four warps of a group.
template <int count>
TG_DEVICE void registers_up() {
  tegula_threads->wait(tegula_first_group_barrier + int(tegula_number) / 128, 128);
}
template <int count>
TG_DEVICE void registers_down() {
  registers_up<count>();
}

// ---- copies by threads
TG_DEVICE void copy_bytes_async(void* to, const void* from, int bytes) {
  memset(to, 0, 16);
  memcpy(to, from, bytes);
}
TG_DEVICE void copy_async(void* to, const void* from, bool exists) {
  copy_bytes_async(to, from, exists ? 16 : 0);
}
template <int unit>
TG_DEVICE void copy_units_async(void* to, const void* from, int bytes) {
  // A unit that begins elsewhere is a misaligned address: here, it becomes NaN.
  if (uint64_t(from) % unit != 0) return void(memset(to, 0xff, 16));
  copy_bytes_async(to, from, bytes);
}
template <class T>
TG_DEVICE uint4 load_piece(const T* from, int bytes) {
  uint4 piece{};
  memcpy(&piece, from, bytes);
  return piece;
}
TG_DEVICE void store_piece(void* to, uint4 piece) { memcpy(to, &piece, 16); }
TG_DEVICE void order_pieces() {}
TG_DEVICE void copy_element_async(void* to, const void* from, bool exists) {
  memset(to, 0, 4);
  if (exists) memcpy(to, from, 4);
}

// ---- the copy engine
// `f` of each element of the box: its address in shared memory, and in the tensor, or null outside.
template <class F>
static inline void each_in_box(uint32_t begin, const TensorMap& map, const int* at, const F& f) {
  uint32_t i[5] = {}, place = 0;
  for (;;) {
    const bool swizzles = map.swizzle != 0;
    char* element = (char*)map.address;
    for (uint32_t d = 0; d < map.rank; ++d) {
      const int64_t x = int64_t(at[d]) + i[d];
      if (x < 0 || x >= int64_t(map.extents[d])) element = nullptr;
      if (element) element += x * int64_t(map.strides[d]);
    }
    const uint32_t to = begin + place;
    f(shared_at(swizzles ? swizzled(to, 16u << map.swizzle) : to), element);
    place += map.element_bytes;
    uint32_t d = 0;
    while (d < map.rank && ++i[d] == map.box[d]) i[d++] = 0;
    if (d == map.rank) return;
  }
}
// A box that begins elsewhere is an illegal instruction: here, it moves NaN.
static inline bool is_legal(const TensorMap& map, const int* at) {
  return at[0] * int(map.element_bytes) % 16 == 0;
}
static inline uint32_t box_bytes(const TensorMap& map) {
  uint32_t result = map.element_bytes;
  for (uint32_t d = 0; d < map.rank; ++d) result *= map.box[d];
  return result;
}
struct BoxLoad {
  void* to;
  const TensorMap* map;
  uint32_t barrier;
  int at[5];

  void happen() const {
    each_in_box(shared_address(to), *map, at, [&](unsigned char* own, const char* element) {
      if (element && is_legal(*map, at))
        memcpy(own, element, map->element_bytes);
      else
        memset(own, element ? 0xff : 0, map->element_bytes);
    });
    barrier_complete(barrier, box_bytes(*map));
  }
};
constexpr int most_loads = 1024;
static BoxLoad loads[most_loads];
static int first_load, loads_begun;
static bool go_on() {
  if (first_load == loads_begun) return false;
  loads[first_load++ % most_loads].happen();
  return true;
}
static const bool goes_on = (tegula_go_on = go_on, true);
template <class... At>
TG_DEVICE void load_box(void* to, const TensorMap* map, uint32_t barrier, At... coordinates) {
  static uint32_t lot = 1;
  const BoxLoad load{to, map, barrier, {coordinates...}};
  lot = lot * 1664525 + 1013904223;
  if (lot >> 31 || loads_begun - first_load == most_loads) return load.happen();
  loads[loads_begun++ % most_loads] = load;
}
template <class... At>
TG_DEVICE void store_box(const TensorMap* map, const void* from, At... coordinates) {
  const int at[] = {coordinates...};
  each_in_box(shared_address(from), *map, at, [&](const unsigned char* own, char* element) {
    if (element && is_legal(*map, at))
      memcpy(element, own, map->element_bytes);
    else if (element)
      memset(element, 0xff, map->element_bytes);
  });
}
// The box holds f32.
template <class... At>
TG_DEVICE void add_box(const TensorMap* map, const void* from, At... coordinates) {
  const int at[] = {coordinates...};
  each_in_box(shared_address(from), *map, at, [&](const unsigned char* own, char* element) {
    if (element) *(float*)element += is_legal(*map, at) ? *(const float*)own : __builtin_nanf("");
  });
}
template <int pending>
TG_DEVICE void stores_read() {}
template <int pending>
TG_DEVICE void stores_done() {}

// ---- four matrices of 8 x 8 elements of 16 bits, one row a thread, to shared memory; or their transposed
struct StoredMatrix {
  uint32_t row;
  const uint32_t* x;
};
TG_DEVICE void store_matrices(uint32_t row, const uint32_t* x) {
  StoredMatrix own{row, x};
  tegula_threads->together(
      [](void** lanes) {
        for (int i = 0; i < 32; ++i) {
          for (int matrix = 0; matrix < 4; ++matrix) {
            const auto* to = static_cast<const StoredMatrix*>(lanes[8 * matrix + i / 4]);
            memcpy(shared_at(to->row) + i % 4 * 4, &static_cast<const StoredMatrix*>(lanes[i])->x[matrix], 4);
          }
        }
      },
      &own);
}
template <int matrices>
TG_DEVICE void store_some_turned_matrices(uint32_t row, const uint32_t* x) {
  StoredMatrix own{row, x};
  tegula_threads->together(
      [](void** lanes) {
        for (int i = 0; i < 32; ++i) {
          for (int element = 0; element < 2 * matrices; ++element) {
            const int matrix = element / 2, column = i % 4 * 2 + element % 2;
            const auto* to = static_cast<const StoredMatrix*>(lanes[8 * matrix + column]);
            const auto* word =
                reinterpret_cast<const char*>(static_cast<const StoredMatrix*>(lanes[i])->x + matrix);
            memcpy(shared_at(to->row) + i / 4 * 2, word + element % 2 * 2, 2);
          }
        }
      },
      &own);
}
TG_DEVICE void store_turned_matrices(uint32_t row, const uint32_t* x) { store_some_turned_matrices<4>(row, x); }
TG_DEVICE void store_two_turned_matrices(uint32_t row, const uint32_t* x) { store_some_turned_matrices<2>(row, x); }

// ---- counters of turns in global memory
TG_DEVICE int turns_of(const int* word) { return *word; }
TG_DEVICE void pass_on(int* word, int turns) { *word = turns; }

// ---- past the caches, and other grids
TG_DEVICE void store_passing(uint4* to, const uint4& words) { *to = words; }
template <int count, class T>
TG_DEVICE void add_words(T* to, const uint32_t* w) {
  Pack<T, int(count * 4 / sizeof(T))> own;
  for (int i = 0; i < count; ++i) own.word[i] = w[i];
  for (int i = 0; i < int(count * 4 / sizeof(T)); ++i) atomic_update<Add>(to + i, value(own.get(i)));
}
TG_DEVICE void let_next_grid_begin() {}
TG_DEVICE void wait_for_last_grid() {}
TG_DEVICE void end_behind_last_grid() {}

}  // namespace tg
