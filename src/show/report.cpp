// The page for a browser: one file, well-formed as XML, that asks for nothing from elsewhere.
#include <fmt/format.h>

#include "runtime/files/file_io.hpp"
#include "show/assembler_text.hpp"
#include "show/cuda_texts.hpp"
#include "show/roofline_picture.hpp"
#include "show/svg.hpp"
#include "show/texts.hpp"
#include "tegula/show.hpp"
#include "tegula/version.hpp"

namespace tegula {

namespace {

constexpr std::string_view style = R"(
body { font-family: sans-serif; margin: 1.5em; color: #1b1b1b; }
h2 { border-top: 2px solid #1d4ed8; padding-top: 0.6em; }
pre { font-size: 12px; line-height: 1.35; margin: 0; }
.beside { display: grid; grid-template-columns: 1fr 1fr; gap: 1em; }
.beside figure, .alone { margin: 0; border: 1px solid #cccccc; overflow: auto; max-height: 36em; }
.alone { margin-bottom: 1em; }
figcaption { position: sticky; top: 0; left: 0; background: #eef2fb; padding: 0.3em 0.6em; font-size: 13px; }
.line { display: block; padding: 0 0.6em; min-height: 1.35em; }
.line.chosen { background: #ffe9a8; }
.notes li { margin: 0.3em 0; }
)";

// A line of one text marks those of the others that come from the same place of the program.
constexpr std::string_view script = R"(
document.querySelectorAll('section').forEach(function (section) {
  var lines = Array.from(section.querySelectorAll('.line[data-at]'));
  lines.forEach(function (line) {
    line.addEventListener('mouseenter', function () {
      lines.forEach(function (other) { other.classList.toggle('chosen', other.dataset.at === line.dataset.at); });
    });
    line.addEventListener('click', function () {
      section.querySelectorAll('figure').forEach(function (figure) {
        var found = lines.find(function (other) { return other.dataset.at === line.dataset.at ? figure.contains(other) : false; });
        if (found ? !figure.contains(line) : false) found.scrollIntoView({ block: 'nearest' });
      });
    });
  });
});
)";

// The place in the user's program with which a line of a text ends: `gemm.cpp:12`; empty if there is none.
std::string_view place_of(std::string_view line) {
  const std::size_t comment = line.rfind("// ");
  if (comment == std::string_view::npos) return {};
  std::string_view words = line.substr(comment + 3);
  words = words.substr(0, words.find_first_of(", "));
  words.remove_prefix(words.rfind('/') + 1);
  const std::size_t colon = words.rfind(':');
  const bool is_place =
      colon != std::string_view::npos && words.substr(0, colon).find('.') != std::string_view::npos;
  if (words.ends_with(':')) return {};
  return is_place ? words : std::string_view();
}

std::string lines_of(std::string_view text) {
  std::string html = "<pre>";
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end), at = place_of(line);
    html += at.empty() ? std::string("<span class=\"line\">")
                       : fmt::format("<span class=\"line\" data-at=\"{}\">", shown::Svg::escaped(at));
    html += shown::Svg::escaped(line) + "</span>";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return html + "</pre>\n";
}

std::string figure(std::string_view caption, std::string_view text) {
  return fmt::format("<figure><figcaption>{}</figcaption>{}</figure>\n", caption, lines_of(text));
}

std::string alone(std::string_view text) { return "<div class=\"alone\">" + lines_of(text) + "</div>\n"; }

std::string notes_of(const std::vector<std::string>& notes) {
  if (notes.empty()) return "<p>Nothing fell back to slower code.</p>\n";
  std::string html = "<ul class=\"notes\">\n";
  for (auto& note : notes) html += fmt::format("<li>{}</li>\n", shown::Svg::escaped(note));
  return html + "</ul>\n";
}

// The pictures of one kind, each under its title.
std::string pictures_of(const std::vector<Picture>& pictures, std::string_view kind) {
  std::string html;
  for (auto& picture : pictures) {
    if (picture.name.ends_with(kind)) html += "<div class=\"alone\">" + picture.svg + "</div>\n";
  }
  return html;
}

// What a call has to do, and the least time of a machine for it.
std::string estimates_of(const std::vector<Analysis>& analyses) {
  std::string html;
  for (auto& own : analyses) {
    if (const std::string picture = shown::roofline_picture(own); !picture.empty())
      html += "<div class=\"alone\">" + picture + "</div>\n";
    html += alone(own.text());
  }
  if (html.empty())
    html =
        "<p>The estimate needs the extents of a call: <code>--extent M=4096,N=4096</code> on the command "
        "line, <code>.analyses</code> in C++, <code>extents=</code> in Python.</p>\n";
  return html;
}

std::string section_of(const lang::Kernel& kernel, std::size_t number, const ReportOptions& options) {
  const int architecture = options.architecture;
  const passes::CudaTarget gpu{architecture};
  const shown::CudaTexts texts = shown::cuda_texts(kernel, gpu);
  const auto pictures =
      draw(kernel, {.layout = true, .schedule = true, .shared_memory = true, .architecture = architecture});
  std::string html =
      fmt::format("<section id=\"kernel-{}\">\n<h2>{}</h2>\n", number, shown::Svg::escaped(kernel.name()));
  html += "<h3>Notes</h3>\n" + notes_of(texts.notes);
  html += "<h3>Roofline estimate</h3>\n" +
          estimates_of(number < options.analyses.size() ? options.analyses[number] : std::vector<Analysis>());
  html += "<h3>Program and generated CUDA C++</h3>\n<div class=\"beside\">\n" +
          figure("Program", kernel.text()) +
          figure(fmt::format("CUDA C++ for sm_{}", architecture), texts.cuda) + "</div>\n";
  html += "<h3>Schedule</h3>\n" + pictures_of(pictures, ".schedule");
  for (auto& grid : texts.schedules) {
    if (!grid.schedule) html += fmt::format("<p>{}</p>\n", shown::Svg::escaped(grid.without_roles()));
  }
  html += "<h3>Layouts</h3>\n" + pictures_of(pictures, ".layout");
  html += "<h3>Shared memory</h3>\n" + pictures_of(pictures, ".memory") + alone(texts.memory);
  html += "<h3>Resources</h3>\n" + alone(texts.sizes + shown::assembler_text(kernel, gpu));
  html += "<h3>Program and generated C++ for CPUs</h3>\n<div class=\"beside\">\n" +
          figure("Program", kernel.text()) + figure("C++", shown::cpp_text(kernel)) + "</div>\n";
  return html + "</section>\n";
}

}  // namespace

std::string report(std::span<const lang::Kernel> kernels, const ReportOptions& options) {
  std::string links, sections;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    links +=
        fmt::format("<li><a href=\"#kernel-{}\">{}</a></li>\n", i, shown::Svg::escaped(kernels[i].name()));
    sections += section_of(kernels[i], i, options);
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>What kernels "
      "become</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<h1>What kernels become</h1>\n<p>Tegula {}, "
      "sm_{}</p>\n<nav><ul>\n{}</ul></nav>\n"
      "{}<script>{}</script>\n</body>\n</html>\n",
      style, version(), options.architecture, links, sections, script);
}

void write_report(const std::string& path, std::span<const lang::Kernel> kernels,
                  const ReportOptions& options) {
  OutputFile file(path);
  file.write(report(kernels, options));
  file.commit();
}

}  // namespace tegula
