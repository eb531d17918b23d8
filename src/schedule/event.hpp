// The events of a schedule. Each is one instruction, or one tile operation, of the printed text.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "tegula/error.hpp"

namespace tegula::ir {
struct StmtNode;
}

namespace tegula::schedule {

struct Event;
using Events = std::vector<Event>;

// Sum of products of variables; a trip count.
struct Count {
  struct Term {
    int factor;
    std::vector<int> variables;
  };
  int constant = 0;
  std::vector<Term> terms = {};
};

// Which copy of something that exists once per group: the executing group's, or one of them.
struct Instance {
  enum class Kind : std::uint8_t { own, fixed };
  Kind kind = Kind::fixed;
  int value = 0;
};

// Which slot: a fixed one, the role's cursor of a ring (`value`) plus `shift`, or as many as turns of a
// buffer
// (`value`) the role has passed in its tile; modulo the number of slots.
struct Slot {
  enum class Kind : std::uint8_t { fixed, cursor, turn };
  Kind kind = Kind::fixed;
  int value = 0;
  int shift = 0;
};

// Parts of a slot: `mask`, moved up by the group's, the warp's and the CTA's number times a stride.
struct Parts {
  std::uint64_t mask = ~std::uint64_t{0};
  int per_group = 0;
  int per_warp = 0;
  int per_cta = 0;
};

enum class Touch : std::uint8_t {
  read,
  write,
  update,  // read and written
  add,     // in any order with other additions
};

struct Access {
  int buffer = 0;
  Touch touch = Touch::read;
  Slot slot = {};
  Instance instance = {};
  Parts parts = {};
  int mapping = 0;    // accesses of equal mappings (not 0) touch, thread by thread, the same elements
  bool told = false;  // of the pair of words and sums that came with the tile: `buffer` is of the first pair
};

// The full and the empty barrier of one use of a ring.
struct Place {
  int ring = 0;
  int shift = 0;
  Instance instance = {};
};

// Ordinary instructions of the executing threads.
struct Operation {
  std::vector<Access> accesses = {};
  int first = 0, last = 16;  // which sixteenths of its elements
  bool holds = false;        // what follows may not run before it
};

// ---- warpgroup gemms. Reads end, and results exist, at the wait that covers the commit.
struct Gemm {
  std::vector<Access> accesses = {};  // operands read; the accumulator written or updated
  int only = -1;                      // the one of its accumulators; −1: all
  int first = 0, last = 16;           // which sixteenths of the products that each element sums
};
struct GemmFence {
  bool pins = false;  // the registers of the sum that follows are those of the product before it is passed
};
struct GemmCommit {};
struct GemmWait {
  int pending = 0;  // groups that may stay in flight
};

// ---- rings
struct WaitFull {
  Place place = {};
};
struct Acquire {
  Place place = {};
};
enum class Side : std::uint8_t { full, empty };
struct Arrive {
  Side side = Side::full;
  Place place = {};
  bool whole_cluster = false;    // at the same barrier of every CTA
  std::vector<int> behind = {};  // buffers in registers, whose values have arrived before it
};
struct Expect {  // one arrival, and bytes to come
  Place place = {};
  int bytes = 0;
};
struct Advance {
  int ring = 0;
  bool back = false;
};

// ---- copy engine
struct Load {
  Place place = {};  // completes on its full barrier
  Access to = {};
  int bytes = 0;
  bool multicast = false;  // to every CTA of the cluster, completing on each one's barrier
};
struct Complete {  // bytes to come that threads wrote instead: they have met, and an arrival follows
  Place place = {};
  int bytes = 0;
};
struct Store {
  Access from = {};
  std::optional<Access> to = {};  // in global memory, where other blocks touch it too
};
struct StoreCommit {};
struct StoreWait {
  int pending = 0;
  bool reads_only = true;  // shared memory may be reused; else: written
};

// ---- copies by threads, asynchronous
struct CopyAsync {
  Access to = {};
  std::vector<Access> accesses = {};  // that say what is copied
};
struct CopyCommit {};
struct CopyWait {
  int pending = 0;
};
struct CopyArrive {  // every thread arrives on the full barrier when its copies so far are complete
  Place place = {};
};

// ---- fences and barriers among threads
struct ProxyFence {
  bool global = false;
};
struct WarpSync {};
struct Barrier {
  int id = 0;
  bool per_group = false;  // id + group
  int rotate = 0;          // id + (group + rotate) % groups
  int threads = 0;
  bool wait = true;  // else arrive only
};
struct ClusterBarrier {};
struct InitBarriers {};
struct InitFence {};
struct SetRegisters {
  int count = 0;
};

// ---- tiles of persistent kernels, turns between blocks
struct NextTile {};  // from a counter in global memory; ends the enclosing loop by `Leave` when none is left
struct SendTile {
  Access to = {};
  int pair = 0;  // of the words that count its turns and the sums that they count, which come with it
};
struct ReceiveTile {
  Access from = {};
};
// Turns are counted by a word: the n-th turns of all tiles belong together, in the order of the tiles.
struct WaitTurn {  // until every earlier tile has passed its turn, or is over
  Access of = {};
};
struct PassTurn {
  Access of = {};
};

// ---- control
// Which steps of a loop that deals them to two groups in turn the executing group has: of the first one, the
// first group alone; of those that follow for it, pairs of one of the other group and one of its own, and
// what is left over of them.
enum class Share : std::uint8_t { all, first, pairs, left_over };
struct Loop {
  enum class Kind : std::uint8_t { counted, tiles, forever };  // tiles: first, first + grid, …
  Kind kind = Kind::counted;
  Count count = {};  // with a share of pairs or of what is left over: of the steps behind the first one
  Events body;
  Share share = Share::all;
};
// chosen: the threads that `Event::who` says. engine: the copy engine can bring the tile of this step;
// threads: it cannot.
struct Guard {
  enum class Kind : std::uint8_t { data, not_first, not_last, last_group, chosen, engine, threads };
  Kind kind = Kind::data;
  Events body;
};
// The innermost loop: in the step that the variable says, or without one when no tile is left.
struct Leave {
  int variable = -1;
};

using Kinds =
    std::variant<Operation, Gemm, GemmFence, GemmCommit, GemmWait, WaitFull, Acquire, Arrive, Expect, Advance,
                 Load, Complete, Store, StoreCommit, StoreWait, CopyAsync, CopyCommit, CopyWait, CopyArrive,
                 ProxyFence, WarpSync, Barrier, ClusterBarrier, InitBarriers, InitFence, SetRegisters,
                 NextTile, SendTile, ReceiveTile, WaitTurn, PassTurn, Loop, Guard, Leave>;
template <class Kind, class Variant>
inline constexpr bool is_kind = false;
template <class Kind, class... All>
inline constexpr bool is_kind<Kind, std::variant<All...>> = (std::is_same_v<Kind, All> || ...);

// One of the kinds. It is made, copied and destroyed in the library: what a variant of so many takes is
// thousands of functions, which every source that makes events would compile again.
struct What : Kinds {
  template <class Kind>
  requires is_kind<Kind, Kinds> What(Kind kind);
  What();
  What(const What& other);
  What(What&& other) noexcept;
  What& operator=(const What& other);
  What& operator=(What&& other) noexcept;
  ~What();
};

enum class Who : std::uint8_t {
  all,
  each_warp,  // one thread of every warp
  leader,     // one thread of every group
  one,        // one thread of the role
};

struct Event {
  What what;
  Who who = Who::all;
  std::string name = {};                          // of an operation or a loop
  std::shared_ptr<const ir::StmtNode> stmt = {};  // that it comes from
  std::optional<Loc> at = {};                     // line of the user's program
  int warp = 0;                                   // of the role, to which its `one` thread belongs
};

}  // namespace tegula::schedule
