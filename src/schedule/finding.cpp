#include "schedule/finding.hpp"

#include <array>

namespace tegula::schedule {
namespace {

struct Row {
  Rule rule;
  const char* name;
  const char* meaning;  // the rule, then the remedy
};

constexpr std::array rows = {
    Row{Rule::structure, "structure", "a schedule refers only to what it declares; correct the reference"},
    Row{Rule::resources, "resources",
        "registers, shared memory and barriers stay within the machine's; use fewer stages or smaller tiles"},
    Row{Rule::order, "order",
        "every access is ordered after all conflicting ones; wait for the barrier that the other one arrives "
        "at"},
    Row{Rule::proxy, "proxy",
        "ordinary writes reach the asynchronous proxy through a proxy fence; put one between the writes and "
        "the barrier that publishes them"},
    Row{Rule::unread, "unread",
        "a slot that copies have filled is read before it is filled again; advance the cursor once for each "
        "slot that is filled, and for each that is used"},
    Row{Rule::in_flight, "in flight",
        "registers and shared memory of a gemm are left alone until its wait; move the access after a "
        "wait that covers the gemm"},
    Row{Rule::gemm_fence, "gemm fence",
        "registers that ordinary code touched are fenced before a gemm uses them; put a gemm fence in front"},
    Row{Rule::drained, "drained",
        "no gemm is in flight where a guarded body with gemms begins or ends, or where a role ends; wait for "
        "0 pending groups there"},
    Row{Rule::phase, "phase",
        "every phase of a barrier gets exactly its arrivals and bytes; correct the count, or the place of "
        "the "
        "arrival"},
    Row{Rule::lapped, "lapped",
        "a barrier completes no second phase before every waiting thread has seen the first; let every "
        "waiting warp release the slot itself"},
    Row{Rule::init, "initialisation",
        "barriers are initialised, fenced and published before their first use; begin with initialisation, "
        "fence and a barrier of all threads"},
    Row{Rule::barrier, "threads of a barrier",
        "a named barrier is met once a round by whole warps of the stated number of threads; correct its "
        "number or count"},
    Row{Rule::exit, "end",
        "nothing arrives in, writes or reads the shared memory of a CTA that has ended; wait for it, or for "
        "the cluster, before the end"},
    Row{Rule::turn, "turn", "turns are passed once each, in order; wait for the turn before passing it"},
    Row{Rule::deadlock, "deadlock", "every wait is ended by an arrival that does not depend on it"},
};

const Row& row(Rule rule) {
  for (const Row& r : rows)
    if (r.rule == rule) return r;
  throw InternalError("a rule without a row");
}

}  // namespace

const char* name_of(Rule rule) { return row(rule).name; }
const char* meaning_of(Rule rule) { return row(rule).meaning; }

}  // namespace tegula::schedule
