#include "tegula/tune.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "cuda/timing.hpp"
#include "measure/arguments.hpp"
#include "measure/tuned_cache.hpp"
#include "runtime/call/binding.hpp"
#include "runtime/execution/children.hpp"
#include "runtime/execution/kernel_cache.hpp"
#include "show/svg.hpp"
#include "tegula/error.hpp"
#include "tegula/lang/kernel.hpp"
#include "tegula/stream.hpp"
#include "tegula/version.hpp"

namespace tegula {

namespace {

using measure::Arguments, measure::outputs_of, measure::TunedCache;

constexpr const char* was_running = " was being measured";  // after a key, while a candidate runs on a GPU

// A bar on a terminal, where nobody asks for something else.
void draw(const std::string& stage, double share) {
  if (isatty(STDERR_FILENO) == 0) return;
  constexpr int width = 30;
  const int full = static_cast<int>(width * share);
  fmt::print(stderr, "\r{:<10} [{:#<{}}{:<{}}] {:3.0f} %{}", stage, "", full, "", width - full, 100 * share,
             share >= 1 ? "\n" : "");
  std::fflush(stderr);
}

Device device_of(Target target, std::span<const Argument> args) {
  if (target.device() != DeviceKind::cuda) return Device::cpu();
  for (const Argument& own : args)
    if (own.tensor() && own.tensor()->device.kind == DeviceKind::cuda) return own.tensor()->device;
  return Device::cuda();
}

std::string text_of(const Argument& argument) {
  if (const TensorRef* tensor = argument.tensor())
    return fmt::format("{}[{}|{}]", tensor->dtype.name(), fmt::join(tensor->shape, ","),
                       fmt::join(tensor->strides, ","));
  return std::visit([](auto number) { return fmt::format("{}", number); }, *argument.number());
}

// Whether something in this process may use CUDA: then child processes of it cannot.
bool has_cuda_started() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

bool are_on_host(std::span<const Argument> args) {
  return std::none_of(args.begin(), args.end(), [](const Argument& own) {
    return own.tensor() && own.tensor()->device.kind == DeviceKind::cuda;
  });
}

class Tuning {
 public:
  Tuning(std::span<const Candidate> candidates, std::span<const Argument> args, const TuneOptions& options)
      : candidates_(candidates), args_(args), options_(options), kernels_(candidates.size()) {}
  Tuned run();

 private:
  void build();
  std::string key() const;
  std::optional<Tuned> known(const std::string& key) const;
  std::string device_words() const;
  void compile_all();
  void compile_in_children();
  void expect();
  void check(const lang::Kernel& kernel, std::span<const Argument> args) const;
  void measure_in_children();
  void measure_here(const std::string& key);
  Timing timed(const Function& function, std::span<const Argument> args) const;
  void report(const char* stage, std::size_t done) const {
    const double share = static_cast<double>(done) / static_cast<double>(candidates_.size());
    options_.progress ? options_.progress(stage, share) : draw(stage, share);
  }
  void fail(std::size_t i, const std::string& why) {
    if (rows_[i].failure.empty()) rows_[i].failure = why;
  }
  int jobs() const {
    return options_.jobs > 0 ? options_.jobs : std::max(1U, std::thread::hardware_concurrency());
  }
  std::chrono::milliseconds limit() const {
    return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * options_.seconds));
  }

  const std::span<const Candidate> candidates_;
  const std::span<const Argument> args_;
  const TuneOptions& options_;
  std::vector<std::optional<lang::Kernel>> kernels_;
  std::vector<Tuned::Row> rows_;
  Target target_ = Target::automatic();
  Device device_;
  bool apart_ = false;  // all that touches the GPU runs in child processes
  std::vector<Tensor> expected_;
};

// Programs that are refused are rows that do not count.
void Tuning::build() {
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    rows_.push_back({i, candidates_[i].text});
    try {
      kernels_[i].emplace(candidates_[i].kernel());
    } catch (const Error& error) { fail(i, error.what()); }
  }
}

std::string Tuning::device_words() const {
  if (!apart_) return measure::device_words(target_, device_);
  const ChildResult result = run_child(limit(), [&]() -> std::string {
    try {
      return measure::device_words(target_, device_);
    } catch (const std::exception& error) { return std::string("! ") + error.what(); }
  });
  if (!result.end.empty()) throw DeviceError("tune: the name of the GPU cannot be determined: " + result.end);
  if (result.output.starts_with("! ")) throw DeviceError(result.output.substr(2));
  return result.output;
}

std::string Tuning::key() const {
  std::string name = options_.name;
  KeyBuilder builder;
  builder.add(version());
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (name.empty() && kernels_[i]) name = kernels_[i]->name();
    builder.add(candidates_[i].text).add(kernels_[i] ? kernels_[i]->text() : "");
  }
  std::vector<std::string> args;
  for (const Argument& own : args_) args.push_back(text_of(own));
  return fmt::format("{} {} on {} {}", name, fmt::join(args, " "), device_words(), builder.key());
}

std::optional<Tuned> Tuning::known(const std::string& key) const {
  const auto best = options_.cached ? measure::tuned_cache().find(key) : std::nullopt;
  if (!best) return std::nullopt;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].text == best->candidate)
      return Tuned{{{i, best->candidate, best->seconds, 0, ""}}, true};
  }
  return std::nullopt;
}

// Into the cache of kernels, from which measuring takes them.
void Tuning::compile_all() {
  std::atomic<std::size_t> next = 0, done = 0;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < candidates_.size();) {
      try {
        if (kernels_[i]) compile(*kernels_[i], target_);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        fail(i, error.what());
      }
      const std::lock_guard lock(mutex);
      report("compiling", ++done);
    }
  };
  std::vector<std::jthread> threads;
  for (int t = 1; t < std::min<int>(jobs(), static_cast<int>(candidates_.size())); ++t)
    threads.emplace_back(work);
  work();
}

void Tuning::compile_in_children() {
  constexpr std::chrono::minutes most{10};
  std::size_t count = 0;
  const auto work = [&](std::size_t i) -> std::string {
    try {
      if (kernels_[i]) compile(*kernels_[i], target_);
      return "";
    } catch (const std::exception& error) { return error.what(); }
  };
  run_children(candidates_.size(), jobs(), most, work, [&](std::size_t i, const ChildResult& result) {
    if (!result.end.empty())
      fail(i, "its compilation ends with " + result.end);
    else if (!result.output.empty())
      fail(i, result.output);
    report("compiling", ++count);
  });
}

void Tuning::expect() {
  if (!options_.checks) return;
  const auto first = std::find_if(kernels_.begin(), kernels_.end(), [](auto& k) { return k.has_value(); });
  if (first == kernels_.end()) return;
  const Arguments copies(args_, Device::cpu());
  if (options_.expected)
    options_.expected(copies.values());
  else
    compile(**first, Target::interpreter()).call_in_order(copies.values());
  expected_ = outputs_of(**first, copies.values());
}

void Tuning::check(const lang::Kernel& kernel, std::span<const Argument> args) const {
  const std::vector<Tensor> found = outputs_of(kernel, args);
  for (std::size_t i = 0; i < expected_.size() && i < found.size(); ++i) {
    if (!all_close(found[i], expected_[i], options_.tolerance, options_.tolerance))
      throw Error(fmt::format("wrong: output {} differs from what is expected", i));
  }
}

// "median spread" of a candidate that is right.
void Tuning::measure_in_children() {
  const auto work = [&](std::size_t i) -> std::string {
    if (!kernels_[i] || !rows_[i].failure.empty()) return "left out";
    try {
      const Function function = compile(*kernels_[i], target_);
      const Arguments own(args_, device_);
      function.call_in_order(own.values());
      check(*kernels_[i], own.values());
      const Timing timing = time_in_order(function, own.values(), options_.time);
      return fmt::format("{:.9g} {:.9g}", timing.median(), timing.spread());
    } catch (const std::exception& error) { return std::string("! ") + error.what(); }
  };
  std::size_t count = 0;
  run_children(candidates_.size(), 1, limit(), work, [&](std::size_t i, const ChildResult& result) {
    if (!result.end.empty())
      fail(i, result.end == "time-out" ? fmt::format("does not end within {:.3g} s", options_.seconds)
                                       : "crashes: " + result.end);
    else if (result.output.starts_with("! "))
      fail(i, result.output.substr(2));
    else if (result.output != "left out")
      std::sscanf(result.output.c_str(), "%lf %lf", &rows_[i].seconds, &rows_[i].spread);
    report("measuring", ++count);
  });
}

// The journal says which candidate runs: if it takes the process with it, the next search knows.
void Tuning::measure_here(const std::string& key) {
  const TunedCache cache = measure::tuned_cache();
  const std::string journal = key + was_running;
  const auto stuck = cache.find(journal);
  const Stream stream = current_stream(device_);
  for (std::size_t i = 0; i < candidates_.size(); report("measuring", ++i)) {
    if (!kernels_[i] || !rows_[i].failure.empty()) continue;
    if (stuck && stuck->candidate == rows_[i].text) {
      fail(i, "an earlier search ended while it ran");
      continue;
    }
    cache.put(journal, {rows_[i].text, 0});
    try {
      const Function function = compile(*kernels_[i], target_);
      const Arguments own(args_, device_);
      Event end(device_);
      function.call_in_order(own.values());
      end.record(stream);
      const auto deadline = std::chrono::steady_clock::now() + limit();
      while (!end.is_done()) {
        if (std::chrono::steady_clock::now() > deadline) {
          fail(i, fmt::format("does not end within {:.3g} s and occupies the device: repeat the search for "
                              "the other candidates",
                              options_.seconds));
          return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      stream.synchronize();
      check(*kernels_[i], own.values());
      const Timing timing = time_in_order(function, own.values(), options_.time);
      rows_[i].seconds = timing.median(), rows_[i].spread = timing.spread();
    } catch (const std::exception& error) { fail(i, error.what()); }
    cache.remove(journal);
  }
}

Tuned Tuning::run() {
  if (candidates_.empty()) throw ArgumentError("tune: there is no candidate; give one or more");
  apart_ = options_.target.device() == DeviceKind::cuda && !has_cuda_started() && are_on_host(args_);
  build();
  for (std::size_t i = 0; i < candidates_.size() && target_ == Target::automatic(); ++i) {
    target_ = options_.target;
    if (target_ == Target::automatic() && kernels_[i])
      target_ = compile(*kernels_[i], options_.target).target();
  }
  device_ = device_of(target_, args_);
  const std::string own = key();
  if (auto result = known(own)) return std::move(*result);
  apart_ ? compile_in_children() : compile_all();
  expect();
  device_.kind == DeviceKind::cuda && !apart_ ? measure_here(own) : measure_in_children();
  for (Tuned::Row& row : rows_)
    if (row.seconds == 0) fail(row.candidate, "was not measured");
  std::stable_sort(rows_.begin(), rows_.end(), [](const Tuned::Row& a, const Tuned::Row& b) {
    if (a.failure.empty() != b.failure.empty()) return a.failure.empty();
    return a.seconds < b.seconds;
  });
  Tuned result{std::move(rows_), false};
  if (options_.cached && result.rows.front().failure.empty())
    measure::tuned_cache().put(own, {result.rows.front().text, result.rows.front().seconds});
  return result;
}

}  // namespace

Tuned tune_candidates(std::span<const Candidate> candidates, std::span<const Argument> args,
                      const TuneOptions& options) {
  return Tuning(candidates, args, options).run();
}

const Tuned::Row& Tuned::best() const {
  if (!rows.empty() && rows.front().failure.empty()) return rows.front();
  std::string all;
  for (const Row& row : rows) all += fmt::format("\n{}: {}", row.text, row.failure);
  throw Error("tune: every candidate is excluded" + all);
}

std::string Tuned::text() const {
  std::size_t width = 9;
  for (const Row& row : rows) width = std::max(width, row.text.size());
  std::string text = fmt::format("{:<{}} {:>12} {:>8} {:>7}\n", "candidate", width, "us", "within", "ratio");
  for (const Row& row : rows) {
    if (!row.failure.empty()) {
      text += fmt::format("{:<{}} {}\n", row.text, width, row.failure);
      continue;
    }
    text += fmt::format("{:<{}} {:>12.2f} {:>6.1f} % {:>7.2f}\n", row.text, width, 1e6 * row.seconds,
                        100 * row.spread, row.seconds / rows.front().seconds);
  }
  return from_cache ? text + "(from the cache)\n" : text;
}

std::string Tuned::svg() const {
  constexpr double line = 20, size = 12, bar = 360, gap = 10;
  double names = 0, slowest = 0;
  for (const Row& row : rows) {
    names = std::max(names, shown::Svg::text_width(row.text, size));
    slowest = std::max(slowest, row.seconds);
  }
  shown::Svg svg;
  double y = gap;
  for (const Row& row : rows) {
    svg.text(gap, y + size, row.text, "font-size=\"12\"");
    const double x = 2 * gap + names, length = slowest > 0 ? bar * row.seconds / slowest : 0;
    if (row.failure.empty()) {
      svg.rect({x, y, length, line - 6}, "fill=\"#4878a8\"");
      svg.text(x + length + gap, y + size, fmt::format("{:.2f} us", 1e6 * row.seconds), "font-size=\"12\"");
    } else {
      svg.text(x, y + size, row.failure.substr(0, 60), "font-size=\"12\" fill=\"#a04040\"");
    }
    y += line;
  }
  return svg.document(3 * gap + names + bar + 120, y + gap, "times of the candidates");
}

}  // namespace tegula
