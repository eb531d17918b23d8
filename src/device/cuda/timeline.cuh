// Stamps of the clock, where a kernel is asked for a timeline: each group of 128 threads has a row of words
// for each of the first blocks. The first word is the device's time, with what tells texts apart in the upper
// 16 bits, the second the clock; further ones hold the number of an event in their upper 16 bits and the
// clock in the others.
#pragma once
#include "instructions.cuh"

namespace tg {

struct Timeline {
  int64_t *next = nullptr, *end = nullptr;

  TG_DEVICE_MEMBER Timeline(int64_t* all, int blocks, int rows, int words, int64_t key) {
    if (int(blockIdx.x) >= blocks || threadIdx.x % 128 != 0) return;
    next = all + (int(blockIdx.x) * rows + int(threadIdx.x / 128)) * int64_t(words);
    end = next + words;
    *next++ = key << 48 | (device_nanoseconds() & ((int64_t(1) << 48) - 1));
    *next++ = device_clock();
  }
  TG_DEVICE_MEMBER void stamp(int event) {
    if (next < end) *next++ = int64_t(event) << 48 | (device_clock() & ((int64_t(1) << 48) - 1));
  }
};

}  // namespace tg
