#include "show/roofline_picture.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "show/svg.hpp"

namespace tegula::shown {
namespace {

constexpr double plot_margin = 16, plot_left = 64, plot_width = 560, plot_height = 260, plot_letters = 10;

// A logarithmic axis from one power of ten to another.
struct Axis {
  int low = 0, high = 1;
  double length = 1;

  Axis(double least, double most, double own_length)
      : low(static_cast<int>(std::floor(std::log10(least)))),
        high(std::max(low + 1, static_cast<int>(std::ceil(std::log10(most))))),
        length(own_length) {}
  double least() const { return std::pow(10, low); }
  double most() const { return std::pow(10, high); }
  double at(double value) const { return length * (std::log10(value) - low) / (high - low); }
};

std::string rate_text(double rate) {
  for (const auto& [unit, name] : {std::pair{1e12, "TFLOPS"}, {1e9, "GFLOPS"}, {1e6, "MFLOPS"}})
    if (rate >= unit) return fmt::format("{:.4g} {}", rate / unit, name);
  return fmt::format("{:.4g} FLOPS", rate);
}

class Plot {
 public:
  Plot(const Axis& across, const Axis& up) : across_(across), up_(up) {}

  double x(double intensity) const { return plot_margin + plot_left + across_.at(intensity); }
  double y(double rate) const { return plot_margin + 24 + plot_height - up_.at(rate); }

  void axes() {
    svg_.rect({x(across_.least()), y(up_.most()), plot_width, plot_height},
              "fill=\"#fafafa\" stroke=\"#555555\"");
    for (int power = across_.low; power <= across_.high; ++power)
      label(x(std::pow(10, power)), y(up_.least()) + 12, fmt::format("{:g}", std::pow(10, power)), "middle");
    for (int power = up_.low; power <= up_.high; ++power)
      label(x(across_.least()) - 4, y(std::pow(10, power)) + 3, rate_text(std::pow(10, power)), "end");
    label(x(across_.most()), y(up_.least()) + 26, "operations per byte of memory", "end");
  }
  // What memory allows, up to the highest ceiling.
  void slope(double bytes, double highest) {
    const double end = std::min(highest / bytes, across_.most()),
                 begin = std::max(across_.least(), up_.least() / bytes);
    svg_.line(x(begin), y(begin * bytes), x(end), y(end * bytes), "stroke=\"#1d4ed8\" stroke-width=\"1.5\"");
    const double middle = std::sqrt(begin * end);
    label(x(middle) + 8, y(middle * bytes) + 10, fmt::format("memory, {:.4g} GB/s", bytes / 1e9), "start");
  }
  void ceiling(double rate, double bytes, const std::string& type) {
    const double begin = std::max(rate / bytes, across_.least());
    svg_.line(x(begin), y(rate), x(across_.most()), y(rate), "stroke=\"#b45309\" stroke-width=\"1.5\"");
    label(x(across_.most()) - 4, y(rate) + 12, fmt::format("{}: {}", type, rate_text(rate)), "end");
  }
  void kernel(double intensity, double rate) {
    svg_.line(x(intensity), y(up_.least()), x(intensity), y(rate),
              "stroke=\"#999999\" stroke-dasharray=\"3 3\"");
    svg_.circle(x(intensity), y(rate), 4, "fill=\"#b91c1c\"");
    const bool is_right = across_.at(intensity) > 0.75 * plot_width;
    label(x(intensity) + (is_right ? -8 : 8), y(rate) + 12, fmt::format("predicted: {}", rate_text(rate)),
          is_right ? "end" : "start");
  }
  std::string document(const std::string& title) {
    svg_.text(plot_margin, plot_margin + 10, title, "font-size=\"12\"");
    return svg_.document(2 * plot_margin + plot_left + plot_width, y(up_.least()) + 26 + plot_margin, title);
  }

 private:
  void label(double at_x, double at_y, const std::string& words, const char* anchor) {
    svg_.text(at_x, at_y, words,
              fmt::format("font-size=\"{}\" fill=\"#333333\" text-anchor=\"{}\"", plot_letters, anchor));
  }

  Svg svg_;
  Axis across_, up_;
};

}  // namespace

std::string roofline_picture(const Analysis& analysis) {
  const Machine& machine = analysis.machine;
  const double bytes = machine.memory_bytes;
  double operations = 0, highest = 0, lowest = 0;
  for (const auto& [type, count] : analysis.flops) {
    const double rate = machine.rate_of(type);
    operations += count;
    highest = std::max(highest, rate);
    lowest = lowest > 0 ? std::min(lowest, rate) : rate;
  }
  if (operations <= 0 || analysis.memory_bytes <= 0) return "";
  const double rate = operations / analysis.seconds;
  Plot plot(Axis(std::min(analysis.intensity, lowest / bytes) / 2,
                 std::max(analysis.intensity, highest / bytes) * 2, plot_width),
            Axis(std::min(rate, lowest) / 2, highest, plot_height));
  plot.axes();
  for (const auto& [type, count] : analysis.flops)
    if (count > 0) plot.ceiling(machine.rate_of(type), bytes, type);
  plot.slope(bytes, highest);
  plot.kernel(analysis.intensity, rate);
  return plot.document(fmt::format("{} on {}: {:.4g} operations per byte, bound by {}", analysis.kernel,
                                   machine.words, analysis.intensity, analysis.bound));
}

}  // namespace tegula::shown
