// Divides a block into warps that load shared tiles and warps that compute with them.
//
// A tile of a pipelined loop that one statement fills becomes a ring of slots. The producer runs the slice of
// the program that these statements need, as far ahead as there are slots; the consumers run the remainder.
#pragma once
#include <optional>
#include <unordered_map>

#include "ir/kernel.hpp"
#include "passes/cuda/dealt_steps.hpp"
#include "passes/cuda/plan_copies.hpp"
#include "passes/cuda/plan_gemms.hpp"
#include "passes/cuda/plan_widening.hpp"
#include "passes/cuda/store_forms.hpp"
#include "passes/note.hpp"

namespace tegula::passes {

// Tiles that are declared in one body and filled and released together.
struct RingPlan {
  std::vector<ir::BufferPtr> tiles;
  // Tiles of other loops, before or after this one, that take the place of `tiles` in the slots, one by one.
  std::vector<std::vector<ir::BufferPtr>> in_place = {};
  int depth = 1;
  bool in_loop = false;  // else a block fills it once
  int asked = 0;         // stages, by the loop at this place; 0: the compiler chooses
  Loc loop_at = {};
  bool by_rows = false;  // the producer's threads copy pieces of rows, each arrives when its own are there
  // The producer itself reads what comes later than the statement that brings it: one tile.
  bool is_awaited = false;
  bool by_one_group = false;  // one warp group lets a slot go, though others may have read it
  // The consumers fill it, once a block, and the producer awaits it to know what to load next.
  bool told = false;
  bool relayed = false;        // the consumers fill it, and read the slot of the step before: relay_tiles.hpp
  bool to_transpose = false;   // only the warps that transpose its tiles, or widen them, read them
  bool by_transposer = false;  // these warps bring its elements, each those that it begins to copy

  // The tiles with which this one of the ring is filled and released.
  const std::vector<ir::BufferPtr>& with(const ir::Buffer* tile) const;
  // All tiles that lie in that part of a slot.
  std::vector<ir::BufferPtr> at(std::size_t number) const;
};

inline constexpr int producer_threads = 128, one_warp = 32;
inline constexpr int widening_threads = 256, converting_threads = 256;

// Of a tile that comes as its tensor has it, to the tile that the consumers use.
struct Transposition {
  ir::BufferPtr from, to;
  std::vector<WidenedRows> widened = {};  // where elements become wider ones instead
  std::int64_t columns = 0;               // that are to be widened: those behind them are zeros in every step
};

struct Roles {
  int consumers = 0, producers = producer_threads;  // threads
  int blocks_per_processor = 1;
  std::vector<RingPlan> rings;
  // The statements that fill tiles of rings, and the tiles.
  std::unordered_map<const ir::StmtNode*, ir::BufferPtr> fills;
  std::unordered_map<const ir::StmtNode*, TensorCopy> copies;  // of those that the copy engine can do
  bool dynamic_tiles = false;           // blocks cost unevenly: who is done takes the next one
  std::int64_t store_bytes = 0;         // of a warp group's buffers, by way of which fragments are stored
  bool crowded = false;                 // a loop has fewer slots than the program asks for
  bool one_loader = false;              // the producer is one thread: the copy engine brings everything
  std::int64_t spare_bytes = 0;         // of shared memory
  std::int64_t fragment_registers = 0;  // of a consumer, for all that the program declares
  std::int64_t widest_product = 0;      // registers for all sums of one product by wgmma
  int pair_index = -1;                  // of the grid: two neighbours along it are a cluster and share loads
  ir::Body producer, consumer;
  // What the producer's warps but the first do where tiles are to be transposed, and the copies by which they
  // do it; empty: nothing. See transpose_loads.hpp.
  ir::Body transposer;
  std::unordered_map<const ir::StmtNode*, Transposition> transpositions;
  // Tiles of the step before, and those of relayed rings that they are.
  std::unordered_map<const ir::Buffer*, ir::BufferPtr> before;
  std::optional<DealtSteps> dealt;  // of the consumers: see deal_steps.hpp
  // Branches and loops of the producer that bring what one loop asked for; see order_loads.hpp.
  std::unordered_map<const ir::StmtNode*, ir::For> ordered;
  std::vector<Note> notes;  // what the block does more slowly than its program asks for

  bool stores() const { return store_bytes > 0; }
  // The consumers that run a statement together.
  int together() const { return dealt ? threads_of_group : consumers; }
  int cluster() const { return pair_index >= 0 ? 2 : 1; }
  // One thread of the producer begins loads, and its other warps have nothing to do.
  bool only_loads() const { return one_loader && transposer.empty(); }
  // The producer's threads that load: all, or those beside the warps that transpose.
  int loaders() const {
    if (transposer.empty()) return producers;
    return producers > one_warp + widening_threads ? producer_threads : one_warp;
  }
  int transposing_warps() const { return (producers - loaders()) / 32; }
  // Whether what its threads bring are vectors, of which each thread has one element.
  bool brings_elements() const;
  // Whether threads look up rows that other warps widen.
  bool looks_bytes_up() const;
  // Whether threads hold pieces of rows that begin anywhere.
  bool holds_pieces() const;
  // That bring pieces of rows.
  int copying_warps(const RingPlan& ring) const {
    return ring.by_transposer ? transposing_warps() : loaders() / 32;
  }

  // -1: the tile is in no ring.
  int ring_of(const ir::Buffer* tile) const;
  // Of tiles that the consumers fill for the producer. Rings behind those of the roles are not.
  bool is_told(int ring) const;
  bool is_relayed(int ring) const;
  bool is_transposed(const ir::Buffer* tile) const;
  // Whether some of its tiles are transposed, and whether some are not.
  bool has_transposed(const RingPlan& ring) const;
  bool has_loaded(const RingPlan& ring) const;
  // Some of its bytes, at least in some blocks: the copy engine cannot, or cannot where a tile is cut.
  bool is_brought_by_threads(const RingPlan& ring) const;
};

bool is_among(const std::vector<ir::BufferPtr>& tiles, const ir::Buffer* tile);

// The alignment of a slot for the tile: a swizzle pattern starts at multiples of 1024 bytes, a vector loaded
// by the copy engine at multiples of 128.
std::int64_t slot_alignment(const ir::Buffer& tile);
std::int64_t slot_bytes(const ir::Buffer& tile);
// Of all tiles of the ring.
std::int64_t slot_bytes(const RingPlan& ring);

// Nothing where a block does better, or can only be right, with all threads doing the same: without a product
// by wgmma in a pipelined loop and without `.persistent`, or where what is to be loaded depends on what is
// computed, be it under another name. The reason is empty where no roles could be expected. Depths of rings,
// ways of stores and pairs are decided later; `forms` are those of stores.
Planned<Roles> specialize_roles(const ir::Kernel& kernel, const ir::Grid& grid, const CudaTarget& target,
                                StoreForms& forms);

}  // namespace tegula::passes
