// Runs one trial of a schedule: all warps, their asynchronous queues and the copy engine, in one order.
#pragma once
#include <map>
#include <optional>
#include <random>
#include <set>

#include "schedule/finding.hpp"
#include "schedule/knowledge.hpp"
#include "schedule/model.hpp"

namespace tegula::schedule {

enum class Guards : std::uint8_t { all, none, alternating };
enum class Order : std::uint8_t { round_robin, last_role_first, slow_warp, slow_group, random };

struct Trial {
  int tiles = 1;
  std::vector<std::vector<int>> values;  // [variable][tile]
  Guards guards = Guards::all;
  Order order = Order::round_robin;
  unsigned seed = 0;
};

// What happened to one range of a buffer.
struct Record {
  std::uint64_t parts;
  int component;
  Time time;
  Touch touch;
  bool async;
  int mapping;
  int warp;
  const Event* event;
};

class Machine {
 public:
  Machine(const Model& model, const Trial& trial);
  std::optional<Finding> run();

 private:
  struct Frame {
    int step, index, count;
    bool counted;
  };
  struct Queued {  // groups of one asynchronous queue
    Time committed = 0;
    bool open = false;  // work that is not committed yet
  };
  enum class Waits : std::uint8_t { no, arrived, released };
  struct Actor {
    int index;
    WarpId id;
    const std::vector<Step>* program;
    int step = 0;
    std::vector<Frame> frames;
    int tile = 0, pair = 0;
    std::vector<int> turns;  // of each buffer that it has passed in this tile
    std::vector<int> cursors;
    std::vector<int> asked;  // how often, by variable, of those that a step decides
    Time now = 0;
    Knowledge all, lane;     // common to all threads of the warp; of its first thread
    Time fenced = 0;         // own writes up to here
    std::vector<Time> made;  // of each buffer in registers: the last load from shared memory in its values
    Time arrived = 0;        // values of loads up to here
    // The last statement whose values threads have loaded, and when: a product takes what is loaded for it.
    std::pair<const void*, Time> loaded = {};
    Time gemm_fence = 0;
    Queued gemms, stores, copies;
    Time stores_done = 0;  // waited for, to be published by a fence
    int registers = 0;
    Waits waits = Waits::no;
    bool ended = false;
    Time end_time = 0;
  };
  struct MBarrier {
    int arrivals = 0;  // of a phase
    int phase = 0;     // completed ones
    int missing = 0;
    long bytes = 0;  // expected and not yet delivered
    Knowledge gathered, done;
    std::vector<std::pair<int, Time>> waiters;  // of the last completed phase
  };
  struct NamedBarrier {
    int round = 0;
    int arrived = 0;
    int threads = 0;
    Knowledge gathered;
    std::vector<int> members, waiting;
  };
  struct Transfer {
    int barrier, phase, bytes;
    Clock issued;
    const Event* event;
    int warp;
  };
  struct RemoteUse {
    int cta, component;
    Time time;
    const Event* event;
    int warp;
  };
  struct Turn {
    std::map<int, const Event*> waited;  // by tile
    std::set<int> passed;                // tiles
    Knowledge done;
  };

  // ---- control (machine.cpp)
  bool advance(Actor& a);  // one step; false: blocked
  bool enter_loop(Actor& a, const Step& step);
  bool again(Actor& a, const Step& step);
  bool guard_holds(const Actor& a, const Event& e) const;
  void leave(Actor& a, const Leave& what);
  void end(Actor& a);
  int value(const Count& count, Actor& a);
  int steps(const Loop& loop, Actor& a);
  int index_of(const Actor& a) const;
  int apart() const;
  int first_tile(const Actor& a) const;
  void begin_tile(Actor& a, int tile);
  bool takes_part(const Actor& a, const Event& event) const;
  bool pass(bool eager);
  void final_checks();

  // ---- who waits for whom (deadlock.cpp)
  [[noreturn]] void deadlock();
  std::string wait_of(const Actor& a) const;
  std::string cycle_of(const Actor& a) const;

  bool perform(Actor& a, const Event& e);
  bool on(Actor& a, const Event& e, const Operation& x);
  bool on(Actor& a, const Event& e, const Gemm& x);
  bool on(Actor& a, const Event& e, const GemmFence& x);
  bool on(Actor& a, const Event& e, const GemmCommit& x);
  bool on(Actor& a, const Event& e, const GemmWait& x);
  bool on(Actor& a, const Event& e, const WaitFull& x);
  bool on(Actor& a, const Event& e, const Acquire& x);
  bool on(Actor& a, const Event& e, const Arrive& x);
  void arrive_behind(Actor& a, const Arrive& x);
  bool on(Actor& a, const Event& e, const Expect& x);
  bool on(Actor& a, const Event& e, const Advance& x);
  bool on(Actor& a, const Event& e, const Load& x);
  bool on(Actor& a, const Event& e, const Complete& x);
  bool on(Actor& a, const Event& e, const Store& x);
  bool on(Actor& a, const Event& e, const StoreCommit& x);
  bool on(Actor& a, const Event& e, const StoreWait& x);
  bool on(Actor& a, const Event& e, const CopyAsync& x);
  bool on(Actor& a, const Event& e, const CopyCommit& x);
  bool on(Actor& a, const Event& e, const CopyWait& x);
  bool on(Actor& a, const Event& e, const CopyArrive& x);
  bool on(Actor& a, const Event& e, const ProxyFence& x);
  bool on(Actor& a, const Event& e, const WarpSync& x);
  bool on(Actor& a, const Event& e, const Barrier& x);
  void end_round(NamedBarrier& b);
  bool on(Actor& a, const Event& e, const ClusterBarrier& x);
  bool on(Actor& a, const Event& e, const InitBarriers& x);
  bool on(Actor& a, const Event& e, const InitFence& x);
  bool on(Actor& a, const Event& e, const SetRegisters& x);
  bool on(Actor& a, const Event& e, const NextTile& x);
  bool on(Actor& a, const Event& e, const SendTile& x);
  bool on(Actor& a, const Event& e, const ReceiveTile& x);
  bool on(Actor& a, const Event& e, const WaitTurn& x);
  bool on(Actor& a, const Event& e, const PassTurn& x);
  bool is_over(const Actor& a, int tile) const;
  template <class T>
  bool on(Actor&, const Event&, const T&) {
    throw InternalError("control is not an event");
  }

  // ---- knowledge and memory (machine_memory.cpp)
  Knowledge& of(Actor& a, const Event& e) { return e.who == Who::all ? a.all : a.lane; }
  void learn(Actor& a, const Event& e, const Knowledge& what);
  void learn(Actor& a, const Event& e, int component, Time time);
  void converge(Actor& a);  // threads of the warp have met: reads are over
  void collect(Actor& a);   // and their writes are visible to each other
  Knowledge& published(const Actor& a, const Event& e);
  int slot_of(const Actor& a, const Slot& slot, int slots) const;
  int instance_of(const Actor& a, const Instance& instance, int instances) const;
  std::uint64_t parts_of(const Actor& a, const Access& access) const;
  // What an access that was told which words means.
  Access resolved(const Actor& a, Access access) const;
  int cell_of(const Actor& a, const Access& access, int cta) const;
  void touch(Actor& a, const Event& e, const Access& access, int cta, const Record& made);
  void take(Actor& a, const Operation& x);
  void check_read(const Actor& a, const Event& e, const Access& access);
  void touch_by_threads(Actor& a, const Event& e, const Access& access);
  void touch_in_queue(Actor& a, const Event& e, const Access& access, Queue queue, Time time, bool async);
  void compare(const Actor& a, const Event& e, const Access& access, const Record& old, const Record& made);
  std::string place_name(const Actor& a, const Access& access) const;

  // ---- barriers (machine_sync.cpp)
  int use_of(const Actor& a, const Place& place) const { return a.cursors[place.ring] + place.shift; }
  int barrier_of(const Actor& a, Side side, const Place& place, int cta) const;
  bool wait(Actor& a, const Event& e, Side side, const Place& place);
  void arrive(const Actor& a, const Event& e, int barrier, int phase, int count, const Knowledge& knowledge);
  void complete(int barrier);
  void check_ready(const Actor& a, const Event& e, const Knowledge& knowledge, int cta);
  void deliver(const Transfer& transfer);
  std::string barrier_name(int barrier) const;
  void release_cluster();

  [[noreturn]] void fail(Rule rule, const Actor& a, const Event& e, const std::string& what) const;
  std::string who_is(int warp) const;

  const Model& model_;
  const Schedule& schedule_;
  const Trial& trial_;
  std::vector<Actor> actors_;
  std::vector<std::vector<Record>> memory_;
  std::vector<MBarrier> barriers_;
  std::vector<NamedBarrier> named_;  // cta * 16 + id
  NamedBarrier cluster_;
  Knowledge published_;
  std::vector<Transfer> transfers_;
  std::vector<RemoteUse> remote_;
  std::vector<Turn> turns_;
  struct Message {
    int tile = -2, pair = 0;
  };
  std::vector<Message> mailbox_;  // per cell
  struct Init {
    Time time = 0, fenced = 0;
    int component = 0;
  };
  std::vector<Init> init_;           // per CTA
  std::vector<int> registers_free_;  // per CTA
  int next_tile_ = 0;
  std::vector<int> owners_;  // CTAs, of each tile; -1: nobody's yet
  long steps_ = 0;
  std::mt19937 random_;
};

}  // namespace tegula::schedule
