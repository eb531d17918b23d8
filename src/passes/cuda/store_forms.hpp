// Two forms of a store: by the copy engine, whose buffers reduce the space for rings, or by the threads that
// computed the values.
#pragma once
#include <unordered_map>

#include "ir/stmt.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

struct StoreForm {
  ir::Stmt whole;      // which represents both; kept, so that no other statement takes its address
  ir::Body by_engine;  // where the tensor or the tile does not allow it, by threads as well
  ir::Body by_threads;
};

// Keyed by the statement that represents both forms: a copy or accumulation of a fragment. A pass that makes
// other statements of the program before a way is chosen says which forms they have.
using StoreForms = std::unordered_map<const ir::StmtNode*, StoreForm>;

// The body with these forms in place of the statements that stand for them.
ir::Body with_stores(const ir::Body& body, const StoreForms& forms, bool by_engine);
bool has_choices(const ir::Body& body, const StoreForms& forms);
// The body with these values for variables; what stands for two forms there has the forms with these values.
ir::Body substitute(const ir::Body& body, const ir::Substitution& by, StoreForms& forms);

}  // namespace tegula::passes
