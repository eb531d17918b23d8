// Tiles that a thread keeps from one block to the next: operands of products that blocks in turn share are
// copied once, and the copies of all steps of a loop lie side by side.
//
// The executor clears the records of a thread before its first block. What a tile holds is known by where it
// came from, so that no block has to know which one the thread has run before.
#pragma once
#include "pack.hpp"
#include "rows_ahead.hpp"

TEGULA_CPU_BEGIN

struct KeptTile {
  const void* from;
  Inside inside;
  bool is_filled;
};

struct KeptTiles {
  KeptTile* known;
  char* tiles;
  long count, bytes;
  bool again;  // The thread's next block reads the same.

  // Whether the thread has the tile of this step; if not, it is to be filled. Where nothing would read it
  // again, the block's own place is left.
  template <class T>
  TEGULA_CPU_MEMBER bool has(long step, const void* from, Inside inside, T*& tile) const {
    if (step < 0 || step >= count) return false;
    KeptTile& own = known[step];
    const bool same = own.is_filled && own.from == from && own.inside.k_begin == inside.k_begin &&
                      own.inside.k_end == inside.k_end && own.inside.n_begin == inside.n_begin &&
                      own.inside.n_end == inside.n_end;
    if (!same && !again) return false;
    if (!same) own = {from, inside, true};
    tile = (T*)(tiles + step * bytes);
    return same;
  }
  // Rows that the tile of this step is to be copied from; of one that the thread has, hardly any.
  TEGULA_CPU_MEMBER RowsAhead ahead(long step, RowsAhead rows) const {
    const bool known_there =
        step >= 0 && step < count && known[step].is_filled && known[step].from == rows.base;
    if (known_there) rows.rows = 1;
    return rows;
  }
};

TEGULA_CPU_END
