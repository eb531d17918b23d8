// The copy engine: boxes of tensors to shared memory and back, and sums that are added in turn.
#pragma once
#include "rings.cuh"

namespace tg {

// `rows` rows of a tensor from row `b` on, a multiple of `rows`, of `bytes` each in shared memory, of which
// those from `end` on may hold anything: they count as delivered. `rest` has the rows of the last tile.
template <int rows, int bytes, class... Rest>
TG_DEVICE void load_rows_inside(int end, const TensorMap* rest, void* to, const TensorMap* map,
                                uint32_t barrier, int a, int b, Rest... at) {
  const int inside = end - b;
  if (inside <= 0) return barrier_complete(barrier, rows * bytes);
  load_box(to, inside < rows ? rest : map, barrier, a, b, at...);
  if (inside < rows) barrier_complete(barrier, (rows - inside) * bytes);
}

// 64 columns of 16 rows that a warp holds, as pairs of elements or to be converted to such; `exchange` is the
// number of the row among eight.
template <class T>
TG_DEVICE void stage_words(T* row, const uint32_t* x, int exchange) {
  const uint32_t at = shared_address(row);
#pragma unroll
  for (int i = 0; i < 4; ++i, x += 4)
    store_matrices(at + ((i * 32 + threadIdx.x % 32 / 16 * 16) ^ (exchange * 16)), x);
}
template <class T>
TG_DEVICE void stage_words(T* row, const float* x, int exchange) {
  uint32_t words[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) words[i] = pair<T>(x[2 * i], x[2 * i + 1]);
  stage_words(row, words, exchange);
}
template <class T>
TG_DEVICE void stage_words_of(T* to, const float* x) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  stage_words(to + (16 * warp + lane % 16) * 64, x, lane % 8);
}
// A row of f32 is twice as long. Threads of odd rows begin two pieces further, so that sixteen of them meet
// all banks.
TG_DEVICE void stage_words_of(float* to, const float* x) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row = lane / 4, turn = row % 2 * 2;
  float* const at = to + (16 * warp + row) * 32 + lane % 2 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float* const piece = at + ((2 * (i ^ turn) + lane % 4 / 2) ^ row) * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float *own = x + 4 * i + 2 * half, *other = x + 4 * (i ^ 2) + 2 * half;
      *(float2*)(piece + half * 8 * 32) =
          turn ? make_float2(other[0], other[1]) : make_float2(own[0], own[1]);
    }
  }
}
// What a warp group holds of 64 rows and `columns` columns becomes as many rows of 64 columns.
template <int columns, class T>
TG_DEVICE void stage_columns(T* to, const uint32_t* x, int thread) {
  const int lane = thread % 32, row = lane % 8, piece = thread / 32 % 4 * 2 + lane / 8 % 2;
  const uint32_t at = shared_address(to + (lane / 16 * 8 + row) * 64 + (piece ^ row) * 8);
#pragma unroll
  for (int i = 0; i < columns / 16; ++i) store_turned_matrices(at + i * 16 * 128, x + 4 * i);
  if constexpr (columns % 16 != 0) store_two_turned_matrices(at + columns / 16 * 16 * 128, x + columns / 16 * 4);
}
template <int columns, class T>
TG_DEVICE void stage_columns(T* to, const float* x, int thread) {
  uint32_t words[columns / 4];
#pragma unroll
  for (int i = 0; i < columns / 4; ++i) words[i] = pair<T>(x[2 * i], x[2 * i + 1]);
  stage_columns<columns>(to, words, thread);
}
// The same with parts of warps one after the other: as many rows of 16 columns, swizzled.
template <int columns, class T>
TG_DEVICE void stage_columns_of_warp(T* to, const float* x, int thread) {
  const int lane = thread % 32, row = lane % 8, piece = lane / 8 % 2;
  T* const own = to + thread / 32 % 4 * columns * 16;
  const uint32_t at = shared_address(own + (lane / 16 * 8 + row) * 16 + (piece ^ row / 4) * 8);
#pragma unroll
  for (int i = 0; i < columns / 16; ++i, x += 8) {
    const uint32_t words[4] = {pair<T>(x[0], x[1]), pair<T>(x[2], x[3]), pair<T>(x[4], x[5]),
                               pair<T>(x[6], x[7])};
    store_turned_matrices(at + i * 16 * 32, words);
  }
}
// And back: as many rows of 64 columns become what a warp group holds of 64 rows.
template <int columns, class T>
TG_DEVICE void take_columns(float* x, const T* from, int thread) {
  const int lane = thread % 32, row = lane % 8, piece = thread / 32 % 4 * 2 + lane / 8 % 2;
  const T* const at = from + (lane / 16 * 8 + row) * 64 + (piece ^ row) * 8;
#pragma unroll
  for (int i = 0; i < columns / 16; ++i) {
    uint32_t words[4];
    load_matrices_transposed(words, at + i * 16 * 64);
#pragma unroll
    for (int r = 0; r < 8; ++r) x[8 * i + r] = element<T>(words[r / 2], r % 2);
  }
}
// The same in f32: two boxes of 32 columns, one after the other. The threads of a warp meet all banks.
template <int columns>
TG_DEVICE void stage_columns_of(float* to, const float* x) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row = lane % 4 * 2,
            piece = (warp % 2 * 4 + lane / 16) ^ row,
            first = (warp / 2 * columns + row) * 32 + piece * 4 + lane / 4 % 4;
#pragma unroll
  for (int r = 0; r < columns / 2; ++r)
    to[(first ^ (r % 2 * 4 + r / 2 % 2 * 8)) + (r / 4 * 8 + r % 2) * 32] = x[r];
}
// A tile [rows, columns] of bytes to one [columns, rows], both swizzled in blocks of so many columns. A warp
// takes 16 columns at once, and of 32 rows four matrices of pairs. Words of four bytes along the target's
// rows come from two matrices, whose rows and columns are dealt so that neither loads nor stores meet in a
// bank: of the four rows of a word, one matrix has the first two in one half of its lanes, and the last two
// in the other; of two columns, one has the even one in the first half of its rows.
template <int rows, int columns, int from_block, int to_block, int threads, class T>
TG_DEVICE void transpose_bytes(T* to, const T* from, int thread) {
  constexpr int pieces = rows / 32;
  const uint32_t lane = thread % 32, row = lane % 8, matrix = lane / 8, other = (row / 4 ^ matrix) & 1;
  const uint32_t source = row / 2 * 4 + other * 2 + row % 2 + matrix / 2 * 16, target = row * 2 + other;
  const bool last_first = lane % 4 / 2, odd_first = lane / 16;
  const uint32_t even = last_first ? 0x2064 : 0x6420, odd = even ^ 0x1111;
  const uint32_t first = odd_first ? odd : even, second = odd_first ? even : odd;
#pragma unroll 1
  for (int column = thread / 32 * 16; column < columns; column += threads / 2) {
    const T* const own = from + swizzled<rows, from_block, 1>(source, column);
    const int at = swizzled<columns, to_block, 1>(column + target, matrix / 2 * 16);
    uint32_t pairs[pieces][4];
#pragma unroll
    for (int i = 0; i < pieces; ++i) load_matrices_transposed(pairs[i], own + i * 32 * from_block);
#pragma unroll
    for (int i = 0; i < pieces; ++i) {
      const uint32_t *p = pairs[i],
                     words[4] = {picked_bytes(p[0], p[1], first), picked_bytes(p[0], p[1], second),
                                 picked_bytes(p[2], p[3], first), picked_bytes(p[2], p[3], second)};
      constexpr int of_block = to_block * columns;
      store_matrices(shared_address(to + (at ^ i * 32 % to_block) + i * 32 / to_block * of_block), words);
    }
  }
}
// Tiles of 8-bit floats to tiles of 16-bit floats, both swizzled in blocks of so many columns. A warp takes
// 32 pieces of 16 elements at once, a unit: of eight threads, those that load or store at the same time meet
// in no bank where rows have a multiple of 64 columns.
template <int rows, int from_block, int to_block>
struct WidenedUnit {
  static constexpr int wide = from_block / 16, tall = 32 / wide;  // pieces of a row, and rows
  int row, source, target;

  TG_DEVICE_MEMBER explicit WidenedUnit(int lane) {
    const int column = (wide == 8 ? lane % 4 + ((lane / 4 ^ lane / 8) & 1) * 4 : lane % wide) * 16;
    row = wide == 8 ? lane / 16 * 2 + lane / 4 % 2 : lane / wide;
    source = swizzled<rows, from_block, 1>(row, column);
    target = swizzled<rows, to_block>(row, column % to_block) + column / to_block * rows * to_block;
  }
  // What the exchange of pieces in a row adds to places in a unit that begins at this row of the tile.
  static TG_DEVICE_MEMBER int source_exchange(int above) {
    return swizzled<rows, from_block, 1>(above, 0) - above * from_block;
  }
  static TG_DEVICE_MEMBER int target_exchange(int above) {
    return swizzled<rows, to_block>(above, 0) - above * to_block;
  }
};
template <class To, class From>
TG_DEVICE void store_widened(To* first, To* second, const Pack<From, 16>& pack) {
  Values<To, 16> values;
#pragma unroll
  for (int e = 0; e < 16; ++e) values.set(e, value_of(pack, e));
  store_part(first, values, 0);
  store_part(second, values, 8);
}
// Rows from `first` to `end`; those outside of `low` and `high` are zeros.
template <int rows, int columns, int from_block, int to_block, int threads, class To, class From>
TG_DEVICE void widen_rows(To* to, const From* from, int thread, int first, int end, int low, int high) {
  using Unit = WidenedUnit<rows, from_block, to_block>;
  constexpr int across = columns / from_block;
  const Unit own(thread % 32);
  const int units = (end + Unit::tall - 1) / Unit::tall * across;
#pragma unroll 1
  for (int unit = first / Unit::tall * across + thread / 32; unit < units; unit += threads / 32) {
    const int above = unit / across * Unit::tall, row = above + own.row,
              block = unit % across * rows * from_block;
    if (row < first || row >= end) continue;
    Pack<From, 16> pack{};
    if (row >= low && row < high)
      pack = load_pack<16>(from + (own.source ^ Unit::source_exchange(above)) + above * from_block + block);
    To* const target = to + above * to_block + block;
    const int place = own.target ^ Unit::target_exchange(above);
    store_widened(target + place, target + (place ^ 8), pack);
  }
}
// All rows. Each warp has as many units below each other, whose places differ by constants; it loads several
// before it stores the first, because no load overtakes a store.
template <int rows, int columns, int from_block, int to_block, int threads, class To, class From>
TG_DEVICE void widen_bytes(To* to, const From* from, int thread) {
  using Unit = WidenedUnit<rows, from_block, to_block>;
  constexpr int tall = Unit::tall, each = rows / tall / (threads / 32), done = each * (threads / 32) * tall,
                batch = 5;
  const Unit own(thread % 32);
  const int begin = thread / 32 * each * tall;
  const From* source[2];
  To* target[4];
#pragma unroll
  for (int phase = 0; phase < 2; ++phase) {
    const int place = own.target ^ Unit::target_exchange(begin + phase * tall);
    source[phase] = from + (own.source ^ Unit::source_exchange(begin + phase * tall)) + begin * from_block;
    target[2 * phase] = to + place + begin * to_block;
    target[2 * phase + 1] = to + (place ^ 8) + begin * to_block;
  }
#pragma unroll
  for (int block = 0; block < rows * columns; block += rows * from_block) {
#pragma unroll
    for (int first = 0; first < each; first += batch) {
      Pack<From, 16> pack[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i)
        if (first + i < each)
          pack[i] = load_pack<16>(source[(first + i) % 2] + (first + i) * tall * from_block + block);
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int more = (first + i) * tall * to_block + block, phase = (first + i) % 2 * 2;
        if (first + i < each) store_widened(target[phase] + more, target[phase + 1] + more, pack[i]);
      }
    }
  }
  if (done < rows)
    widen_rows<rows, columns, from_block, to_block, threads>(to, from, thread, done, rows, done, rows);
}
// All rows of the first `own` columns: eight threads take a piece of eight rows each, and meet in no bank.
template <int rows, int own, int from_block, int to_block, int threads, class To, class From>
TG_DEVICE void widen_columns(To* to, const From* from, int thread) {
  constexpr int pieces = own / 16, all = rows / 8 * pieces, at_once = threads / 8,
                each = (all + at_once - 1) / at_once;
  Pack<From, 16> pack[each];
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int piece = thread / 8 + i * at_once, row = piece / pieces * 8 + thread % 8,
              column = piece % pieces * 16;
    if ((i + 1) * at_once <= all || piece < all)
      pack[i] = load_pack<16>(from + swizzled<rows, from_block, 1>(row, column % from_block) +
                              column / from_block * rows * from_block);
  }
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int piece = thread / 8 + i * at_once, row = piece / pieces * 8 + thread % 8,
              column = piece % pieces * 16;
    if ((i + 1) * at_once > all && piece >= all) break;
    To* const block = to + column / to_block * rows * to_block;
    const int place = swizzled<rows, to_block>(row, column % to_block);
    store_widened(block + place, block + (place ^ 8), pack[i]);
  }
}
// The columns behind them, of a slot.
template <int rows, int own, int columns, int to_block, int threads, class To>
TG_DEVICE void clear_columns(To* to, int thread) {
  constexpr int vector = 16 / sizeof(To);
#pragma unroll 1
  for (int i = thread; i < rows * (columns - own) / vector; i += threads) {
    const int row = i % rows, column = own + i / rows * vector;
    *(int4*)(to + swizzled<rows, to_block>(row, column % to_block) + column / to_block * rows * to_block) =
        int4{0, 0, 0, 0};
  }
}
// Blocks of 64 rows and 128 bytes of columns of a wgmma's sum that this warp group holds go to buffers in the
// order of the copy engine, when all but the last `pending` stores have left theirs.
template <int pending>
TG_DEVICE void begin_staging() {
  if (threadIdx.x % 128 == 0) stores_read<pending>();
  warp_group_sync(threadIdx.x / 128);
}
TG_DEVICE void end_staging() {
  fence_async_shared();
  warp_group_sync(threadIdx.x / 128);
}
// The same for the rows of a warp.
template <int pending>
TG_DEVICE void begin_staging_of_warp() {
  if (threadIdx.x % 32 == 0) stores_read<pending>();
  warp_sync();
}
TG_DEVICE void end_staging_of_warp() {
  fence_async_shared();
  warp_sync();
}

// ---- sums that a warp group leaves, in its buffers, to a thread that waits for the turn and adds them
struct Handover {
  uint64_t full, empty;  // barriers
  int* word;             // that counts the turns, or null
  int turn;              // -1: nothing comes any more
  int at[5];             // where the first box goes
};
// As the warp group that hands over sees it: all its threads wait and give, and meet nowhere else.
struct Giver {
  Handover* handover;
  uint32_t phase = 1;

  __device__ __forceinline__ explicit Giver(void* p) : handover((Handover*)p) {}
  // Until the buffers are free.
  __device__ __forceinline__ void wait() const { barrier_wait(shared_address(&handover->empty), phase); }
  template <class... At>
  __device__ __forceinline__ void give(int* word, int turn, At... at) {
    if (threadIdx.x % 128 == 0) {
      const int list[] = {at...};
      handover->word = word, handover->turn = turn;
#pragma unroll
      for (int i = 0; i < int(sizeof...(at)); ++i) handover->at[i] = list[i];
    }
    fence_async_shared();
    warp_sync();
    if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&handover->full));
    phase ^= 1;
  }
  __device__ __forceinline__ void end() {
    wait();
    give(nullptr, -1, 0);
  }
};
TG_DEVICE void init_handover(void* p) {
  Handover* const handover = (Handover*)p;
  barrier_init(shared_address(&handover->full), 4);
  barrier_init(shared_address(&handover->empty), 1);
}
// By the thread that adds, in any order.
template <class Add>
TG_DEVICE void add_given(void* p, const Add& add) {
  Handover* const handover = (Handover*)p;
  for (uint32_t phase = 0;; phase ^= 1) {
    barrier_wait(shared_address(&handover->full), phase);
    if (handover->turn < 0) return;
    add(handover->at, 0);
    stores_read<0>();
    barrier_arrive(shared_address(&handover->empty));
  }
}
// By the thread that adds. `words` are all `count` words of the tensor.
// Without full fences, which take as long as a step. A word is as far away as the sums of a step, so that the
// next one, which is where the steps before lead, is looked at while the copy engine reads.
template <class Add>
TG_DEVICE void take_turns(void* p, const int* words, int64_t count, unsigned long long* status,
                          unsigned int number, const Add& add) {
  Handover* const handover = (Handover*)p;
  const int *last = nullptr, *ready = nullptr;
  int ready_for = 0;  // the next block may begin with the same word and have another turn
  for (uint32_t phase = 0;; phase ^= 1) {
    barrier_wait(shared_address(&handover->full), phase);
    const int turn = handover->turn;
    if (turn < 0) return;
    int* const word = handover->word;
    if (word != ready || turn != ready_for)
      for (int i = 1; word && turns_of(word) < turn && keeps_waiting(i, status, number); ++i) {}
    fence_async_global();
    add(handover->at, turn);
    const int64_t next = word - words + (word - last);
    const bool exists = word && last && next >= 0 && next < count;
    ready = exists && turns_of(words + next) >= turn ? words + next : nullptr;
    last = word;
    ready_for = turn;
    stores_read<0>();
    barrier_arrive(shared_address(&handover->empty));
    stores_done<0>();
    if (word) pass_on(word, turn + 1);
  }
}

}  // namespace tg
