// Blocks that are spread over the CTAs of a cluster: who a thread is, and when all of them have begun.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/element_printer.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/lane_sums.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Whether threads of several warps form a sum there.
bool meets(const Stmt& s, const passes::Layouts& layouts) {
  if (const auto* n = as<Reduce>(s))
    return !passes::parting(layouts.fragments.at(n->from.buffer.get()), n->dim).parts.empty();
  bool result = false;
  for_each_body(s, [&](const Body& inner) {
    result |= std::any_of(inner.begin(), inner.end(), [&](const Stmt& own) { return meets(own, layouts); });
  });
  return result;
}

}  // namespace

// Threads have their numbers in the block, and their CTA the shared memory.
void ElementPrinter::begin_spread_block() {
  out_.line(fmt::format("const int cta = blockIdx.x % {};", ctas_));
  out_.line(fmt::format("const int thread = cta * {} + threadIdx.x;", team_.threads / ctas_));
  out_.line(fmt::format("unsigned char* const own_memory = tg::memory_of_cta<{}>(shared_memory);", ctas_));
  const auto first = std::find_if(planned_.body.begin(), planned_.body.end(),
                                  [&](const Stmt& s) { return meets(s, plan_.layouts); });
  if (first == planned_.body.end()) return;
  first_meeting_ = first->get();
  out_.line(cluster_arrival);
}

void ElementPrinter::refuse_to_spread(const std::string& why, const char* remedy) {
  if (ctas_ > 1 && not_spread_.why.empty()) not_spread_ = {why, remedy, planned_.at};
}

}  // namespace tegula::codegen
