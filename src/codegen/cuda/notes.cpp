#include "codegen/cuda/notes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "ir/visit.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/registers.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

std::string loads_of(const passes::Roles& roles) {
  if (roles.one_loader) return "one thread loads by the copy engine";
  if (std::all_of(roles.rings.begin(), roles.rings.end(), [](const auto& ring) { return ring.by_rows; }))
    return "threads load rows in 16-byte chunks";
  return roles.copies.empty() ? "threads load" : "the copy engine and threads load";
}

std::string slots_of(const passes::Roles& roles) {
  std::string text;
  for (const passes::RingPlan& ring : roles.rings) {
    for (std::size_t i = 0; i < ring.tiles.size(); ++i)
      for (const BufferPtr& tile : ring.at(i))
        text += fmt::format("{}{}", text.empty() ? "" : tile == ring.tiles[i] ? " " : "/", tile->name);
    text += fmt::format(" x {},", ring.depth);
  }
  text.pop_back();
  return text;
}

std::string slots_of(const passes::CopyRings& rings) {
  std::vector<std::string> texts(static_cast<std::size_t>(rings.count()));
  for (const auto& [loop, ring] : rings.loops) {
    if (ring.goes_back) continue;
    std::string& text = texts[static_cast<std::size_t>(ring.number)];
    for (const BufferPtr& tile : ring.tiles) text += fmt::format("{}{}", text.empty() ? "" : " ", tile->name);
    text += fmt::format(" x {}", ring.depth);
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Operand A as a fragment of the program, which the compiler puts into a tile of its own for the product:
// that tile stands at the product's place.
bool was_fragment(const View& operand, const Loc& product) {
  const Buffer& tile = *operand.buffer;
  return tile.space == Space::shared && tile.at.line() == product.line() &&
         tile.at.column() == product.column() && std::string_view(tile.at.file_name()) == product.file_name();
}

passes::Reason reason_of_moving(const Gemm& n, const passes::GemmPlan& plan) {
  if (n.a.buffer->type.bits() == 8)
    return {"operand A of 8 bits is not read from registers",
            "convert it to bf16 or f16, or copy it to a Shared tile"};
  if (plan.swapped)
    return {"the operands are exchanged, and operand A then is the one that cannot be read from registers",
            "use a multiple of 64 rows to multiply from registers"};
  if (plan.parts.along_n > 1)
    return {fmt::format("operand A is needed by {} parts of the block, each with its own columns",
                        plan.parts.along_n),
            "use fewer threads, or 64 rows per warp group"};
  return {"operand A is not all rows of a fragment, with a multiple of 16 along k",
          "multiply all rows of a fragment, starting at a multiple of 16 columns"};
}

}  // namespace

void Notes::add(passes::NoteKind kind, const passes::Reason& reason, const Loc& at) {
  if (reason.why.empty()) return;
  passes::add(all_, {kind, reason.at.line() == 0 ? at : reason.at, reason.why, reason.remedy});
}

void Notes::of_gemm(const Gemm& n, const passes::GemmPlan& plan, const Loc& at) {
  const bool by_warps = plan.instruction == passes::GemmInstruction::mma_sync;
  add(by_warps ? passes::NoteKind::mma_sync : passes::NoteKind::multiply_add, plan.fallback, at);
  if (plan.instruction == passes::GemmInstruction::wgmma && was_fragment(n.a, at))
    add(passes::NoteKind::through_shared_memory, reason_of_moving(n, plan), at);
  constexpr const char* no_choice = "leave it out: the compiler decides from the operands";
  const GemmHints& hints = n.hints;
  if (hints.warps != Warps::automatic)
    add(passes::NoteKind::hint, {".warps of a product has no effect", no_choice}, at);
  if (hints.swap && *hints.swap != plan.swapped)
    add(passes::NoteKind::hint,
        {".swap of a product has no effect",
         "give the sum a multiple of 64 columns and of eight rows, and operand B in a Shared tile"},
        at);
  if (hints.from_registers && *hints.from_registers != plan.a_in_registers)
    add(passes::NoteKind::hint,
        {fmt::format(".from_registers = {} has no effect", *hints.from_registers),
         plan.a_in_registers
             ? "copy operand A into a Shared tile to read it there"
             : "make operand A a whole 16-bit fragment, with all its columns in one warp group"},
        at);
}

void Notes::of_loop(const Buffer& fragment, bool by_one_thread, const Loc& at) {
  if (!by_one_thread) return of_conversion(fragment, at);
  add(passes::NoteKind::through_shared_memory,
      {fmt::format(
           "fragment {}: several threads hold each of its elements, and the loop reads memory that it writes",
           passes::named(fragment)),
       "read that memory in one loop, and write it in the next"},
      at);
}

void Notes::of_conversion(const Buffer& fragment, const Loc& at) {
  add(passes::NoteKind::through_shared_memory,
      {fmt::format("fragment {} is used here in another layout than that in which its threads hold it",
                   passes::named(fragment)),
       "use it with its own indices, whole and not reshaped, in the same way in all loops and products; a "
       "vector of "
       "rows that is used along columns moves in any case: let it do so outside of loops"},
      at);
}

std::string way_of(const Body& body, int threads, const passes::GridPlan& plan,
                   const passes::CudaTarget& target) {
  const passes::Roles* roles = plan.roles ? &*plan.roles : nullptr;
  constexpr const char* names[] = {"multiply-add", "mma.sync", "wgmma"};
  int counts[3] = {};
  for (const auto& [gemm, own] : passes::team_products(body, roles ? roles->consumers : threads))
    ++counts[static_cast<int>(passes::plan_gemm(*gemm, own, target).instruction)];
  std::string text = "no roles";
  if (roles)
    text =
        fmt::format("roles: {} warp group{}, {}; slots: {}", roles->consumers / 128,
                    roles->consumers > 128 ? "s compute" : " computes", loads_of(*roles), slots_of(*roles));
  if (!roles && !plan.copy_rings.empty())
    text += fmt::format("; all threads load ahead; slots: {}", slots_of(plan.copy_rings));
  const char* before = "; products: ";
  for (int i = 2; i >= 0; --i)
    if (counts[i] > 0) text += fmt::format("{}{} by {}", std::exchange(before, ", "), counts[i], names[i]);
  return text;
}

void Notes::of_hints(const Grid& grid, const passes::GridPlan& plan, const passes::CudaTarget& target) {
  const passes::Roles* roles = plan.roles ? &*plan.roles : nullptr;
  const passes::Reason& not_spread = plan.not_spread;
  if (!not_spread.why.empty())
    add(passes::NoteKind::hint, {".cluster is not followed: " + not_spread.why, not_spread.remedy},
        not_spread.at);
  if (!roles && grid.hints.persistent)
    add(passes::NoteKind::hint,
        {".persistent is not followed",
         "only blocks with roles are persistent: see what prevents roles in this grid, or leave it out"},
        grid.at);
  if (const auto own = passes::note_on_registers(grid, roles, target)) passes::add(all_, *own);
}

void Notes::of_blocks(const Grid& grid, int blocks) {
  const int asked = grid.hints.blocks_per_processor;
  if (asked == 0 || asked == blocks) return;
  add(passes::NoteKind::hint,
      {fmt::format(".blocks_per_processor = {} became {}", asked, blocks),
       "use smaller tiles, .threads = 128 or fewer stages for more blocks, or leave it out"},
      grid.at);
}

}  // namespace tegula::codegen
