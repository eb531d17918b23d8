// What the verifier reports: the broken rule, where, and the remedy.
#pragma once
#include <cstdint>
#include <string>

#include "schedule/schedule.hpp"

namespace tegula::schedule {

enum class Rule : std::uint8_t {
  structure,   // the schedule refers to what it does not have
  resources,   // registers, shared memory, barriers
  order,       // an access is ordered after all conflicting ones
  proxy,       // a generic write reaches the asynchronous proxy through a fence
  unread,      // what copies by threads brought is read before they bring more
  in_flight,   // what a gemm uses is left alone until its wait
  gemm_fence,  // registers touched by ordinary code are fenced before a gemm uses them
  drained,     // no gemm is in flight where a guarded body begins or ends, or a role ends
  phase,       // arrivals and bytes per phase of a barrier are exact
  lapped,      // no barrier gets two phases ahead of a waiting thread
  init,        // barriers are initialised before they are used
  barrier,     // threads of a named barrier
  exit,        // nothing arrives in, or reads, the shared memory of a CTA that has ended
  turn,        // turns are passed in order
  deadlock
};

const char* name_of(Rule rule);
const char* meaning_of(Rule rule);

struct Finding {
  Rule rule;
  std::string message;
};

}  // namespace tegula::schedule
