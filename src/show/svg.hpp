// Pictures as SVG text: shapes in the order in which they are drawn. All letters have the same width, so the
// size of a text is known without the font, up to rounding by viewers. `style` is written as SVG has it:
// `fill="none"`.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>

namespace tegula::shown {

struct Box {
  double x, y, width, height;
};

class Svg {
 public:
  static double text_width(std::string_view words, double size) { return 0.64 * size * letters(words); }

  void rect(const Box& b, std::string_view style) {
    body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}/>\n", number(b.x),
                         number(b.y), number(b.width), number(b.height), style);
  }
  void line(double x1, double y1, double x2, double y2, std::string_view style) {
    body_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" {}/>\n", number(x1), number(y1),
                         number(x2), number(y2), style);
  }
  void circle(double x, double y, double radius, std::string_view style) {
    body_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" {}/>\n", number(x), number(y), number(radius),
                         style);
  }
  void path(std::string_view steps, std::string_view style) {
    body_ += fmt::format("<path d=\"{}\" {}/>\n", steps, style);
  }
  void text(double x, double y, std::string_view words, std::string_view style = "") {
    body_ += fmt::format("<text x=\"{}\" y=\"{}\"{}{}>{}</text>\n", number(x), number(y),
                         style.empty() ? "" : " ", style, escaped(words));
  }
  // What a pointer on the group shows.
  void title(std::string_view words) { body_ += fmt::format("<title>{}</title>\n", escaped(words)); }
  // What follows has that style unless it says otherwise, until `end_group`.
  void begin_group(std::string_view style) {
    body_ += fmt::format("<g{}{}>\n", style.empty() ? "" : " ", style);
  }
  void end_group() { body_ += "</g>\n"; }

  std::string document(double width, double height, std::string_view title) const {
    const std::string w = number(std::ceil(width)), h = number(std::ceil(height));
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" xml:space=\"preserve\">\n"
        "<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n{3}</svg>\n",
        w, h, escaped(title), body_);
  }

  // To a tenth of a pixel.
  static std::string number(double value) {
    std::string text = fmt::format("{:.1f}", value);
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    return text;
  }
  static std::string escaped(std::string_view words) {
    std::string text;
    for (const char c : words) {
      if (c == '&')
        text += "&amp;";
      else if (c == '<')
        text += "&lt;";
      else if (c == '>')
        text += "&gt;";
      else if (c == '"')
        text += "&quot;";
      else
        text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML has no control characters
    }
    return text;
  }

 private:
  static double letters(std::string_view words) {
    int count = 0;
    for (const char c : words) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    return count;
  }

  std::string body_;
};

}  // namespace tegula::shown
