// Contributions to tensors, in turn where they have an order.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

std::string CudaGridPrinter::turn_word(const Access& word) { return address(word).pointer; }

std::string CudaGridPrinter::wait_text(const Turn& turn, const std::string& word, const Loc& at) {
  program_.assertions.push_back(
      {"the orders of accumulate() are not 0, 1, 2, … for every element, or those of later blocks are not "
       "larger",
       at});
  const int groups = is_consumer_ ? team_.threads / 128 : 1;
  return fmt::format("tg::wait_turn({}, {} * {}, call.status, {});", word, groups, value(turn.order),
                     program_.assertions.size());
}

void CudaGridPrinter::operator()(const Accumulate& n, const Stmt& s) {
  std::optional<Turn> turn;
  if (n.turn) turn = Turn{*n.turn, n.order};
  store_boxes(n.tile, n.to, true, turn, s->at);
}

// By the threads: all of them are behind the turn, and all have contributed when it is passed on.
void CudaGridPrinter::operator()(const Turn& n, const Stmt& s) {
  const int groups = is_consumer_ ? team_.threads / 128 : 1;
  out_.code();
  if (!n.order) {
    out_.line("__threadfence();");
    out_.barrier(team_barrier_);
    out_.code();
    out_.line(fmt::format("if (thread == 0) tg::pass_turn({}, {});", turn_word(n.word), groups));
    return;
  }
  if (has_turns_) out_.line("if (thread % 128 == 0) pending_turn.pass();");
  const std::string word = turn_word(n.word);
  out_.line(fmt::format("if (thread == 0) {}", wait_text(n, word, s->at)));
  out_.barrier(team_barrier_);
}

}  // namespace tegula::codegen
