// Stamps of the clock in front of events, for kernels that have a tensor for them.
#include <fmt/format.h>

#include <array>

#include "codegen/cuda/grid_printer.hpp"
#include "codegen/cuda/timeline.hpp"
#include "schedule/words.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// What takes no time, or is a part of what has a stamp.
template <class... Kinds>
bool is_any(const schedule::Event& e) {
  return (std::holds_alternative<Kinds>(e.what) || ...);
}

bool has_stamp(const schedule::Event& e) {
  if (is_any<schedule::Operation>(e)) return e.stmt && !as<Declare>(e.stmt) && !as<Let>(e.stmt);
  return is_any<schedule::Gemm, schedule::GemmWait, schedule::WaitFull, schedule::Acquire, schedule::Load,
                schedule::CopyAsync, schedule::Store, schedule::StoreWait, schedule::Barrier,
                schedule::WaitTurn, schedule::ReceiveTile>(e);
}

bool has_stamp(const Stmt& s) {
  const auto* loop = as<For>(s);
  return as<Copy>(s) || as<Gemm>(s) || as<Reduce>(s) || as<Scan>(s) || as<Accumulate>(s) ||
         (loop && loop->kind == LoopKind::parallel);
}

}  // namespace

BufferPtr timeline_of(const Kernel& kernel) {
  for (const Parameter& p : kernel.parameters)
    if (p.tensor && p.tensor->name == timeline_name) return p.tensor;
  return nullptr;
}

void CudaGridPrinter::begin_timeline() {
  const BufferPtr tensor = timeline_of(signature_.kernel());
  if (!tensor) return;
  has_timeline_ = true;
  const std::int64_t blocks = tensor->extent(1), rows = tensor->extent(2), words = tensor->extent(3);
  out_.line(fmt::format("tg::Timeline timeline({} + {}, {}, {}, {}, {});", tensors_.at(tensor.get()),
                        number_ * blocks * rows * words, blocks, rows, words, events_key_word));
}

void CudaGridPrinter::stamp(const std::string& words, const Loc& at) {
  program_.events.push_back({words, at});
  sync_line(fmt::format("timeline.stamp({});", program_.events.size()));
}

void CudaGridPrinter::stamp(const schedule::Event& e) {
  if (!has_timeline_ || !roles_ || store_ || !has_stamp(e)) return;
  std::string words = schedule::print(*plan_.schedule, e);
  words = words.substr(0, words.find_first_of("\n"));
  words = words.substr(0, words.find("  //"));
  stamp(words, e.stmt ? e.stmt->at : grid_->at);
}

void CudaGridPrinter::stamp(const Stmt& s) {
  if (!has_timeline_ || roles_ || loop_ || team_.count > 1 || !has_stamp(s)) return;
  stamp(schedule::words_of(*s), s->at);
}

}  // namespace tegula::codegen
