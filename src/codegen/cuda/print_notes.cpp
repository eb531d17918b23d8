// What a grid does in a slower way than its program could expect.
#include <fmt/format.h>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

void CudaGridPrinter::note(passes::NoteKind kind, const passes::Reason& reason, const Loc& at) {
  if (reason.why.empty()) return;
  passes::add(program_.notes, {kind, reason.at.line() == 0 ? at : reason.at, reason.why, reason.remedy});
}

void CudaGridPrinter::note_gemm(const Gemm& n, const passes::GemmPlan& plan, const Loc& at) {
  const bool by_warps = plan.instruction == passes::GemmInstruction::mma_sync;
  note(by_warps ? passes::NoteKind::mma_sync : passes::NoteKind::multiply_add, plan.fallback, at);
  constexpr const char* no_choice = "leave it out: the compiler decides by the operands";
  const GemmHints& hints = n.hints;
  for (const auto& [given, name] :
       {std::pair{hints.warps != Warps::automatic, ".warps"}, {hints.swap.has_value(), ".swap"}})
    if (given) note(passes::NoteKind::hint, {fmt::format("{} of a product is not followed", name), no_choice}, at);
  if (hints.from_registers && *hints.from_registers != plan.a_in_registers)
    note(passes::NoteKind::hint,
         {fmt::format(".from_registers = {} is not followed", *hints.from_registers),
          plan.a_in_registers ? "copy operand A into a Shared tile to read it there"
                              : "give operand A as a whole fragment of 16 bits, a warp group all of its columns"},
         at);
}

void CudaGridPrinter::note_conversion(const Buffer& fragment, const std::string& why, const Loc& at) {
  note(passes::NoteKind::through_shared_memory,
       {fmt::format("fragment {}: {}", passes::named(fragment), why),
        "use it by its own indices, whole and not reshaped, alike in all loops and products"},
       at);
}

void CudaGridPrinter::note_hints(const Grid& grid, bool has_roles) {
  const GridHints& hints = grid.hints;
  const auto ignored = [&](const std::string& option, const char* remedy) {
    note(passes::NoteKind::hint, {option + " is not followed", remedy}, grid.at);
  };
  if (hints.cluster != 1)
    ignored(fmt::format(".cluster = {}", hints.cluster),
            "leave it out: blocks share loads where the rows of a call's tensors make it pay");
  if (hints.pack != 1) ignored(fmt::format(".pack = {}", hints.pack), "use larger tiles");
  if (has_roles) return;
  if (hints.persistent)
    ignored(".persistent", "blocks stay where they have roles: see what keeps this grid from them, or leave it out");
  if (hints.blocks_per_processor != 0)
    ignored(fmt::format(".blocks_per_processor = {}", hints.blocks_per_processor),
            "leave it out where blocks have no roles");
}

}  // namespace tegula::codegen
