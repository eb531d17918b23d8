// Two forms of a store: by the copy engine, whose buffers reduce the space for rings, or by the threads that
// computed the values.
#pragma once
#include <unordered_map>

#include "ir/stmt.hpp"

namespace tegula::passes {

struct StoreForm {
  ir::Body by_engine;  // where the tensor or the tile does not allow it, by threads as well
  ir::Body by_threads;
};

// Keyed by the statement that represents both forms: a copy or accumulation of a fragment.
using StoreForms = std::unordered_map<const ir::StmtNode*, StoreForm>;

// The body with these forms in place of the statements that stand for them.
ir::Body with_stores(const ir::Body& body, const StoreForms& forms, bool by_engine);
bool has_choices(const ir::Body& body, const StoreForms& forms);

}  // namespace tegula::passes
