#include "passes/cuda/moved_elements.hpp"

#include "ir/inline_reads.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool is_in_memory(const Access& access) { return access.view.buffer->space != Space::fragment; }

// How often each variable is stored as an element of its own type.
UseCounts stores_of(const Body& body, const std::unordered_map<const Variable*, DType>& loaded) {
  UseCounts counts;
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* store = as<Store>(s);
    if (!store || store->value->op != Op::variable || !is_in_memory(store->to)) return;
    const auto own = loaded.find(store->value->variable.get());
    if (own != loaded.end() && own->second == store->to.view.buffer->type) ++counts[own->first];
  });
  return counts;
}

}  // namespace

std::unordered_set<const Variable*> moved_elements(const Body& body) {
  std::unordered_map<const Variable*, DType> loaded;
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* load = as<Load>(s);
    if (!load || !is_in_memory(load->from)) return;
    const DType type = load->from.view.buffer->type;
    if (type == e4m3 || type == e5m2) loaded.emplace(load->variable.get(), type);
  });
  std::unordered_set<const Variable*> result;
  if (loaded.empty()) return result;
  const UseCounts uses = count_uses(body);
  for (const auto& [variable, stores] : stores_of(body, loaded))
    if (uses.at(variable) == stores) result.insert(variable);
  return result;
}

}  // namespace tegula::passes
