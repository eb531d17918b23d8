// A place in a ring of STAGES buffers, a number which is defined before; the phase of its barriers turns with
// the ring.
#pragma once
#include "sm90.cuh"

struct Ring {
  u32 slot, phase;
};
DEV void advance(Ring& r) {
  if (++r.slot == STAGES) {
    r.slot = 0;
    r.phase ^= 1;
  }
}
