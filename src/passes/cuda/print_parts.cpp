#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/visit.hpp"
#include "passes/cuda/step_parts.hpp"
#include "schedule/words.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

class PartPrinter {
 public:
  explicit PartPrinter(const Roles& roles) : roles_(roles) {}

  void parts(const StepParts& list) {
    for (const StepPart& part : list) {
      line(words(part));
      inner(part.inner);
      if (!part.otherwise.empty()) line("otherwise");
      inner(part.otherwise);
      if (!part.inner.empty() && !part.released.empty()) line("let go " + slots(part.released));
    }
  }

  std::string text;

 private:
  void inner(const StepParts& list) {
    ++depth_;
    parts(list);
    --depth_;
  }

  void line(const std::string& words) { text += fmt::format("{:{}}{}\n", "", 2 * depth_, words); }

  std::string ring(int number) const { return roles_.rings[static_cast<std::size_t>(number)].tiles[0]->name; }

  std::string rings(const std::vector<int>& list) const {
    std::string result;
    for (const int own : list) result += " " + ring(own);
    return result;
  }

  std::string slots(const std::vector<Release>& list) const {
    std::string result;
    for (const Release& own : list) {
      if (own.slot == Release::Slot::goes_on) continue;
      result += fmt::format("{}{}", result.empty() ? "" : ", ", ring(own.ring));
      if (own.slot == Release::Slot::before) result += " of the step before";
    }
    return result;
  }

  static std::string what(const StepPart& part) {
    if (part.does == StepPart::Does::nothing) return "";
    std::string result = schedule::words_of(*part.stmt);
    if (const auto* gemm = as<Gemm>(part.stmt)) result += " to " + gemm->c.buffer->name;
    if (const auto* loop = as<For>(part.stmt); loop && loop->kind == LoopKind::parallel) {
      if (const auto* store = as<Store>(loop->body.back())) result += " to " + store->to.view.buffer->name;
    }
    if (part.last - part.first < 16) result += fmt::format(", sixteenths {} to {}", part.first, part.last);
    if (part.only >= 0) result += fmt::format(", accumulator {}", part.only);
    return result + (part.ping_pong ? ", ping-pong" : "");
  }

  std::string words(const StepPart& part) const {
    constexpr std::string_view meetings[] = {"", "receive from the other group", "meet in the group",
                                             "send to the other group", "meet"};
    if (part.meeting != Meeting::none) return std::string(meetings[static_cast<int>(part.meeting)]);
    std::vector<std::string> result;
    if (!part.awaited.empty()) result.push_back("tiles" + rings(part.awaited));
    if (!part.awaited_next.empty())
      result.push_back("tiles" + rings(part.awaited_next) + " of the next step");
    if (part.in_flight) result.push_back(fmt::format("all but {} products", *part.in_flight));
    std::string text = result.empty() ? "" : fmt::format("await {}; ", fmt::join(result, ", "));
    if (const std::string own = slots(part.landed); !own.empty()) text += "let go " + own + "; ";
    text += what(part);
    if (part.left) text += fmt::format("; await all but {} products", *part.left);
    if (!part.released_but_first.empty())
      text += fmt::format("; let go{} of the step before", rings(part.released_but_first));
    if (const std::string own = slots(part.released); !own.empty() && part.inner.empty())
      text += "; let go " + own;
    while (text.ends_with(' ') || text.ends_with(';')) text.pop_back();
    return text;
  }

  const Roles& roles_;
  int depth_ = 0;
};

}  // namespace

std::string print(const StepParts& parts, const Roles& roles) {
  PartPrinter printer(roles);
  printer.parts(parts);
  return std::move(printer.text);
}

}  // namespace tegula::passes
