// Notes on what the compiler did more slowly than a program suggests: they arise where a plan is made, are
// collected with the program, and have one text form for Function::notes(), `tegula show --resources` and
// TEGULA_DUMP.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/view.hpp"

namespace tegula::passes {

enum class NoteKind : std::uint8_t {
  no_roles,
  stages,
  one_warp_group,
  registers,
  mma_sync,
  multiply_add,
  by_threads,
  by_elements,
  through_shared_memory,
  hint,
  strides,
  large_tiles,
  few_blocks,
  short_rows,
};

struct NoteInfo {
  NoteKind kind;
  std::string_view name;  // as notes begin with: `no roles`
  std::string_view meaning, remedy;
};

// All kinds, for documentation.
std::span<const NoteInfo> note_kinds();

struct Note {
  NoteKind kind;
  Loc at;  // in the user's program
  std::string text, remedy;
};

// `gemm.cpp:41: mma.sync: the sum has 96 rows, …; use …`
std::string format(const Note& note);
std::vector<std::string> format(const std::vector<Note>& notes);

// How notes call a tile, whose name is the compiler's: `s0` (gemm.cpp:31).
std::string named(const ir::Buffer& tile);

// Each note once: statements are printed for several loops that a loop becomes.
void add(std::vector<Note>& notes, const Note& note);

}  // namespace tegula::passes
