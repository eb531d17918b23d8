// Contributions to tensors, in turn where they have an order.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

// The word of a part of the block, all of which is part 0. A window that is outside its tensor has no word,
// and nothing to wait for.
std::string CudaGridPrinter::turn_word(const Access& word, const std::string& part) {
  const GuardedAddress at = address(word);
  const std::string own = part.empty() ? at.pointer : fmt::format("{} + {}", at.pointer, part);
  return at.guard.empty() ? own : fmt::format("({} ? {} : nullptr)", at.guard, own);
}

std::size_t CudaGridPrinter::turns_broken(const Loc& at) {
  program_.assertions.push_back(
      {"the orders of accumulate() are not 0, 1, 2, … for every element, or those of later blocks are not "
       "larger",
       at});
  return program_.assertions.size();
}

std::string CudaGridPrinter::wait_text(const Expr& order, const std::string& word, const Loc& at) {
  return fmt::format("tg::wait_turn({}, {}, call.status, {});", word, value(order), turns_broken(at));
}

// What the adders know of the words that count turns.
std::string CudaGridPrinter::turns_text(const Accumulate& sum, const Loc& at) {
  const Buffer& words = *sum.turn->view.buffer;
  std::string count = "int64_t(1)";
  for (const Expr& extent : words.shape) count += fmt::format(" * {}", value(extent));
  return fmt::format("{}, {}, call.status, {}, ", tensors_.at(&words), count, turns_broken(at));
}

// A thread of the producer's warps for each warp group.
void CudaGridPrinter::print_adders(const BoxStores& n, const Accumulate& sum, const Loc& at) {
  const int groups = team_.threads / 128;
  adders_ = fmt::format("    // ---- adds what the warp groups hand over, {}\n", location_in_folder(at));
  adders_ += fmt::format("    if (thread >= 32 && thread < {} && tg::elected()) {{\n", 32 * (groups + 1));
  adders_ += "      const int group = thread / 32 - 1;\n";
  adders_ += fmt::format("      float* const staged = (float*)(shared_memory + {}) + group * {};\n",
                         store_staging_, roles_->store_bytes / 4);
  adders_ += fmt::format("      tg::{}(shared_memory + {} + group * {}, {}[&](const int* at, int{}) {{\n",
                         sum.turn ? "take_turns" : "add_given", handover_, handover_bytes,
                         sum.turn ? turns_text(sum, at) : "", sum.overwrite ? " turn" : "");
  const auto send = [&](const char* verb) {
    for (const Box& box : n.boxes) {
      std::string where = fmt::format("at[0] + {}", box.column);
      for (std::size_t i = 0; i < n.coordinates.size(); ++i)
        where += fmt::format(", at[{}]{}", i + 1, i == n.row_at ? fmt::format(" + {}", box.row) : "");
      adders_ += fmt::format("        {}tg::{}_box(&call.map[{}], staged + {}, {});\n",
                             sum.overwrite ? "  " : "", verb, n.map, box.buffer, where);
    }
  };
  if (sum.overwrite) {
    adders_ += "        if (turn == 0) {\n";
    send("store");
    adders_ += "        } else {\n";
  }
  send("add");
  if (sum.overwrite) adders_ += "        }\n";
  adders_ += "      });\n    }\n";
}

void CudaGridPrinter::operator()(const Accumulate&, const Stmt&) {
  throw InternalError("a sum that the copy engine forms is no event of the schedule");
}

// A thread of the storing warp group waits, or one thread for all.
void CudaGridPrinter::event(const schedule::WaitTurn&, const schedule::Event& e) {
  if (store_) {
    const auto& sum = *as<Accumulate>(e.stmt);
    return out_.line(
        fmt::format("if (thread % 128 == 0) {}", wait_text(sum.order, store_->word, e.stmt->at)));
  }
  const auto& turn = *as<Turn>(e.stmt);
  out_.code();
  const std::string word = turn_word(turn.word);
  out_.line(fmt::format("if (thread == 0) {}", wait_text(turn.order, word, e.stmt->at)));
}

void CudaGridPrinter::event(const schedule::PassTurn&, const schedule::Event& e) {
  if (store_) return out_.line(fmt::format("if (thread % 128 == 0) tg::pass_turn({});", store_->word));
  out_.code();
  out_.line(fmt::format("if (thread == 0) tg::pass_turn({});", turn_word(as<Turn>(e.stmt)->word)));
}

// All threads wait for the turn, and all have contributed when it is passed on.
void CudaGridPrinter::operator()(const Turn& n, const Stmt& s) {
  out_.code();
  if (!n.order) {
    out_.line("__threadfence();");
    out_.barrier(team_barrier_);
    out_.code();
    out_.line(fmt::format("if (thread == 0) tg::pass_turn({});", turn_word(n.word)));
    return;
  }
  const std::string word = turn_word(n.word);
  out_.line(fmt::format("if (thread == 0) {}", wait_text(n.order, word, s->at)));
  out_.barrier(team_barrier_);
}

}  // namespace tegula::codegen
