#include "map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "analyses.hpp"
#include "bench/library/measure.hpp"
#include "ops/pieces/moved_rows.hpp"
#include "ops/schema/bound.hpp"
#include "ops/schema/example.hpp"
#include "runtime/execution/explain.hpp"
#include "runtime/execution/recorded.hpp"
#include "runtime/machine/thread_pool.hpp"
#include "show/assembler_text.hpp"
#include "tegula/error.hpp"
#include "tegula/stream.hpp"
#include "tegula/time.hpp"

namespace tegula::tool {

namespace {

constexpr double steep = 0.5;

// The slowest way that a kernel of the call takes, and how much of the fastest it may give.
struct Way {
  const char* words;
  double use;
};
constexpr Way slowest_first[] = {
    {"multiply-add", 0.05}, {"mma.sync", 0.4}, {"no roles", 0.6}, {"spills", 0.8}, {"wgmma, roles", 1}};
constexpr Way spills = slowest_first[3], fastest = slowest_first[4];

Way way_of(const std::string& text) {
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  if (!says("products: ")) return fastest;
  for (const Way& way : slowest_first)
    if (says(way.words)) return way;
  return fastest;
}

// What the assembler makes of a kernel of the call, where there is NVRTC: spills are a way, too.
void assemble_point(const lang::Kernel& kernel, Target target, const std::vector<std::string>& said,
                    Way& slowest, MapPoint& point) {
  const bool by_threads = std::ranges::any_of(
      said, [](const std::string& note) { return note.find(": strides: ") != std::string::npos; });
  const auto found = shown::assembled(kernel, {target == Target::cuda_sm80() ? 80 : 90, !by_threads});
  if (!found) return;
  for (const cuda::Resources& own : found->resources)
    if (own.spilled_bytes() > 0 && spills.use < slowest.use) slowest = spills;
  point.notes.insert(point.notes.end(), found->notes.begin(), found->notes.end());
}

// What the kernels of a call become.
void explain_point(const ops::OperatorSchema& schema, const ops::ExampleCall& call, Target target,
                   bool makes_code, MapPoint& point) {
  const ops::Tensors described = call.described(schema);
  Way slowest = fastest;
  const ops::ListedCall listed = ops::listed_by_name(schema, described, call.options, target);
  const ops::Tensors tensors = ops::tensors_of_programs(listed, described);
  point.notes = listed.notes;
  for (const lang::Kernel& kernel : listed.kernels) {
    const Explanation said = explain_call(kernel, target, tensors);
    for (const std::string& text : said.ways)
      if (const Way way = way_of(text); way.use < slowest.use) slowest = way;
    point.notes.insert(point.notes.end(), said.notes.begin(), said.notes.end());
    if (makes_code && target.device() == DeviceKind::cuda)
      assemble_point(kernel, target, said.notes, slowest, point);
  }
  // A CPU has one way.
  point.way = target.device() == DeviceKind::cpu ? "on a CPU" : slowest.words;
  point.use = slowest.use;
}

// Adds what the kernels of `calls` compute: special functions, and the type of most products.
void add_counts(const RecordedCalls& calls, Machine machine, PointWork& work) {
  machine.is_gpu = false;  // only counted: no text is made
  std::map<std::string, double> products;
  for (const Analysis& analysis : analyses_of(calls, machine))
    for (const auto& [type, count] : analysis.flops)
      (type == "special" ? work.special : products[type == "other" ? "" : type]) += count;
  products[""] = 0;
  work.kind = std::ranges::max_element(products, {}, [](auto& own) { return own.second; })->first;
}

// The median of a few rounds; on a GPU between events on its stream, as launching takes as long as short
// calls.
double seconds_of_call(const std::function<void()>& call, Target target) {
  return time(call, target.device() == DeviceKind::cuda ? Device::cuda() : Device::cpu(), {.rounds = 5})
      .median();
}

// Inputs of a call that is only timed. Large ones repeat some random numbers where they are: to draw and to
// bring all takes longer than the call.
struct TimedInputs {
  ops::Tensors tensors;
  ops::Tensors known;  // on this machine, the large ones without memory
};

std::optional<Tensor> drawn_numbers(const ops::ExampleCall& call, const ops::OperatorSchema& schema,
                                    const ops::TensorSpec& tensor, std::size_t number) {
  constexpr std::int64_t most = 1 << 18;
  const DType type = call.type_of(schema, tensor);
  if (nelements(call.shape(schema, tensor)) <= most || tensor.values || tensor.packs) return std::nullopt;
  if (type.is_floating() && !tensor.low) return Tensor::random_normal({most}, type, number);
  // Numbers from a range, of which these are some.
  const int end = type.is_boolean() ? 2 : 100;
  if (type.is_floating() || type.bits() == 8)
    return Tensor::random_integers({most}, i32, number, type.is_floating() ? 1 : 0, end).to(type);
  return std::nullopt;
}

// A tensor there that lies as `described`; its memory repeats the numbers.
Tensor repeating(const Tensor& numbers, TensorRef described, const Device& device) {
  std::int64_t count = 1;
  for (std::size_t dim = 0; dim < described.shape.size(); ++dim)
    count += (described.shape[dim] - 1) * described.strides[dim];
  const Tensor storage = Tensor::empty({count}, numbers.dtype(), device);
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return storage.ref().slice(0, begin, std::min(end, count));
  };
  std::int64_t known = std::min(count, numbers.nelements());
  copy_elements(numbers.ref().slice(0, 0, known), part(0, known));
  for (; known < count; known *= 2)
    copy_elements(part(0, std::min(known, count - known)), part(known, 2 * known));
  described.data = storage.ref().data, described.device = device;
  return Tensor::adopt(described, std::make_shared<Tensor>(storage));
}

TimedInputs drawn_inputs(Device device, const ops::OperatorSchema& schema, const ops::ExampleCall& call) {
  TimedInputs inputs;
  for (std::size_t i = 0; i < schema.inputs; ++i) {
    const ops::TensorSpec& tensor = schema.tensors[i];
    if (tensor.optional && !call.given.contains(tensor.name)) continue;
    const ops::Strides strides = call.strides_of(schema, tensor);
    if (const auto numbers = drawn_numbers(call, schema, tensor, i)) {
      const TensorRef described = ops::described_as(strides, numbers->dtype(), call.shape(schema, tensor));
      inputs.tensors.emplace(tensor.name, repeating(*numbers, described, device));
      inputs.known.emplace(tensor.name, Tensor::adopt(described, nullptr));
    } else {
      const Tensor values = call.values(schema, tensor, i);
      inputs.tensors.emplace(tensor.name, ops::laid_out(strides, values, device));
      inputs.known.emplace(tensor.name, values);
    }
  }
  return inputs;
}

// The same; the results that a gradient needs are the operator's own, there.
TimedInputs inputs_on(Target target, const ops::OperatorSchema& schema, const ops::ExampleCall& call) {
  const Device device = target.device() == DeviceKind::cuda ? Device::cuda() : Device::cpu();
  TimedInputs result = drawn_inputs(device, schema, call);
  ops::Tensors &inputs = result.tensors, own;
  const ops::OperatorSchema* forward = schema.forward();
  if (forward == nullptr) return result;
  ops::OptionValues options;
  for (const auto& [name, value] : call.options)
    if (forward->find_option(name) != nullptr) options.emplace(name, value);
  for (const auto& [name, tensor] : inputs)
    if (const auto* spec = forward->find_tensor(name); spec != nullptr && !spec->output)
      own.emplace(name, tensor);
  for (auto& [name, out] : ops::call_by_name(*forward, own, options, target))
    if (inputs.contains(name)) inputs.insert_or_assign(name, out);
  return result;
}

PointWork measure_point(const ops::OperatorSchema& schema, const ops::ExampleCall& call, Target target,
                        MapPoint& point) {
  const TimedInputs timed = inputs_on(target, schema, call);
  const ops::Tensors& inputs = timed.tensors;
  const ops::CheckedCall checked(schema, timed.known, call.options);
  PointWork work{.flops = checked.bound.flops(), .bytes = checked.bound.bytes()};
  {
    RecordedCalls recorded;
    ops::call_by_name(schema, inputs, call.options, target);
    add_counts(recorded, machine_of(target), work);
  }
  point.seconds = seconds_of_call([&] { ops::call_by_name(schema, inputs, call.options, target); }, target);
  point.tflops = 1e-12 * work.flops / point.seconds;
  return work;
}

ops::ExampleCall call_of(const ops::OperatorSchema& schema, const ops::CallMap& calls, std::size_t point) {
  return ops::ExampleCall::parse(schema,
                                 calls.text(point / calls.columns.size(), point % calls.columns.size()));
}

// `visit`, whose refusal becomes the point's.
template <class Visit>
void try_point(MapPoint& point, const Visit& visit) {
  if (!point.refusal.empty()) return;
  try {
    visit();
  } catch (const ArgumentError& error) { point.refusal = error.what(); }
}

}  // namespace

void Rates::add(const PointWork& work, double seconds) {
  double& own = flops[work.kind];
  own = std::max(own, work.flops / seconds);
  moved.push_back({work.bytes, seconds});
  if (seconds < least_seconds) least_seconds = seconds, least_bytes = work.bytes;
}

// Of the calls that move so many bytes or more.
Rates::Moved Rates::fastest_from(double bytes) const {
  Moved fastest{0, 1};
  for (const Moved& own : moved)
    if (own.bytes >= bytes && own.rate() > fastest.rate()) fastest = own;
  return fastest;
}

double Rates::seconds_of(const PointWork& work, const Machine& machine) const {
  // Of a CPU the checks of a call, and waking its threads.
  constexpr double as_many = 0.75, call_on_cpu = 50e-6;
  const Moved best = fastest_from(machine.is_gpu ? 0 : as_many * work.bytes);
  const double most_of_launch = machine.is_gpu ? machine.launch_seconds : call_on_cpu;
  // The shortest call of a map of long ones is no launch, but bytes.
  const double launch = std::clamp(least_seconds - least_bytes / best.rate(), 0.0, most_of_launch),
               behind_launch = work.bytes / best.bytes * std::max(best.seconds - launch, 0.0);
  return std::max({work.flops / flops.at(work.kind), work.bytes / best.rate(), least_seconds,
                   launch + behind_launch, work.special / machine.special_functions});
}

std::vector<std::size_t> Map::cliffs() const {
  const std::size_t width = calls->columns.size();
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!points[i].refusal.empty() || !points[i].notes.empty()) continue;
    double best = 0;
    // The first known point of so many one after another; of a sampled map the next ones are left out.
    const auto nearest = [&](std::ptrdiff_t step, std::size_t count) {
      for (std::size_t at = i; count > 0; --count)
        if (const MapPoint& other = points[at += static_cast<std::size_t>(step)]; other.refusal.empty()) {
          best = std::max(best, other.use);
          return;
        }
    };
    const auto row = static_cast<std::ptrdiff_t>(width);
    nearest(-1, i % width), nearest(1, width - 1 - i % width);
    nearest(-row, i / width), nearest(row, points.size() / width - 1 - i / width);
    if (points[i].use < steep * best) result.push_back(i);
  }
  return result;
}

std::vector<std::size_t> Map::low() const {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; measured && i < points.size(); ++i)
    if (points[i].refusal.empty() && points[i].notes.empty() && points[i].use < steep) result.push_back(i);
  return result;
}

Map plan_map(const ops::OperatorSchema& schema, const ops::CallMap& calls, Target target, MapSample sample) {
  Map map{schema.name, &calls, false, std::vector<MapPoint>(calls.rows.size() * calls.columns.size())};
  thread_pool().parallel_for(static_cast<std::int64_t>(map.points.size()), [&](std::int64_t number) {
    const auto i = static_cast<std::size_t>(number);
    if (number < sample.from || (number - sample.from) % sample.every != 0)
      map.points[i].refusal = "left out";
    try_point(map.points[i], [&] {
      explain_point(schema, call_of(schema, calls, i), target, sample.makes_code, map.points[i]);
    });
  });
  return map;
}

Map measure_map(const ops::OperatorSchema& schema, const ops::CallMap& calls, Target target,
                MapSample sample) {
  Map map = plan_map(schema, calls, target, sample);
  map.measured = true;
  // Compilation takes most of the time: the first calls run side by side, those that are timed do not.
  thread_pool().parallel_for(static_cast<std::int64_t>(map.points.size()), [&](std::int64_t number) {
    const auto i = static_cast<std::size_t>(number);
    try_point(map.points[i], [&] {
      const ops::ExampleCall call = call_of(schema, calls, i);
      ops::call_by_name(schema, inputs_on(target, schema, call).tensors, call.options, target);
    });
  });
  Rates best;
  std::vector<PointWork> work(map.points.size());
  for (std::size_t i = 0; i < map.points.size(); ++i)
    try_point(map.points[i], [&] {
      work[i] = measure_point(schema, call_of(schema, calls, i), target, map.points[i]);
      best.add(work[i], map.points[i].seconds);
    });
  for (std::size_t i = 0; i < map.points.size(); ++i)
    if (MapPoint& point = map.points[i]; point.refusal.empty())
      point.use = std::min(best.seconds_of(work[i], machine_of(target)) / point.seconds, 1.0);
  return map;
}

std::string json_of(const Map& map) {
  nlohmann::json points = nlohmann::json::array();
  for (std::size_t i = 0; i < map.points.size(); ++i) {
    const MapPoint& point = map.points[i];
    const std::size_t width = map.calls->columns.size();
    nlohmann::json one{{"call", map.calls->text(i / width, i % width)}};
    if (!point.refusal.empty()) {
      one["refusal"] = point.refusal;
    } else {
      one.update({{"use", point.use}, {"way", point.way}, {"notes", point.notes}});
      if (map.measured) one.update({{"ms", 1e3 * point.seconds}, {"tflops", point.tflops}});
    }
    points.push_back(std::move(one));
  }
  const nlohmann::json all{{"operator", map.op},       {"map", map.calls->name},
                           {"measured", map.measured}, {"columns", map.calls->columns},
                           {"rows", map.calls->rows},  {"cliffs", map.cliffs()},
                           {"low", map.low()},         {"points", std::move(points)}};
  return all.dump(1) + "\n";
}

}  // namespace tegula::tool
