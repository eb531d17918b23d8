#include "ops/pieces/plan_choices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

namespace tegula::ops {

namespace {

using Choices = std::map<std::pair<std::string, std::size_t>, std::size_t>;

thread_local PlanScope* innermost = nullptr;
thread_local PlanRecorder* recorder = nullptr;

std::optional<std::size_t> number_in(const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Choices parsed(const std::string& text) {
  Choices choices;
  std::istringstream in(text);
  for (std::string own; std::getline(in, own, ',');) {
    const std::size_t dot = own.find('.'), equals = own.find('=');
    const bool whole = dot != std::string::npos && equals != std::string::npos && dot < equals;
    const auto number = whole ? number_in(own.substr(dot + 1, equals - dot - 1)) : std::nullopt;
    const auto candidate = whole ? number_in(own.substr(equals + 1)) : std::nullopt;
    if (!number || !candidate)
      throw ArgumentError(fmt::format(
          "the plan '{}': expected OPERATOR.DECISION=CANDIDATE, as `tegula tune` prints it and as "
          "in attention.0=2",
          own));
    choices[{own.substr(0, dot), *number}] = *candidate;
  }
  return choices;
}

// Never destroyed: threads may still call while the process ends.
Choices& choices() {
  static auto& own = *new Choices(parsed(environment(Variable::plan).value_or("")));
  return own;
}

}  // namespace

std::string PlanDecision::text(std::size_t candidate) const {
  return fmt::format("{}.{}={}", op, number, candidate);
}

PlanScope::PlanScope(const std::string& op) : op_(op), outer_(innermost) { innermost = this; }
PlanScope::~PlanScope() { innermost = outer_; }

bool chooses_candidates() { return innermost != nullptr && (recorder != nullptr || !choices().empty()); }

std::size_t chosen_candidate(std::size_t best, const std::vector<double>& estimates) {
  const std::size_t number = innermost->decisions_++;
  std::size_t chosen = best;
  if (const auto found = choices().find({innermost->op_, number});
      found != choices().end() && found->second < estimates.size())
    chosen = found->second;
  if (recorder != nullptr) {
    auto& all = recorder->decisions_;
    const bool is_new = std::none_of(all.begin(), all.end(), [&](const PlanDecision& other) {
      return other.op == innermost->op_ && other.number == number;
    });
    if (is_new) all.push_back({innermost->op_, number, best, estimates});
  }
  return chosen;
}

void choose_candidates(const std::string& text) { choices() = parsed(text); }

PlanRecorder::PlanRecorder() { recorder = this; }
PlanRecorder::~PlanRecorder() { recorder = nullptr; }

}  // namespace tegula::ops
