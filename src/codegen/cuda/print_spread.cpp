// Blocks that are spread over the CTAs of a cluster: who a thread is, and when all of them have begun.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "codegen/cuda/element_printer.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/lane_sums.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Whether threads of several warps form a sum there, of which `what` is true.
bool meets(const Stmt& s, const passes::Layouts& layouts,
           const std::function<bool(const Reduce&, const passes::Parting&)>& what) {
  if (const auto* n = as<Reduce>(s)) {
    const passes::Parting divided = passes::parting(layouts.fragments.at(n->from.buffer.get()), n->dim);
    return !divided.parts.empty() && what(*n, divided);
  }
  bool result = false;
  for_each_body(s, [&](const Body& inner) {
    result |=
        std::any_of(inner.begin(), inner.end(), [&](const Stmt& own) { return meets(own, layouts, what); });
  });
  return result;
}

}  // namespace

// Threads have their numbers in the block, and their CTA the shared memory.
void ElementPrinter::begin_spread_block() {
  out_.line(fmt::format("const int cta = blockIdx.x % {};", ctas_));
  out_.line(fmt::format("const int thread = cta * {} + threadIdx.x;", team_.threads / ctas_));
  out_.line(fmt::format("unsigned char* const own_memory = tg::memory_of_cta<{}>(shared_memory);", ctas_));
  const auto first_of = [&](const auto& what) {
    return std::find_if(planned_.body.begin(), planned_.body.end(),
                        [&](const Stmt& s) { return meets(s, plan_.layouts, what); });
  };
  const auto first = first_of([](const Reduce&, const passes::Parting&) { return true; });
  if (first == planned_.body.end()) return;
  first_meeting_ = first->get();
  const auto counted = first_of([&](const Reduce& n, const passes::Parting& divided) {
    return is_counted(n.to.buffer->type, divided);
  });
  if (counted != planned_.body.end())
    out_.line(fmt::format("tg::Meetings<{}> meetings({} + {});", meeting_places, own_memory_,
                          memory_.allocate(8 * meeting_places, 8, "barriers of sums")));
  out_.line(cluster_arrival);
}

// Whether all warps of the block send a number each, and nothing else: a barrier can count their bytes.
bool ElementPrinter::is_counted(DType type, const passes::Parting& divided) const {
  std::int64_t parts = 1;
  for (const auto& [step, number] : divided.numbers) parts *= number;
  const DType sent = type_of_parts(type);
  return ctas_ > 1 && sent.bits() == 32 && !sent.is_boolean() && parts == team_.threads / 32;
}

// In front of the place of a part.
std::string ElementPrinter::place_of_meeting(const Meeting& m) const {
  return m.is_counted ? fmt::format("meetings.place() * {} + ", m.elements * m.parts) : "";
}

// Until all parts of the sums have come.
void ElementPrinter::await_parts(std::span<const Meeting> meetings) {
  std::int64_t bytes = 0;
  for (const Meeting& m : meetings) bytes += m.is_counted ? m.elements * m.parts * 4 : 0;
  if (bytes == 0) return;
  out_.code();
  out_.line(fmt::format("meetings.expect({});", bytes));
  out_.line("meetings.wait();");
}
void ElementPrinter::leave_meeting(std::span<const Meeting> meetings) {
  if (!meetings.empty() && meetings.front().is_counted) out_.line("meetings.next();");
}

void ElementPrinter::refuse_to_spread(const std::string& why, const char* remedy) {
  if (ctas_ > 1 && not_spread_.why.empty()) not_spread_ = {why, remedy, planned_.at};
}

}  // namespace tegula::codegen
