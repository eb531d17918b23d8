// What a statement does, in a few words: for events without a specific name.
#pragma once
#include <string>

#include "ir/stmt.hpp"

namespace tegula::schedule {

std::string words_of(const ir::StmtNode& stmt);

}  // namespace tegula::schedule
