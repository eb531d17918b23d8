// tune: tiles and plans of an operator's call by measurement, each in a process of its own.
#include "tegula/tune.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "analyses.hpp"
#include "call.hpp"
#include "commands.hpp"
#include "compare.hpp"
#include "measure/tuned_cache.hpp"
#include "names.hpp"
#include "ops/pieces/plan_choices.hpp"
#include "progress.hpp"
#include "runtime/execution/process.hpp"
#include "runtime/files/file_io.hpp"
#include "tegula/error.hpp"
#include "tegula/stream.hpp"
#include "tegula/version.hpp"

namespace tegula::tool {

namespace {

struct TuneRequest {
  CallTexts call;
  int most = 12, jobs = 0;
  double seconds = 60;
  std::string svg, exported, imported, measured, compiled;
  bool anew = false;
};

// Which options of an operator are the extents of its tiles.
struct TileOptions {
  const char *rows, *columns, *depth;  // depth may be null
};
std::optional<TileOptions> tile_options(const ops::Operator& op) {
  const auto has = [&](const char* name) {
    return std::any_of(op.options.begin(), op.options.end(), [&](auto& own) { return own.name == name; });
  };
  if (has("tile_m") && has("tile_n"))
    return TileOptions{"tile_m", "tile_n", has("tile_k") ? "tile_k" : nullptr};
  if (has("tile_queries") && has("tile_keys")) return TileOptions{"tile_queries", "tile_keys", nullptr};
  return std::nullopt;
}

// Extents of the call as the model needs them, from the first two inputs: of products m, n, k, of attention
// tokens and features.
std::vector<Tiles> proposed(const Call& call, const TileOptions& tiles, const Machine& machine) {
  const Tensor &a = call.inputs.at(call.op.inputs[0].name), &b = call.inputs.at(call.op.inputs[1].name);
  if (!tiles.depth) {
    const auto& q = a.shape();
    return tiles_of_attention(q.size() > 1 ? q[q.size() - 3] : 1, b.shape()[b.shape().size() - 3], q.back(),
                              a.dtype(), machine);
  }
  const std::int64_t k = std::max(a.shape().back(), std::int64_t{1});
  const std::int64_t m = std::max(a.nelements() / k, std::int64_t{1}),
                     n = std::max(b.nelements() / k, std::int64_t{1});
  return tiles_of_product(m, n, k, a.dtype(), machine);
}

std::string option_text(const TileOptions& names, const Tiles& own) {
  std::string text = fmt::format("{}={} {}={}", names.rows, own.rows, names.columns, own.columns);
  return names.depth && own.depth > 0 ? text + fmt::format(" {}={}", names.depth, own.depth) : text;
}

// A candidate is `planned`, options such as `tile_m=64`, or a decision of the plan such as `attention.0=2`.
bool is_decision(const std::string& candidate) { return candidate.find('.') < candidate.find('='); }

CallTexts with_options(CallTexts texts, const std::string& candidate) {
  std::istringstream in(candidate);
  for (std::string own; in >> own;)
    if (own != "planned" && !is_decision(own)) texts.options.push_back(own);
  return texts;
}

// For each decision of the plan the other candidates that fit, by the plan's estimate the fastest first.
std::vector<std::string> other_plans(const Call& call) {
  const ops::PlanRecorder recorder;
  call.op.kernels(call.inputs, call.options, call.target);
  struct Other {
    double ratio;
    std::string text;
  };
  std::vector<Other> others;
  for (const ops::PlanDecision& decision : recorder.decisions())
    for (std::size_t i = 0; i < decision.estimates.size(); ++i) {
      const double ratio = decision.estimates[i] / decision.estimates[decision.best];
      if (i != decision.best && std::isfinite(ratio)) others.push_back({ratio, decision.text(i)});
    }
  std::stable_sort(others.begin(), others.end(), [](auto& a, auto& b) { return a.ratio < b.ratio; });
  std::vector<std::string> texts;
  for (const Other& other : others) texts.push_back(other.text);
  return texts;
}

// An example of the same type, small enough for the formula, with these tiles.
void check_candidate(const Call& call, const std::string& candidate) {
  const DType type = call.inputs.at(call.op.inputs[0].name).dtype();
  const ops::Case* example = &call.op.check_cases.front();
  for (auto& own : call.op.check_cases)
    if (own.described().at(call.op.inputs[0].name).dtype() == type) example = &own;
  ops::Case with_tiles = *example;
  for (auto& text : with_options({}, candidate).options) {
    const auto [name, value] = split_pair("--option", text);
    with_tiles.options[name] = value;
  }
  const CaseVerdict verdict = check_case(call.op, with_tiles, call.target, 1);
  if (verdict.right()) return;
  for (auto& output : verdict.outputs)
    if (!output.right())
      throw Error(fmt::format("wrong: {} of example {}: {}", output.output, example->name, output.wrong));
  throw Error(verdict.failure);
}

// The call itself has the result that the plan's own choice has, up to rounding.
void check_against_plan(const ops::Tensors& expected, const ops::Tensors& found) {
  constexpr double tolerance = 2e-2;
  for (auto& [name, tensor] : expected)
    if (!all_close(found.at(name).to(Device::cpu()), tensor.to(Device::cpu()), tolerance, tolerance))
      throw Error(fmt::format("wrong: {} differs from the result of the plan's own choice", name));
}

// What the processes do that measure one candidate.
void measure_candidate(const TuneRequest& request) {
  const bool only_compiles = !request.compiled.empty();
  const std::string& candidate = only_compiles ? request.compiled : request.measured;
  Call call = resolve(with_options(request.call, candidate));
  const auto choose = [&] {
    if (is_decision(candidate)) ops::choose_candidates(candidate);
  };
  if (only_compiles) {
    choose();
    for (auto& kernel : call.op.kernels(call.inputs, call.options, call.target)) compile(kernel, call.target);
    return;
  }
  const bool on_gpu = call.target.device() == DeviceKind::cuda;
  const Device device = on_gpu ? Device::cuda() : Device::cpu();
  if (on_gpu) call.inputs = ops::copied_to(device, call.inputs);
  const Call plain = resolve(request.call);
  const ops::Tensors expected = call.op.run(call.inputs, plain.options, call.target);
  choose();
  check_candidate(call, candidate);
  check_against_plan(expected, call.op.run(call.inputs, call.options, call.target));
  const Timing timing = time([&] { call.op.run(call.inputs, call.options, call.target); }, device);
  fmt::print("measured {:.9g} {:.9g}\n", timing.median(), timing.spread());
}

std::vector<std::string> arguments_of(const TuneRequest& request, const std::string& mode,
                                      const std::string& candidate) {
  std::vector<std::string> all{std::filesystem::read_symlink("/proc/self/exe").string(),
                               "tune",
                               request.call.op,
                               "--target",
                               request.call.target,
                               mode,
                               candidate};
  const auto add = [&](const char* option, const std::vector<std::string>& values) {
    for (auto& value : values) all.push_back(option), all.push_back(value);
  };
  if (!request.call.example.empty()) add("--case", {request.call.example});
  add("--input", request.call.inputs), add("--random", request.call.random),
      add("--option", request.call.options);
  return all;
}

// The last line that a process has printed, or what ended it.
std::string failure_of(const ProcessResult& result, const std::string& printed, double seconds) {
  if (result.timed_out) return fmt::format("does not end within {:.3g} s", seconds);
  std::string last;
  std::istringstream in(printed);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) last = line;
  if (result.exit_code > 128) return fmt::format("crashes: signal {}", result.exit_code - 128);
  return last.starts_with("tegula: ") ? last.substr(8) : last;
}

class Search {
 public:
  Search(const TuneRequest& request, std::vector<std::string> candidates)
      : request_(request), candidates_(std::move(candidates)) {}

  Tuned run() {
    Tuned result;
    for (std::size_t i = 0; i < candidates_.size(); ++i) result.rows.push_back({i, candidates_[i]});
    compile_all();
    Progress progress("measuring");
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      measure(result.rows[i]);
      progress.update(static_cast<double>(i + 1) / static_cast<double>(candidates_.size()));
    }
    std::stable_sort(result.rows.begin(), result.rows.end(), [](auto& a, auto& b) {
      return a.failure.empty() != b.failure.empty() ? a.failure.empty() : a.seconds < b.seconds;
    });
    return result;
  }

 private:
  std::chrono::milliseconds limit() const {
    return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * request_.seconds));
  }
  // Side by side, into the cache of kernels; what goes wrong is seen when it is measured.
  void compile_all() const {
    const int jobs = request_.jobs > 0 ? request_.jobs
                                       : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    Progress progress("compiling");
    std::atomic<std::size_t> next = 0;
    std::size_t done = 0;
    std::mutex mutex;
    const auto work = [&] {
      const TemporaryDirectory directory;
      for (std::size_t i; (i = next++) < candidates_.size();) {
        run_process(arguments_of(request_, "--compile", candidates_[i]), directory.file("out"), limit());
        const std::lock_guard lock(mutex);
        progress.update(static_cast<double>(++done) / static_cast<double>(candidates_.size()));
      }
    };
    std::vector<std::jthread> threads;
    for (int t = 1; t < std::min<int>(jobs, static_cast<int>(candidates_.size())); ++t)
      threads.emplace_back(work);
    work();
  }
  void measure(Tuned::Row& row) const {
    const TemporaryDirectory directory;
    const std::string file = directory.file("out");
    const ProcessResult result = run_process(arguments_of(request_, "--measure", row.text), file, limit());
    std::ifstream in(file);
    const std::string printed((std::istreambuf_iterator<char>(in)), {});
    const std::size_t at = printed.find("measured ");
    if (!result.succeeded() || at == std::string::npos ||
        std::sscanf(printed.c_str() + at, "measured %lf %lf", &row.seconds, &row.spread) != 2)
      row.failure = failure_of(result, printed, request_.seconds);
  }

  const TuneRequest& request_;
  const std::vector<std::string> candidates_;
};

std::string key_of(const TuneRequest& request, Target target) {
  const CallTexts& own = request.call;
  const Device device = target.device() == DeviceKind::cuda ? Device::cuda() : Device::cpu();
  return fmt::format("operator {} {} {} {} {} on {} {}", own.op, own.example, fmt::join(own.inputs, " "),
                     fmt::join(own.random, " "), fmt::join(own.options, " "),
                     measure::device_words(target, device), version());
}

void print_result(const TuneRequest& request, const Tuned& tuned) {
  fmt::print("{}", tuned.text());
  if (!request.svg.empty()) {
    std::ofstream out(request.svg);
    out << tuned.svg();
    if (!out.flush()) throw Error(request.svg + " cannot be written");
  }
  const std::string& best = tuned.best().text;
  if (best == "planned") return fmt::print("the plan's own choice is the fastest\n");
  if (is_decision(best)) return fmt::print("set TEGULA_PLAN={} in the environment\n", best);
  std::string options;
  std::istringstream in(best);
  for (std::string own; in >> own;) options += " --option " + own;
  fmt::print("use{}, or these members of `tiles` in C++\n", options);
}

// Tiles by the model where options of the operator take them, otherwise what its plan chooses among.
std::vector<std::string> candidates_of(const Call& call, const Machine& machine, int most) {
  std::vector<std::string> all{"planned"};
  if (const auto tiles = tile_options(call.op)) {
    for (const Tiles& each : proposed(call, *tiles, machine)) all.push_back(option_text(*tiles, each));
  } else {
    for (std::string& each : other_plans(call)) all.push_back(std::move(each));
  }
  if (all.size() == 1)
    throw ArgumentError(
        fmt::format("tune: the plan of {} has no choice for this call: its tiles follow from the extents; "
                    "tegula::tune() tries kernels of your own",
                    call.op.name));
  if (std::ssize(all) > most + 1) all.resize(static_cast<std::size_t>(most) + 1);
  return all;
}

void tune_operator(const TuneRequest& request) {
  if (!request.imported.empty()) fmt::print("{} entries imported\n", import_tuned(request.imported));
  if (!request.exported.empty()) fmt::print("{} entries exported\n", export_tuned(request.exported));
  if (request.call.op.empty()) {
    if (request.imported.empty() && request.exported.empty())
      throw ArgumentError("tune: name an operator, or give --export or --import");
    return;
  }
  if (!request.measured.empty() || !request.compiled.empty()) return measure_candidate(request);
  operator_named(request.call.op);
  expect_device(target_named(request.call.target));
  const Call call = resolve(request.call);
  const std::string key = key_of(request, call.target);
  const measure::TunedCache cache = measure::tuned_cache();
  if (const auto best = cache.find(key); best && !request.anew)
    return print_result(request, {{{0, best->candidate, best->seconds, 0, ""}}, true});
  const std::vector<std::string> candidates = candidates_of(call, machine_of(call.target), request.most);
  const Tuned tuned = Search(request, candidates).run();
  if (tuned.rows.front().failure.empty()) cache.put(key, {tuned.best().text, tuned.best().seconds});
  print_result(request, tuned);
}

}  // namespace

void add_tune(cli::App& app) {
  auto* command = app.add_subcommand(
      "tune", "Measures candidate tiles or plans for a call of an operator and keeps the fastest");
  auto request = std::make_shared<TuneRequest>();
  add_call_options(*command, request->call);
  command->get_option("operator")->required(false);
  command
      ->add_option("--most", request->most,
                   "The number of candidates to measure, the most promising by the model first")
      ->check(cli::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--seconds", request->seconds, "Time limit of one candidate")->capture_default_str();
  command->add_option("--jobs", request->jobs, "Candidates that compile in parallel; 0: one per processor");
  command->add_option("--svg", request->svg, "Write the times as a bar chart to this file");
  command->add_flag("--anew", request->anew, "Measure again, even if the cache has a result");
  command->add_option("--export", request->exported, "Write all cached results to this file");
  command->add_option("--import", request->imported, "Add the results of such a file to the cache");
  command->add_option("--measure", request->measured, "Measure this candidate alone, in this process")
      ->hidden();
  command->add_option("--compile", request->compiled, "Compile this candidate")->hidden();
  command->footer(
      "Candidates are tiles that a model of the machine proposes, or, for operators without options for "
      "tiles, "
      "what the\n"
      "operator's plan chooses among. Each is compiled, checked against the operator's formula on a small "
      "example and against\n"
      "the plan's own choice on this call, and measured, in a process of its own: one that crashes or does "
      "not "
      "end is a row\n"
      "of the table, and the search goes on.\n\n"
      "Examples:\n"
      "  tegula tune gemm --random a=4096x4096:bf16 --random b=4096x4096:bf16 --target cuda --svg gemm.svg\n"
      "  tegula tune attention --random q=1x8192x16x128:bf16 --random k=1x8192x16x128:bf16 --random "
      "v=1x8192x16x128:bf16\n"
      "  tegula tune --export tuned.tsv");
  command->callback([request] { tune_operator(*request); });
}

}  // namespace tegula::tool
