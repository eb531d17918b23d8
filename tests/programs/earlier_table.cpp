#include "tests/programs/earlier_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

namespace programs {

namespace {

constexpr std::size_t names = 2, cells = 7;             // of a row: program and form, and what follows
constexpr std::size_t registers = 3, seconds = 5;       // cells that differ from run to run, or with any change
constexpr const char* heading = "roles | rings | products | threads x registers | spilled bytes | NVRTC s | notes";

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// Between the bars.
Cells cells_of(const std::string& line) {
  Cells result;
  std::istringstream stream(line.substr(1));
  for (std::string cell; std::getline(stream, cell, '|');) result.push_back(trimmed(cell));
  return result;
}

bool differ(const Cells& a, const Cells& b) {
  for (std::size_t i = 0; i < cells; ++i)
    if (i != registers && i != seconds && a[i] != b[i]) return true;
  return false;
}

std::string both(const std::string& before, const std::string& now) {
  if (before == now) return now;
  return fmt::format("{} → {}", before.empty() ? "none" : before, now.empty() ? "none" : now);
}

std::string row_text(const std::vector<std::string>& name, bool is_first, const Cells& before, const Cells& now) {
  Cells texts;
  for (std::size_t i = 0; i < cells; ++i) texts.push_back(both(before[i], now[i]));
  return fmt::format("| {} | {} | {} |\n", is_first ? name[1] : "", is_first ? name[2] : "",
                     fmt::join(texts, " | "));
}

}  // namespace

Table read_table(const std::string& page) {
  Table result;
  std::string family, line;
  std::vector<std::string> name;
  std::istringstream stream(page);
  while (std::getline(stream, line)) {
    if (line.starts_with("### ")) family = line.substr(4);
    if (line.starts_with("## ")) family.clear();
    if (family.empty() || !line.starts_with("| ")) continue;
    const Cells all = cells_of(line);
    if (all.size() != names + cells || all[0] == "program") continue;
    if (!all[0].empty()) name = {family, all[0], all[1]};
    if (!name.empty()) result[name].emplace_back(all.begin() + names, all.end());
  }
  return result;
}

std::string side_by_side(const Table& before, const Table& now) {
  std::string text;
  for (const auto& [name, grids] : now) {
    const auto found = before.find(name);
    if (found == before.end()) continue;
    const auto& old = found->second;
    bool changed = old.size() != grids.size();
    for (std::size_t i = 0; i < std::min(old.size(), grids.size()); ++i) changed |= differ(old[i], grids[i]);
    if (!changed) continue;
    const Cells missing(cells);
    for (std::size_t i = 0; i < std::max(old.size(), grids.size()); ++i)
      text += row_text(name, i == 0, i < old.size() ? old[i] : missing, i < grids.size() ? grids[i] : missing);
  }
  if (text.empty()) return text;
  return fmt::format("| program | form | {} |\n|---|---|---|---|---|---|---|---|---|\n{}", heading, text);
}

}  // namespace programs
