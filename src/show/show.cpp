#include "tegula/show.hpp"

#include <fmt/format.h>

#include <map>

#include "show/assembler_text.hpp"
#include "show/cuda_texts.hpp"
#include "show/folders.hpp"
#include "show/layout_picture.hpp"
#include "show/memory_picture.hpp"
#include "show/schedule_picture.hpp"
#include "show/texts.hpp"
#include "tegula/error.hpp"

namespace tegula {

namespace {

constexpr int blackwell = 100;

passes::CudaTarget gpu_of(int architecture) {
  if (architecture != 80 && architecture != 90 && architecture != blackwell)
    throw ArgumentError(fmt::format("show: there is no architecture {}; choose 80, 90 or 100", architecture));
  return {architecture};
}

std::string passes_of(const lang::Kernel& kernel, const ShowOptions& options) {
  return fmt::format("---- as written\n{}\n{}", kernel.text(),
                     options.for_gpu ? shown::pass_differences(kernel, gpu_of(options.architecture))
                                     : shown::pass_differences(kernel));
}

Picture layout_of(const shown::GridLayouts& grid) {
  shown::LayoutPage page{fmt::format("{}: {} threads", grid.name, grid.threads), {}, {}};
  for (const shown::LayoutLine& line : grid.lines) {
    if (line.layout)
      page.add(line.words, *line.layout);
    else
      page.products.push_back(line.words);
  }
  return {grid.name + ".layout", shown::layout_picture(page)};
}

bool draws_any(const ShowOptions& options) {
  return options.layout || options.schedule || options.shared_memory;
}

std::vector<Picture> pictures_of(const shown::CudaTexts& texts, const ShowOptions& options) {
  std::vector<Picture> pictures;
  for (auto& grid : texts.layouts) {
    if (options.layout) pictures.push_back(layout_of(grid));
  }
  for (auto& grid : texts.schedules) {
    if (options.schedule && grid.schedule)
      pictures.push_back({grid.name + ".schedule", shown::schedule_picture(*grid.schedule)});
  }
  for (auto& grid : texts.memories) {
    if (options.shared_memory) pictures.push_back({grid.name + ".memory", shown::memory_picture(grid)});
  }
  return pictures;
}

// The kernel whose texts are formed, and the how many-th of its name it is.
struct Shown {
  const lang::Kernel& kernel;
  int number = 1;
  // Of a picture, or of another text that begins with the kernel's name.
  std::string file(const std::string& name) const {
    const std::string& own = kernel.name();
    return number == 1 ? name : fmt::format("{}.{}{}", own, number, name.substr(own.size()));
  }
};

// A line for each file, and for each grid that has no schedule to draw.
std::string draw_into(const Shown& of, const shown::CudaTexts& texts, const ShowOptions& options) {
  std::string lines;
  shown::prepare_folder("show: --svg", options.pictures);
  for (auto& picture : pictures_of(texts, options))
    lines += shown::write_complete(options.pictures, of.file(picture.name) + ".svg", picture.svg) + "\n";
  for (auto& grid : texts.schedules) {
    if (options.schedule && !grid.schedule) lines += grid.without_roles() + "\n";
  }
  return lines;
}

std::string texts_for_gpu(const Shown& of, const ShowOptions& options) {
  const passes::CudaTarget gpu = gpu_of(options.architecture);
  const shown::CudaTexts texts = shown::cuda_texts(of.kernel, gpu);
  const bool draws = !options.pictures.empty();
  std::string text;
  if (options.architecture == blackwell) text += "// compute capability 10.0: the code for 8.0; never run\n";
  if (options.cuda) text += texts.cuda + "\n";
  if (draws) text += draw_into(of, texts, options);
  if (options.layout && !draws) text += texts.layout + "\n";
  if (options.schedule && !draws) text += texts.schedule + "\n";
  if (options.shared_memory && !draws) text += texts.memory + "\n";
  if (options.resources) text += texts.resources() + shown::assembler_text(of.kernel, gpu) + "\n";
  return text;
}

std::string text_of(const Shown& of, const ShowOptions& options) {
  std::string text;
  if (!options.pictures.empty() && !draws_any(options))
    throw ArgumentError("show: layouts, schedules and shared memory can be drawn; ask for one of them");
  const bool for_gpu = options.cuda || draws_any(options) || options.resources;
  if (options.ir || !(options.passes || options.cpp || for_gpu)) text += of.kernel.text() + "\n";
  if (options.passes) text += passes_of(of.kernel, options);
  if (options.cpp) text += shown::cpp_text(of.kernel) + "\n";
  return for_gpu ? text + texts_for_gpu(of, options) : text;
}

}  // namespace

std::string show(const lang::Kernel& kernel, const ShowOptions& options) {
  return text_of({kernel}, options);
}

std::string show(std::span<const lang::Kernel> kernels, const ShowOptions& options) {
  std::string text;
  std::map<std::string, int> numbers;
  for (const lang::Kernel& kernel : kernels) text += text_of({kernel, ++numbers[kernel.name()]}, options);
  return text;
}

std::vector<Picture> draw(const lang::Kernel& kernel, const ShowOptions& options) {
  return pictures_of(shown::cuda_texts(kernel, gpu_of(options.architecture)), options);
}

}  // namespace tegula
