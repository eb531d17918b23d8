// Whether a text is one well-formed XML element, as far as pictures use XML.
#pragma once
#include <regex>
#include <string>
#include <vector>

namespace tegula {

// Empty, or what is wrong.
inline std::string xml_fault(const std::string& text) {
  static const std::regex open(R"re(<([a-z0-9]+)((?: [a-z:A-Z0-9-]+="[^"<]*")*) ?(/?)>)re"),
      close("</([a-z0-9]+)>"), entity("&(amp|lt|gt|quot);");
  std::vector<std::string> inside;
  bool ended = false;
  for (auto at = text.cbegin(); at != text.cend();) {
    std::smatch match;
    const auto found = [&](const std::regex& r) {
      return std::regex_search(at, text.cend(), match, r, std::regex_constants::match_continuous);
    };
    const std::string place = " at: " + std::string(at, text.cend()).substr(0, 60);
    if (*at == '<' && found(open)) {
      if (ended) return "a second element" + place;
      if (match[3].length() == 0) inside.push_back(match[1]);
    } else if (*at == '<' && found(close)) {
      if (inside.empty() || inside.back() != match[1]) return "closes what is not open" + place;
      inside.pop_back();
      ended = inside.empty();
    } else if (*at == '<' || *at == '>' || (*at == '&' && !found(entity))) {
      return "a bare character" + place;
    } else if (*at != '&') {
      if (inside.empty() && *at != '\n') return "text outside" + place;
      ++at;
      continue;
    }
    at += match.length();
  }
  return ended ? "" : "not closed";
}

inline int count_of(const std::string& text, const std::string& words) {
  int count = 0;
  for (auto at = text.find(words); at != std::string::npos; at = text.find(words, at + words.size())) ++count;
  return count;
}

}  // namespace tegula
