// Kinds of notes, their form, and the page that lists them.
#include "passes/note.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace tegula::passes {
namespace note_test {

TEST(Note, ThePageHasEveryKind) {
  std::ifstream file(TEGULA_SOURCE "/docs/show.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  int position = 0;
  for (const NoteInfo& row : note_kinds()) {
    EXPECT_EQ(static_cast<int>(row.kind), position++);
    EXPECT_NE(text.find(fmt::format("| {} | {} | {} |\n", row.name, row.meaning, row.remedy)),
              std::string::npos)
        << row.name;
  }
}

TEST(Note, IsMadeOnceAndNamesLineKindReasonAndRemedy) {
  const Note note{NoteKind::mma_sync, Loc::current(), "few rows", "use more"};
  std::vector<Note> notes;
  for (int i = 0; i < 2; ++i) add(notes, note);
  add(notes, {NoteKind::mma_sync, Loc::current(), "few rows", "use more"});
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(format(notes)[0], fmt::format("note_test.cpp:{}: mma.sync: few rows; use more", note.at.line()));
}

}  // namespace
}  // namespace tegula::passes
