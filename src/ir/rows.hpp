// Branches that affect only some rows of fragments: an If with `of_rows`.
#pragma once
#include <optional>

#include "ir/stmt.hpp"

namespace tegula::ir {

// The fragments that the branch writes and that live longer than it.
std::vector<BufferPtr> written_rows(const If& branch);

struct RowsMistake {
  Loc at;
  std::string what;  // "writes `s1`, which is not a fragment"
};
// The first statement that would do more than change rows of such fragments.
std::optional<RowsMistake> mistake_in_rows(const If& branch);

}  // namespace tegula::ir
