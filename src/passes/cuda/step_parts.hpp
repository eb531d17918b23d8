// The consumers' program as a tree of lists: for each part of a step, what it awaits and what it releases.
//
// It is derived from what the statements access, before there are events: a product is in flight from its
// position to the first part that needs its sum or writes one of its operands; a slot of a ring is released
// after the last part that reads it, or with the product in flight that reads it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "passes/cuda/delay_products.hpp"

namespace tegula::passes {

struct Release {
  int ring;
  enum class Slot : std::uint8_t {
    own,      // of this step; the next step has the next one
    before,   // of the step before
    goes_on,  // none: the next step has the next one, and this one is let go then, or by the other group
  } slot = Slot::own;
  bool operator==(const Release&) const = default;
};

struct StepPart;
using StepParts = std::vector<StepPart>;

struct StepPart {
  enum class Does : std::uint8_t {
    nothing,  // but await, and let go
    work,     // the statement, or some sixteenths of its elements
    product,  // of tensor cores, or some sixteenths of what each element sums
    branch,   // `inner`, and `otherwise`
    loop,     // `inner` in each step
  };
  Does does = Does::nothing;
  ir::Stmt stmt;
  int first = 0, last = 16;
  ir::BufferPtr in_parts;           // of which only these sixteenths are made or read
  bool holds = false;               // what follows may not run before it
  int only = -1;                    // the one of the product's accumulators; −1: all
  bool ping_pong = false;           // one warp group after the other
  bool exchanges = false;           // all groups first exchange an operand, which none may do in its turn
  Meeting meeting = Meeting::none;  // of warp groups to which steps are dealt
  bool pins = false;                // what the sum holds comes from elsewhere
  std::vector<int> advanced;        // rings whose tile a product in flight reads, while the next one comes
  std::vector<int> awaited_before;  // relayed rings whose slot of the step before is to be there
  std::vector<int> awaited;         // rings whose next tile it needs
  std::vector<int> awaited_next;  // the same for the next step, if there is one, while products are in flight
  std::optional<int> in_flight;   // products that may still run when it begins; nothing: all
  std::vector<Release> landed;    // by those that do not
  std::vector<Release> released;  // after it
  std::vector<int> released_but_first;  // after it, in steps but the first: slots of the step before
  std::optional<int> left;              // products that may run on after it; nothing: all
  StepParts inner, otherwise;
};

StepParts step_parts(const Roles& roles, const ConsumerProgram& program, const CudaTarget& target);

// A line a part.
std::string print(const StepParts& parts, const Roles& roles);

}  // namespace tegula::passes
