#include "passes/cuda/read_fences.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "passes/cuda/rows_ahead.hpp"

namespace tegula::passes {

using schedule::Event;
using schedule::Events;

namespace {

class ReadFences {
 public:
  ReadFences(const schedule::Schedule& schedule, const std::function<bool(int)>& is_filled_by_engine)
      : schedule_(schedule), is_filled_by_engine_(is_filled_by_engine) {}

  void walk(Events& events) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      ++now_;
      if (auto* loop = std::get_if<schedule::Loop>(&events[i].what)) {
        optional(loop->body);
        optional(loop->body);  // what a step has read is open when the next one begins
      } else if (auto* guard = std::get_if<schedule::Guard>(&events[i].what)) {
        optional(guard->body);
      } else if (const auto* work = std::get_if<schedule::Operation>(&events[i].what)) {
        operate(*work, events[i].stmt);
        if (events[i].stmt) read_by_[events[i].stmt.get()] = now_;
      } else if (const auto* gemm = std::get_if<schedule::Gemm>(&events[i].what)) {
        multiply(*gemm);
        // What threads read for the product itself was there when it began.
        if (const auto read = read_by_.find(events[i].stmt.get()); read != read_by_.end())
          settle(read->second);
      } else if (const auto* fence = std::get_if<schedule::ProxyFence>(&events[i].what)) {
        if (!fence->global) settle(now_);
      } else if (auto* arrive = std::get_if<schedule::Arrive>(&events[i].what)) {
        if (!is_open(*arrive) || await_values(*arrive, events[i].stmt)) continue;
        const bool met = i > 0 && std::holds_alternative<schedule::WarpSync>(events[i - 1].what);
        events.insert(events.begin() + static_cast<std::ptrdiff_t>(met ? i - 1 : i),
                      Event{schedule::ProxyFence{}});
        ++i;
        settle(now_);
      }
    }
  }

 private:
  // A body that may be left out: what is open before it stays open.
  void optional(Events& body) {
    const std::map<int, int> before = open_;
    walk(body);
    open_.insert(before.begin(), before.end());
  }

  bool is_in(int buffer, schedule::Space space) const {
    return schedule_.buffers[static_cast<std::size_t>(buffer)].space == space;
  }

  void operate(const schedule::Operation& x, const ir::Stmt& stmt) {
    const bool keeps = stmt && !kept_rows(stmt).empty();
    int value = 0;  // when the last load began that its values come from
    for (const schedule::Access& a : x.accesses) {
      if (a.touch == schedule::Touch::write) continue;
      if (is_in(a.buffer, schedule::Space::shared)) {
        const auto last = open_.find(a.buffer);
        const bool alone = last == open_.end() || last->second == now_;
        kept_[a.buffer] = keeps && alone ? stmt : nullptr;
        open_[a.buffer] = value = now_;
      }
      if (is_in(a.buffer, schedule::Space::registers)) value = std::max(value, made_[a.buffer]);
    }
    for (const schedule::Access& a : x.accesses) {
      if (a.touch == schedule::Touch::read) continue;
      if (keeps) registers_[stmt.get()].insert(a.buffer);
      if (is_in(a.buffer, schedule::Space::registers)) made_[a.buffer] = value;
      if (is_in(a.buffer, schedule::Space::shared)) settle(value);
    }
  }

  void multiply(const schedule::Gemm& x) {
    if (x.last < 16) return;
    for (const schedule::Access& a : x.accesses)
      if (a.touch == schedule::Touch::read && is_in(a.buffer, schedule::Space::registers))
        settle(made_[a.buffer]);
  }

  // Whether one statement alone has read the slot, and all that it read is in registers: the arrival is made
  // dependent on them.
  bool await_values(schedule::Arrive& x, ir::Stmt& by) {
    ir::Stmt reader;
    int last = 0;
    for (const int b : schedule_.rings[static_cast<std::size_t>(x.place.ring)].buffers) {
      if (!open_.contains(b)) continue;
      if (kept_[b] == nullptr || (reader && reader != kept_[b])) return false;
      reader = kept_[b];
      last = std::max(last, open_[b]);
    }
    const std::set<int>& own = registers_[reader.get()];
    if (std::any_of(own.begin(), own.end(), [&](int b) { return made_[b] != last; })) return false;
    x.behind.assign(own.begin(), own.end());
    by = reader;
    settle(last);
    return true;
  }

  void settle(int time) {
    std::erase_if(open_, [&](const auto& read) { return read.second <= time; });
  }

  bool is_open(const schedule::Arrive& x) const {
    if (x.side != schedule::Side::empty || !is_filled_by_engine_(x.place.ring)) return false;
    const auto& buffers = schedule_.rings[static_cast<std::size_t>(x.place.ring)].buffers;
    return std::any_of(buffers.begin(), buffers.end(), [&](int b) { return open_.contains(b); });
  }

  const schedule::Schedule& schedule_;
  const std::function<bool(int)>& is_filled_by_engine_;
  int now_ = 0;
  std::map<const ir::StmtNode*, int> read_by_;  // statements, when last
  std::map<int, ir::Stmt> kept_;  // buffers that only this statement has read, which keeps all in registers
  std::map<const ir::StmtNode*, std::set<int>> registers_;  // that such a statement writes
  std::map<int, int> open_;                                 // buffers that were read, and when last
  std::map<int, int> made_;  // of registers: when the last load began that their values come from
};

}  // namespace

void fence_reads(Events& events, const schedule::Schedule& schedule,
                 const std::function<bool(int)>& is_filled_by_engine) {
  ReadFences(schedule, is_filled_by_engine).walk(events);
}

}  // namespace tegula::passes
