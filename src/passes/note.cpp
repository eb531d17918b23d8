#include "passes/note.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tegula::passes {
namespace {

// In the order of the enumeration.
constexpr NoteInfo table[] = {
    {NoteKind::no_roles, "no roles",
     "all threads of a block load and multiply by turns, where some could load for the others",
     "a loop over tiles as `pipelined` with the loads and the product in its body; no exit or assertion "
     "around "
     "or between them; branches, `break_if` in front of the step's loads and the number of steps by what is "
     "read from tensors that the grid does not write"},
    {NoteKind::stages, "stages", "a loop has fewer tiles on their way than `.stages` asks for, or one",
     "smaller tiles, or as many stages as there is room for"},
    {NoteKind::one_warp_group, "one warp group",
     "one warp group holds more fragments than it has registers, where two would share them",
     "`.threads = 256`"},
    {NoteKind::registers, "registers",
     "fragments take nearly all registers of a thread, or more: some may lie in local memory",
     "smaller tiles, or more warp groups: `.threads = 256`"},
    {NoteKind::mma_sync, "mma.sync",
     "a product is done by the tensor cores' instructions of older GPUs, at half of Hopper's rate or less",
     "sums of 64 rows for a warp group, or of eight rows and 64 columns; parts of tiles that begin at "
     "multiples of 8 rows and 16 columns"},
    {NoteKind::multiply_add, "multiply-add", "a product is done without tensor cores",
     "operands of bf16, f16 or fp8"},
    {NoteKind::by_threads, "by threads",
     "threads bring a tile that the copy engine could, or wait for its rows",
     "the tensor's own type and shape, whole rows of the tile, windows that no limit cuts, or stores through "
     "the same slice"},
    {NoteKind::by_elements, "by elements", "rows of a tile are brought one element at a time",
     "rows of 16 bytes or a multiple that begin at multiples of 16 bytes, along the tensor's last dimension"},
    {NoteKind::through_shared_memory, "through shared memory",
     "a fragment is written to shared memory and read back, because it is used in another order than it is "
     "held in",
     "loops over the fragment by its own indices, `f(i, j)` in `parallel(f, [&](Index i, Index j) …)`"},
    {NoteKind::hint, "hint", "an option was given that nothing follows", "leave it out"},
    {NoteKind::strides, "strides",
     "a tensor of the call lies as the copy engine cannot take it: the whole kernel runs without that engine",
     "a copy whose rows begin at multiples of 16 bytes, elements of a row side by side"},
    {NoteKind::large_tiles, "large tiles",
     "on the CPU: the tiles of a block move to memory and back, because they are larger than half of a "
     "core's "
     "second-level cache",
     "smaller tiles"},
};

bool is_same(const Note& a, const Note& b) {
  return a.kind == b.kind && a.text == b.text && a.at.line() == b.at.line() &&
         std::string_view(a.at.file_name()) == b.at.file_name();
}

}  // namespace

std::span<const NoteInfo> note_kinds() { return table; }

std::string format(const Note& note) {
  return fmt::format("{}: {}: {}; {}", short_location(note.at), table[static_cast<int>(note.kind)].name,
                     note.text, note.remedy);
}

std::string named(const ir::Buffer& tile) {
  return fmt::format("`{}` ({})", tile.name, short_location(tile.at));
}

std::vector<std::string> format(const std::vector<Note>& notes) {
  std::vector<std::string> lines;
  for (const Note& note : notes) lines.push_back(format(note));
  return lines;
}

void add(std::vector<Note>& notes, const Note& note) {
  if (std::none_of(notes.begin(), notes.end(), [&](const Note& own) { return is_same(own, note); }))
    notes.push_back(note);
}

}  // namespace tegula::passes
