// Plans the parts of steps: what tensor cores multiply while other work runs, and when each tile is let go.
#pragma once
#include <deque>
#include <optional>
#include <unordered_set>
#include <vector>

#include "ir/visit.hpp"
#include "passes/cuda/build_schedule.hpp"
#include "passes/cuda/infer_layouts.hpp"
#include "passes/cuda/ring_uses.hpp"
#include "passes/cuda/step_groups.hpp"
#include "passes/cuda/step_parts.hpp"

namespace tegula::passes {

// A product in flight: what it writes and reads, and what is let go when it is done.
struct Flight {
  ir::BufferPtr sum;
  std::vector<ir::BufferPtr> operands;  // that no ring protects
  std::vector<int> rings;               // of the others
  std::vector<Release> releases;
};

using Buffers = std::unordered_set<const ir::Buffer*>;

// How the steps of a body follow each other.
enum class Overlap : std::uint8_t {
  none,
  delayed,  // what runs at its start is of the step before
  deep,     // its products run on in the next step
};

class StepPlanner {
 public:
  StepPlanner(const Roles& roles, const ConsumerProgram& program, const CudaTarget& target)
      : roles_(roles), program_(program), target_(target) {
    ir::for_each_stmt(program.body, [&](const ir::Stmt& s) {
      if (is_wgmma(s)) sums_.insert(ir::as<ir::Gemm>(s)->c.buffer.get());
    });
  }
  // `begun`: sums that products of the body may find as other code, or another way to the body, left them.
  StepParts body(const ir::Body& statements, Overlap overlap, Buffers begun = {});

 private:
  GemmPlan plan(const ir::Stmt& s) const {
    const auto* gemm = ir::as<ir::Gemm>(s);
    return gemm ? plan_gemm(*gemm, roles_.together(), target_) : GemmPlan{};
  }
  bool exchanges(const ir::Gemm& gemm, const GemmPlan& plan);
  bool is_wgmma(const ir::Stmt& s) const { return plan(s).instruction == GemmInstruction::wgmma; }
  int ring_of(const ir::BufferPtr& b) const { return roles_.ring_of(program_.in_ring(b.get())); }
  bool has_parts(const ir::Stmt& s) const;
  std::vector<StepGroup> groups(const ir::Body& statements, const std::vector<RingUse>& used) const;

  void group(const StepGroup& group, const ir::Body& statements, Overlap overlap);
  void statement(const ir::Stmt& s, Overlap overlap);
  void plain(const ir::Stmt& s, Overlap overlap);
  void product(const ir::Stmt& s);
  void promoted(const ir::Stmt& s, const GemmPlan& plan);
  void work(const ir::Stmt& s);
  void let_go_early(const ir::Stmt& s);
  void meet(const ir::Stmt& s, bool before);
  void exponentials(const ir::Body& statements, const StepGroup& group);
  void operand(const ir::Body& statements, const StepGroup& group);
  Overlap overlap_of(const ir::Stmt& s) const;
  void branch(const ir::Stmt& s, Overlap overlap);
  void loop(const ir::Stmt& s);
  bool is_kept(const RingUse& use, const ir::Stmt& last) const;
  void release(const StepGroup& group, const ir::Body& statements, const std::vector<RingUse>& used);
  void await_tile(int ring);
  void await_relayed(int ring, const ir::Buffer& tile);
  void await_early(StepParts& step);
  void leave_in_flight(const std::vector<RingUse>& used);

  std::size_t flights_of(const ir::Stmt& s) const;
  void take_off(const ir::Gemm& gemm);
  // The part at hand begins when the first `count` of the flights are done.
  void await(StepPart& part, std::size_t count);
  void settle(StepPart& part);
  void settle_sums(const ir::Stmt& s, StepPart& part);
  void drain();
  StepPart& add(StepPart::Does does, const ir::Stmt& s);

  const Roles& roles_;
  const ConsumerProgram& program_;
  const CudaTarget& target_;
  Buffers sums_;  // of products by tensor cores
  std::optional<Layouts> layouts_;
  // The parts of the current body.
  StepParts parts_;
  std::vector<int> advanced_, awaited_, awaited_before_;  // that no part has yet
  std::unordered_set<int> passed_on_;  // relayed rings whose slot of the step before the body has awaited
  std::deque<Flight> flights_;
  bool settled_ = true;    // no product was issued since the last wait
  bool in_turns_ = false;  // warp groups issue the products of the loop one after the other
  Buffers begun_;          // see body
};

}  // namespace tegula::passes
