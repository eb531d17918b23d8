#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "schedule/schedule.hpp"
#include "schedule/words.hpp"

namespace tegula::schedule {
namespace {

class Printer {
 public:
  explicit Printer(const Schedule& schedule) : s_(schedule) {}
  std::string text;

  void line(const std::string& words) {
    text.append(2 * depth_, ' ');
    text += words;
    text += '\n';
  }

  void events(const Events& events) {
    ++depth_;
    for (const Event& e : events) {
      std::string words = event(e);
      if (words.empty()) continue;
      if (e.at) words += fmt::format("  // {}", short_location(*e.at));
      line(words);
      if (const auto* loop = std::get_if<Loop>(&e.what)) this->events(loop->body);
      if (const auto* guard = std::get_if<Guard>(&e.what)) this->events(guard->body);
    }
    --depth_;
  }

  std::string event(const Event& e) const {
    std::string words = std::visit([&](const auto& what) { return describe(e, what); }, e.what);
    if (words.empty()) return words;
    switch (e.who) {
      case Who::all:
        return words;
      case Who::each_warp:
        return words + " by one thread a warp";
      case Who::leader:
        return words + " by one thread a group";
      case Who::one:
        return words + (e.warp == 0 ? " by one thread" : fmt::format(" by one thread of warp {}", e.warp));
    }
    return words;
  }

 private:
  static std::string for_gemm(const char* words, const Event& e) {
    return e.name.empty() ? words : fmt::format("{} for {}", words, e.name);
  }
  static std::string shifted(const std::string& name, int shift) {
    return shift == 0 ? name : fmt::format("{}{:+}", name, shift);
  }
  static std::string instance(const Instance& i, int instances) {
    if (instances == 1) return "";
    switch (i.kind) {
      case Instance::Kind::own:
        return ".group";
      case Instance::Kind::fixed:
        return fmt::format(".{}", i.value);
    }
    return "";
  }
  std::string place(const Place& p) const {
    const Ring& ring = s_.rings[p.ring];
    const std::string name = ring.name + instance(p.instance, ring.instances);
    return ring.depth == 1 && p.shift == 0 ? name : fmt::format("{}[{}]", name, shifted("n", p.shift));
  }
  std::string touched(const Access& a) const {
    const Buffer& b = s_.buffers[a.buffer];
    const std::string name = b.name + instance(a.instance, b.instances);
    if (b.slots == 1 && b.space != Space::global) return name;
    switch (a.slot.kind) {
      case Slot::Kind::fixed:
        return fmt::format("{}[{}]", name, a.slot.value);
      case Slot::Kind::cursor:
        return fmt::format("{}[{}]", name, shifted(s_.rings[a.slot.value].name, a.slot.shift));
      case Slot::Kind::turn:
        return name + "[turn]";
    }
    return name;
  }
  // Each access once; after what an event does a colon stands before them.
  std::string with_accesses(const std::string& does, const std::vector<Access>& accesses) const {
    std::vector<std::string> all;
    for (const Access& a : accesses) {
      const char* verb = a.touch == Touch::read     ? "reads"
                         : a.touch == Touch::write  ? "writes"
                         : a.touch == Touch::update ? "updates"
                                                    : "adds to";
      std::string words = fmt::format("{} {}", verb, touched(a));
      if (std::find(all.begin(), all.end(), words) == all.end()) all.push_back(std::move(words));
    }
    return fmt::format("{}{}{}", does, does.empty() || all.empty() ? "" : ": ", fmt::join(all, ", "));
  }
  static std::string name_of(const Event& e) {
    if (!e.name.empty() || !e.stmt) return e.name;
    return words_of(*e.stmt);
  }
  // A branch is a loop that runs once or not at all.
  static bool is_branch(const Event& e) {
    return e.name.empty() && e.stmt && std::holds_alternative<ir::If>(e.stmt->node);
  }
  static std::string loop_name(const Event& e) {
    if (e.name.empty()) return e.stmt ? words_of(*e.stmt) : "loop";
    return "loop " + e.name;
  }
  static bool is_declaration(const Event& e) {
    return e.stmt && std::holds_alternative<ir::Declare>(e.stmt->node);
  }
  std::string count(const Count& c) const {
    std::string words = c.constant != 0 || c.terms.empty() ? std::to_string(c.constant) : "";
    for (const auto& term : c.terms) {
      if (!words.empty()) words += " + ";
      std::string product = term.factor != 1 ? std::to_string(term.factor) : "";
      for (const int v : term.variables) product += (product.empty() ? "" : " * ") + s_.variables[v].name;
      words += product;
    }
    return words;
  }

  std::string describe(const Event& e, const Operation& x) const {
    if (is_declaration(e)) return name_of(e);  // of which nothing is written yet
    std::string does = name_of(e);
    if (x.first != 0 || x.last != 16) does += fmt::format(" ({} to {} sixteenths)", x.first, x.last);
    return with_accesses(does, x.accesses);
  }
  std::string describe(const Event& e, const Gemm& x) const {
    std::string does = e.name.empty() ? "gemm" : "gemm " + e.name;
    if (x.only >= 0) does += fmt::format(", accumulator {}", x.only);
    if (x.first != 0 || x.last != 16) does += fmt::format(" ({} to {} sixteenths)", x.first, x.last);
    return with_accesses(does, x.accesses);
  }
  std::string describe(const Event& e, const GemmFence&) const { return for_gemm("gemm fence", e); }
  std::string describe(const Event& e, const GemmCommit&) const { return for_gemm("gemm commit", e); }
  std::string describe(const Event&, const GemmWait& x) const {
    return fmt::format("gemm wait {}", x.pending);
  }
  std::string describe(const Event&, const WaitFull& x) const { return "wait full " + place(x.place); }
  std::string describe(const Event&, const Acquire& x) const { return "wait empty " + place(x.place); }
  std::string describe(const Event&, const Arrive& x) const {
    std::string behind;
    for (const int buffer : x.behind)
      behind += fmt::format("{} {}", behind.empty() ? " behind" : ",", s_.buffers[buffer].name);
    return fmt::format("{} {}{}{}", x.side == Side::full ? "fill" : "release", place(x.place),
                       x.whole_cluster ? " in every CTA" : "", behind);
  }
  std::string describe(const Event&, const Expect& x) const {
    return fmt::format("expect {} bytes in {}", x.bytes, place(x.place));
  }
  std::string describe(const Event&, const Advance& x) const {
    return (x.back ? "step back in " : "advance ") + s_.rings[x.ring].name;
  }
  std::string describe(const Event&, const Load& x) const {
    return fmt::format("load {}, {} bytes on {}{}", touched(x.to), x.bytes, place(x.place),
                       x.multicast ? ", in every CTA" : "");
  }
  std::string describe(const Event&, const Complete& x) const {
    return fmt::format("{} bytes of threads on {}", x.bytes, place(x.place));
  }
  std::string describe(const Event&, const Store& x) const {
    if (!x.to) return "store " + touched(x.from);
    return fmt::format("{} {} from {}", x.to->touch == Touch::write ? "store" : "add to", touched(*x.to),
                       touched(x.from));
  }
  std::string describe(const Event&, const StoreCommit&) const { return "store commit"; }
  std::string describe(const Event&, const StoreWait& x) const {
    return fmt::format("store wait {}{}", x.pending, x.reads_only ? " read" : "");
  }
  std::string describe(const Event&, const CopyAsync& x) const {
    return with_accesses("copy async " + touched(x.to), x.accesses);
  }
  std::string describe(const Event&, const CopyCommit&) const { return "copy commit"; }
  std::string describe(const Event&, const CopyWait& x) const {
    return fmt::format("copy wait {}", x.pending);
  }
  std::string describe(const Event&, const CopyArrive& x) const { return "copies fill " + place(x.place); }
  std::string describe(const Event&, const ProxyFence& x) const {
    return x.global ? "proxy fence, global" : "proxy fence";
  }
  std::string describe(const Event&, const WarpSync&) const { return "warp sync"; }
  std::string describe(const Event&, const Barrier& x) const {
    std::string id = std::to_string(x.id);
    if (x.per_group) id += x.rotate == 0 ? " + group" : fmt::format(" + group{:+}", x.rotate);
    return fmt::format("barrier {}, {} threads{}", id, x.threads, x.wait ? "" : ", arrive only");
  }
  std::string describe(const Event&, const ClusterBarrier&) const { return "cluster barrier"; }
  std::string describe(const Event&, const InitBarriers&) const { return "initialise barriers"; }
  std::string describe(const Event&, const InitFence&) const { return "fence initialisation"; }
  std::string describe(const Event&, const SetRegisters& x) const {
    return fmt::format("registers {}", x.count);
  }
  std::string describe(const Event&, const NextTile&) const { return "next tile"; }
  std::string describe(const Event&, const SendTile& x) const { return "send tile in " + touched(x.to); }
  std::string describe(const Event&, const ReceiveTile& x) const {
    return "receive tile from " + touched(x.from);
  }
  std::string describe(const Event&, const WaitTurn& x) const { return "wait turn of " + touched(x.of); }
  std::string describe(const Event&, const PassTurn& x) const { return "pass turn of " + touched(x.of); }
  static std::string_view share_words(Share share) {
    constexpr std::string_view words[] = {"", ", first group", ", in pairs of one step a group",
                                          ", what is left of the pairs"};
    return words[static_cast<int>(share)];
  }
  std::string describe(const Event& e, const Loop& x) const {
    switch (x.kind) {
      case Loop::Kind::counted:
        if (is_branch(e)) return fmt::format("if {}{}", count(x.count), share_words(x.share));
        return fmt::format("{}: {} times{}", loop_name(e), count(x.count), share_words(x.share));
      case Loop::Kind::tiles:
        return "loop over this CTA's tiles";
      case Loop::Kind::forever:
        return "loop until no tile is left";
    }
    return "";
  }
  std::string describe(const Event& e, const Guard& x) const {
    switch (x.kind) {
      case Guard::Kind::data:
        return "if " + e.name;
      case Guard::Kind::not_first:
        return "if not the first step";
      case Guard::Kind::not_last:
        return "if not the last step";
      case Guard::Kind::last_group:
        return "if the last group";
      case Guard::Kind::chosen:
        return "only";
      case Guard::Kind::engine:
        return "if the copy engine can";
      case Guard::Kind::threads:
        return "else";
    }
    return "";
  }
  std::string describe(const Event&, const Leave& x) const {
    return x.variable < 0 ? "leave if no tile is left"
                          : "leave in the step " + s_.variables[static_cast<std::size_t>(x.variable)].name;
  }

  const Schedule& s_;
  int depth_ = 0;
};

const char* name_of(Space space) {
  switch (space) {
    case Space::shared:
      return "shared";
    case Space::registers:
      return "registers";
    case Space::global:
      return "global";
  }
  return "";
}

}  // namespace

std::string print(const Schedule& schedule, const Event& event) { return Printer(schedule).event(event); }

std::string print(const Schedule& s) {
  Printer p(s);
  p.line(fmt::format("schedule {}: {} threads, {} registers each{}", s.name, 32 * s.warps(),
                     s.launch_registers, s.cluster > 1 ? fmt::format(", cluster of {}", s.cluster) : ""));
  for (const Buffer& b : s.buffers) {
    std::string size = b.space == Space::shared && b.bytes > 0 ? fmt::format(", {} bytes", b.bytes) : "";
    if (b.slots > 1) size += fmt::format(" x {} stages", b.slots);
    if (b.instances > 1) size += fmt::format(" x {} groups", b.instances);
    p.line(fmt::format("  {} {}{}", name_of(b.space), b.name, size));
  }
  for (const Ring& r : s.rings) {
    std::string words = fmt::format("  ring {}, depth {}", r.name, r.depth);
    if (r.instances > 1) words += fmt::format(" x {} groups", r.instances);
    if (r.barriers) words += fmt::format(", full {} arrivals, empty {}", r.full_arrivals, r.empty_arrivals);
    for (std::size_t i = 0; i < r.buffers.size(); ++i)
      words += (i == 0 ? ": " : ", ") + s.buffers[r.buffers[i]].name;
    p.line(words);
  }
  p.line("all warps");
  p.events(s.prologue);
  for (const Role& role : s.roles) {
    std::string words = role.name + ", ";
    if (role.groups > 1) words += fmt::format("{} groups of ", role.groups);
    words += fmt::format("{} warps", role.warps);
    if (role.registers != 0) words += fmt::format(", {} registers", role.registers);
    p.line(words);
    p.events(role.events);
  }
  return std::move(p.text);
}

}  // namespace tegula::schedule
