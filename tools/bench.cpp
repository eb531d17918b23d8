// bench: times of an operator, beside a rival's in the same rounds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "analyses.hpp"
#include "bench/library/measure.hpp"
#include "commands.hpp"
#include "map.hpp"
#include "names.hpp"
#include "rivals.hpp"
#include "sparse_tables.hpp"
#include "tegula/analyze.hpp"
#include "tegula/error.hpp"
#include "tegula/stream.hpp"
#include "tegula/time.hpp"

namespace tegula::tool {

namespace {

struct BenchRequest {
  CallTexts call;
  int rounds = 0;
  std::string rivals, maps, map;
  MapSample sample;
};

// Enough for about two seconds, in which every round runs all the work twice.
int rounds_for(const std::vector<bench::Work>& works) {
  double seconds = 0;
  for (auto& work : works) seconds += 2 * bench::seconds_of(work) + 0.01;
  return static_cast<int>(std::clamp(std::lround(2 / seconds), 3L, 101L)) | 1;
}

void print_row(const Call& call, const bench::Times& times, double predicted,
               const std::optional<Rival>& rival) {
  const double seconds = times.median(0);
  const auto work = call.op.work(call.inputs, call.options);
  fmt::print("{:<24} {:<24} {:>10.3f} {:>9.1f} {:>7.1f} {:>10.3f} {:>6.2f}", call.op.name, call.name,
             1e3 * seconds, 1e-9 * work.flops / seconds, 1e-9 * work.bytes / seconds, 1e3 * predicted,
             predicted / seconds);
  if (rival) fmt::print(" {:>10.3f} {:>7.2f}  {}", 1e3 * times.median(1), times.ratio(1, 0), rival->name);
  fmt::print("\n");
  std::fflush(stdout);
}

// The same call of operands that are where it runs; of a GPU, copies of them are not measured.
Call on_its_device(const Call& call) {
  Call there = call;
  if (call.target.device() == DeviceKind::cuda) there.inputs = ops::copied_to(Device::cuda(), call.inputs);
  return there;
}

// On a GPU, measures between events on its stream and with flushed caches: for a call of a few microseconds,
// launching and waiting take longer than running.
bench::Times measured(const std::vector<bench::Work>& works, Target target, int rounds) {
  if (target.device() == DeviceKind::cpu)
    return bench::interleaved(works, rounds > 0 ? rounds : rounds_for(works));
  bench::Times times;
  for (const bench::Work& work : works) {
    times.seconds.push_back(time(work, Device::cuda(), {.rounds = rounds}).seconds);
    rounds = static_cast<int>(times.seconds.back().size());
  }
  return times;
}

// The least time of the kernels of a call by the rates of a machine, one after the other.
double predicted_seconds(const bench::Work& work, Target target) {
  const Machine& own = machine_of(target);
  RecordedCalls recorded;
  work();
  double seconds = 0;
  for (const Analysis& analysis : analyses_of(recorded, own)) seconds += analysis.seconds;
  return seconds;
}

void print_heading() {
  fmt::print("{:<24} {:<24} {:>10} {:>9} {:>7} {:>10} {:>6} {:>10} {:>7}\n", "operator", "case", "ms",
             "GFLOP/s", "GB/s", "model, ms", "share", "rival, ms", "ratio");
}

void measure(const Call& call, int rounds) {
  const Call there = on_its_device(call);
  std::vector<bench::Work> works{[&] { there.op.run(there.inputs, there.options, there.target); }};
  const auto rival = rival_of(there);
  if (rival) works.push_back(rival->work);
  for (auto& work : works) work();  // compiles what is not compiled yet
  const double predicted = predicted_seconds(works[0], call.target);
  print_row(call, measured(works, call.target, rounds), predicted, rival);
}

bool is_operator(const std::string& name) {
  auto& all = ops::operators();
  return std::any_of(all.begin(), all.end(), [&](auto& op) { return op.name == name; });
}

std::vector<std::string> operators_like(const std::string& family) {
  std::vector<std::string> names;
  for (auto& op : ops::operators())
    if (op.name.starts_with(family + "_")) names.push_back(op.name);
  return names;
}

void bench_operator(const BenchRequest& request, int& exit_code) {
  auto& texts = request.call;
  if (!request.maps.empty()) {
    if (!texts.says_nothing())
      throw ArgumentError(
          "bench: --map takes its calls from the operator's table; leave out cases, inputs and options");
    const auto& schema = ops::find_schema(operator_named(texts.op).name);
    if (!draw_maps(schema, target_named(texts.target), request.maps, {request.map, request.sample}))
      exit_code = 1;
    return;
  }
  const bool whole = texts.example.empty() && texts.inputs.empty() && texts.random.empty();
  const bool on_gpu = cuda_device_count() > 0 && (texts.target == "cuda" || texts.target == "auto");
  if (whole && on_gpu && texts.options.empty() && has_gpu_table(texts.op)) {
    if (!print_gpu_table(texts.op, request.rivals)) exit_code = 1;
    return;
  }
  if (has_gpu_table(texts.op) && !is_operator(texts.op))
    throw ArgumentError(
        fmt::format("bench: the tables of `{}` are those of a GPU{}; measure {}", texts.op,
                    cuda_device_count() > 0 ? ", with neither cases nor options" : ", and there is none",
                    fmt::join(operators_like(texts.op), " or ")));
  auto& op = operator_named(texts.op);
  expect_device(target_named(texts.target));
  if (!whole) {
    const Call call = resolve(texts);  // what is refused gets no heading
    print_heading();
    return measure(call, request.rounds);
  }
  print_heading();
  for (auto& example : op.bench_cases) {
    CallTexts one = texts;
    one.example = example.name;
    measure(resolve(one), request.rounds);
  }
}

constexpr const char* bench_footer =
    "Times are medians. `ratio` is the competitor's time divided by Tegula's, as the median over\n"
    "rounds: above 1, Tegula is faster. Competitors are oneDNN, if installed, for products of f32, and\n"
    "dense attention for block-sparse attention. `model` is the minimum time according to `analyze` and\n"
    "the rates of the machine (that of the GPU, or cpu); `share` is that time divided by the measured\n"
    "time. GFLOP/s and GB/s count the minimum that the operator needs. Without inputs, all examples meant\n"
    "for measuring are measured. Results are not checked; see `tegula check`. With --target cuda, a time\n"
    "is that of a call on a GPU, from launch to end.\n"
    "On a machine with a GPU, `nsa` (forward and backward) and the sparse operators without inputs are\n"
    "measured at realistic sizes, with a sample of each result checked. TFLOPS count visible pairs,\n"
    "`nominal` whole blocks; `x dense` is the rate relative to dense attention or, if tokens select,\n"
    "the time of dense attention divided by Tegula's. If a sample is wrong, the exit status is 1.\n"
    "\n"
    "A cell of a map is the time that the call would take at the best rates of the map, divided by its\n"
    "measured time. On a machine without a GPU, `--map DIR --target cuda` compares plans: instructions\n"
    "of products, roles and, where NVRTC is found, spills. Calls with less than half the value of a\n"
    "neighbour and without a note that explains it are listed, and the exit status is 1; of measured\n"
    "calls also those below half of the best rates, which do not change the status.\n"
    "\n"
    "Examples:\n"
    "  tegula bench gemm\n"
    "  tegula bench attention --map maps --target cuda\n"
    "  tegula bench gemm --case 1024 --rounds 11\n"
    "  tegula bench attention --random q=1x2048x8x64 --random k=1x2048x8x64 --random v=1x2048x8x64";

}  // namespace

void add_bench(cli::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("bench", "Measures an operator, and a competing implementation if there is one");
  auto request = std::make_shared<BenchRequest>();
  add_call_options(*command, request->call);
  command
      ->add_option("--rounds", request->rounds,
                   "Number of timed rounds; by default, as many as fit in two seconds")
      ->check(cli::Range(1, 1000000));
  command->add_option("--rivals", request->rivals,
                      "A file with the output of bench/cuda/rivals.py, with which tables for GPUs are "
                      "compared; by default, dense attention is measured in this run");
  command->add_option("--map", request->maps,
                      "Measure calls between and around the cases instead, and write a picture and JSON of "
                      "each map to that folder");
  command->add_option("--only", request->map, "Of an operator's maps only the one of this name");
  command->add_option("--every", request->sample.every, "Measure only every n-th call of a map")
      ->check(cli::Range(1, 1000000));
  command->add_option("--from", request->sample.from, "Leave out so many calls at the beginning of a map")
      ->check(cli::Range(0, 1000000));
  command->footer(bench_footer);
  command->callback([request, &exit_code] { bench_operator(*request, exit_code); });
}

}  // namespace tegula::tool
