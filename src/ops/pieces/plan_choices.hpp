// Which candidate each decision of a plan takes. Usually it is the one with the shortest estimated time;
// tuning tries the others, and TEGULA_PLAN selects what tuning has found.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace tegula::ops {

// One decision of a call's plan, in the order in which the plan takes them.
struct PlanDecision {
  std::string op;
  std::size_t number = 0;  // among those of the operator
  std::size_t best = 0;    // the candidate with the least estimated time
  std::vector<double> estimates;

  // `attention.0=2`: decision 0 of attention takes candidate 2.
  std::string text(std::size_t candidate) const;
};

// Counts the decisions of a call: whoever plans a call opens one.
class PlanScope {
 public:
  explicit PlanScope(const std::string& op);
  ~PlanScope();
  PlanScope(const PlanScope&) = delete;
  PlanScope& operator=(const PlanScope&) = delete;

 private:
  friend std::size_t chosen_candidate(std::size_t best, const std::vector<double>& estimates);
  friend bool chooses_candidates();
  const std::string& op_;
  std::size_t decisions_ = 0;
  PlanScope* outer_;
};

// Whether anything but the estimates may choose, or decisions are recorded.
bool chooses_candidates();
// The candidate that the next decision takes: `best`, unless another one was asked for and exists.
std::size_t chosen_candidate(std::size_t best, const std::vector<double>& estimates);

// Asks for candidates, as in `attention.0=2,gemm.0=5`, in the place of TEGULA_PLAN. An ArgumentError for
// other text. For a process that measures candidates: no other thread may plan meanwhile.
void choose_candidates(const std::string& text);

// Records the decisions of this thread while it exists.
class PlanRecorder {
 public:
  PlanRecorder();
  ~PlanRecorder();
  PlanRecorder(const PlanRecorder&) = delete;
  PlanRecorder& operator=(const PlanRecorder&) = delete;
  // Each decision once, however often it was taken.
  const std::vector<PlanDecision>& decisions() const { return decisions_; }

 private:
  friend std::size_t chosen_candidate(std::size_t best, const std::vector<double>& estimates);
  std::vector<PlanDecision> decisions_;
};

}  // namespace tegula::ops
