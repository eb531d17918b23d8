#include "passes/note.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tegula::passes {
namespace {

// In the order of the enumeration.
constexpr NoteInfo table[] = {
    {NoteKind::no_roles, "no roles",
     "all threads of a block alternate between loading and multiplying, although some could load for the "
     "others",
     "a `pipelined` loop over tiles with the loads and the product in its body; no exit or assertion around "
     "or between them; branches, `break_if` before the step's loads and numbers of steps that depend only on "
     "tensors that the grid does not write"},
    {NoteKind::stages, "stages", "a loop has fewer tiles in flight than `.stages` requests, or one",
     "smaller tiles, or as many stages as fit"},
    {NoteKind::one_warp_group, "one warp group",
     "one warp group holds more fragments than it has registers for; two would share them",
     "`.threads = 256`"},
    {NoteKind::registers, "registers",
     "fragments take nearly all registers of a thread, or more: some may be in local memory",
     "smaller tiles, or more warp groups: `.threads = 256`"},
    {NoteKind::mma_sync, "mma.sync",
     "a product uses the tensor core instructions of older GPUs, at half of Hopper's rate or less",
     "sums of 64 rows per warp group, or of eight rows and 64 columns; slices of tiles that start at "
     "multiples of 8 rows and 16 columns"},
    {NoteKind::multiply_add, "multiply-add", "a product does not use tensor cores",
     "operands of bf16, f16 or fp8"},
    {NoteKind::by_threads, "by threads",
     "threads load a tile that the copy engine could load, or wait for its rows",
     "the tensor's own type and shape, whole rows of the tile, windows that no limit cuts, or stores through "
     "the same slice"},
    {NoteKind::by_elements, "by elements", "rows of a tile are loaded, or stored, one element at a time",
     "rows of a multiple of 16 bytes that start at multiples of 16 bytes, along the tensor's last dimension"},
    {NoteKind::through_shared_memory, "through shared memory",
     "a fragment is written to shared memory and read back, because it is used in another layout than that "
     "in which it is held",
     "loops over the fragment by its own indices, `f(i, j)` in `parallel(f, [&](Index i, Index j) …)`"},
    {NoteKind::hint, "hint", "an option has no effect", "leave it out"},
    {NoteKind::strides, "strides",
     "the copy engine does not accept the address or strides of a tensor of the call: the whole kernel runs "
     "without that engine",
     "a contiguous copy whose rows start at multiples of 16 bytes"},
    {NoteKind::large_tiles, "large tiles",
     "on the CPU: the tiles of a block move to memory and back, because they are larger than half of a "
     "core's "
     "second-level cache",
     "smaller tiles"},
    {NoteKind::few_blocks, "few blocks",
     "on the CPU: no grid has as many blocks as there are threads, some of which have no work",
     "smaller tiles, or several calls in one"},
    {NoteKind::short_rows, "short rows",
     "on the CPU: rows of so few numbers are reduced one at a time, each by vectors that it does not fill",
     "more numbers in a row"},
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
