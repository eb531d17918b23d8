#include "ir/rows.hpp"

#include "ir/effects.hpp"
#include "ir/lists.hpp"

namespace tegula::ir {

namespace {

std::string mistake(const Effects& own, const Effects& inside, std::int64_t runs) {
  if (own.leaves) return "leaves a loop or the block";
  if (own.reports) return "prints or asserts";
  for (const VariablePtr& v : own.assigned)
    if (!contains(inside.defined, v)) return "assigns a Var that was declared outside";
  for (const Region& r : own.regions) {
    const Buffer& b = *r.view->buffer;
    if (!is_write(r.touch) || contains(inside.declared, r.view->buffer)) continue;
    if (b.space != Space::fragment) return "writes `" + b.name + "`, which is not a fragment";
    if (b.rank() == 0 || b.extent(0) % runs != 0)
      return "writes `" + b.name + "`, whose rows are not " + std::to_string(runs) + " equal runs";
  }
  return "";
}

}  // namespace

std::vector<BufferPtr> written_rows(const If& branch) {
  const Effects inside = all_effects(branch.then);
  std::vector<BufferPtr> result;
  for (const Region& r : inside.regions) {
    const BufferPtr& b = r.view->buffer;
    if (is_write(r.touch) && !contains(inside.declared, b) && !contains(result, b)) result.push_back(b);
  }
  return result;
}

std::optional<RowsMistake> mistake_in_rows(const If& branch) {
  const Effects inside = all_effects(branch.then);
  std::optional<RowsMistake> result;
  for_each_stmt(branch.then, [&](const Stmt& s) {
    if (result) return;
    const std::string what = mistake(effects(s), inside, static_cast<std::int64_t>(branch.of_rows.size()));
    if (!what.empty()) result = {s->at, what};
  });
  return result;
}

}  // namespace tegula::ir
