// Loops that a program has written out, one for each tap of a stencil, load elements that later ones load
// again. The compiler of the text would keep all of them in registers, so that most are spilled.
#include "codegen/cuda/element_printer.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// The words that loops may load before an order is kept among them, and those from which on one is.
constexpr std::int64_t most_words_in_flight = 64, most_words_of_run = 256;

}  // namespace

// The registers of a thread that hold what the loop loads of shared tiles.
std::int64_t ElementPrinter::words_of_shared_tiles(const For& n, const Stmt& s) const {
  const auto found = layouts_.loops.find(s.get());
  if (found == layouts_.loops.end()) return 0;
  std::int64_t bytes = 0;
  for (const Stmt& inner : n.body)
    if (const auto* load = as<Load>(inner); load && load->from.view.buffer->space == Space::shared)
      bytes += found->second.register_count() * load->from.view.buffer->type.bytes();
  return bytes / 4;
}

bool ElementPrinter::loads_more_than_registers(const Body& statements) const {
  std::int64_t words = 0, most = 0;
  for (const Stmt& s : statements) {
    const auto* n = as<For>(s);
    if (n && n->kind == LoopKind::parallel)
      words += words_of_shared_tiles(*n, s);
    else if (!as<Declare>(s))
      words = 0;
    most = std::max(most, words);
  }
  return most > most_words_of_run;
}

void ElementPrinter::keep_few_words(const For& n, const Stmt& s) {
  words_in_flight_ += words_of_shared_tiles(n, s);
  if (!is_crowded_ || words_in_flight_ <= most_words_in_flight) return;
  out_.line("tg::keep_order();");
  words_in_flight_ = 0;
}

}  // namespace tegula::codegen
