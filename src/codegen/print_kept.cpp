// Tiles that a thread keeps for its next blocks.
#include <fmt/format.h>

#include "codegen/grid_printer.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// As KeptTile of the device headers.
constexpr std::int64_t record_bytes = 48;

std::string condition_text(const std::vector<std::size_t>& same) {
  std::string result = "next != nullptr";
  for (const std::size_t i : same) result += fmt::format(" && next[{0}] == block[{0}]", i);
  return result;
}

}  // namespace

// Their declarations. All records come first, so that they can be cleared together.
std::vector<std::string> GridPrinter::place_kept(const Grid& grid, CpuProgram::Block& block) {
  std::vector<std::pair<const Copy*, const KeptTiles*>> all;
  for_each_stmt(grid.body, [&](const Stmt& stmt) {
    const auto found = kept_.find(stmt.get());
    if (found != kept_.end()) all.emplace_back(as<Copy>(stmt), &found->second);
  });
  std::vector<std::string> records;
  for (const auto& [copy, tiles] : all) records.push_back(allocate(tiles->count * record_bytes));
  block.record_bytes = static_cast<std::size_t>(scratch_);
  std::vector<std::string> result;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [copy, tiles] = all[i];
    const std::string name = kept_names_[copy->to.buffer.get()] = names_.unique("kept");
    result.push_back(fmt::format("const KeptTiles {} = {{(KeptTile*){}, {}, {}, {}, {}}};", name, records[i],
                                 allocate(tiles->count * tiles->bytes), tiles->count, tiles->bytes,
                                 condition_text(tiles->same)));
  }
  block.kept_bytes = static_cast<std::size_t>(scratch_);
  return result;
}

void GridPrinter::fill_unless_kept(const Copy& n, const Stmt& s, const MemoryView& from,
                                   const std::string& fill) {
  const auto kept = kept_.find(s.get());
  if (kept == kept_.end()) return out_.line(fill, s->at);
  const std::string step = kept->second.step ? variable_text(kept->second.step) : "0";
  out_.line(fmt::format("if (!{}.has({}, {}, {}, {})) {}", kept_names_.at(n.to.buffer.get()), step, from.base,
                        inside_text(from), pointer_name(n.to.buffer), fill),
            s->at);
}

}  // namespace tegula::codegen
