#include "codegen/cuda/steps.hpp"

#include <cctype>
#include <string_view>
#include <unordered_set>

namespace tegula::codegen {

bool Memory::overlaps(const Memory& other) const {
  return tensor == other.tensor && begin < other.end && other.begin < end &&
         !passes::are_apart(places, other.places) && !passes::are_apart(part, other.part);
}

namespace {

constexpr char mark = '\x01';  // around the name of a definition, in front of its line

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

void add_names(std::string_view line, std::unordered_set<std::string>& names) {
  for (std::size_t i = 0; i < line.size();) {
    std::size_t end = i;
    while (end < line.size() && is_of_name(line[end])) ++end;
    if (end > i) names.emplace(line.substr(i, end - i));
    i = end + 1;
  }
}

}  // namespace

std::string definition(const std::string& name, const std::string& line) { return mark + name + mark + line; }

// From the end, since a name is used after its definition.
std::string without_unused(const std::string& function) {
  std::vector<std::string> kept;
  std::unordered_set<std::string> used;
  for (std::size_t end = function.size(); end > 0;) {
    const std::size_t begin = end < 2 ? std::string::npos : function.rfind('\n', end - 2);
    const std::size_t from = begin == std::string::npos ? 0 : begin + 1;
    std::string line = function.substr(from, end - from);
    end = from;
    const std::size_t name = line.find(mark);
    if (name != std::string::npos) {
      const std::size_t behind = line.find(mark, name + 1);
      if (!used.contains(line.substr(name + 1, behind - name - 1))) continue;
      line.erase(name, behind - name + 1);
    }
    add_names(line, used);
    kept.push_back(std::move(line));
  }
  std::string text;
  for (std::size_t i = kept.size(); i-- > 0;) text += kept[i];
  return text;
}

std::string begun_together(std::string text) {
  const std::size_t wait = text.find(cluster_wait);
  if (wait == std::string::npos || text.find(cluster_barrier) > wait) return text;
  text.replace(wait, std::string_view(cluster_wait).size(), cluster_barrier);
  return text.erase(text.find(cluster_arrival), std::string_view(cluster_arrival).size());
}

std::string text_of(const std::vector<Step>& steps, int depth) {
  std::string text;
  const auto line = [&](const std::string& content, int at) {
    text.append(static_cast<std::size_t>(2 * at), ' ');
    text += content + '\n';
  };
  for (const Step& step : steps) {
    for (const std::string& content : step.lines) line(content, depth);
    if (step.kind == StepKind::code) continue;
    text += text_of(step.body, depth + 1);
    line("}", depth);
  }
  return text;
}

}  // namespace tegula::codegen
