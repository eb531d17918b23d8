#include "tegula/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "codegen/cuda/timeline.hpp"
#include "codegen/cuda_program.hpp"
#include "cuda/gpu.hpp"
#include "passes/cuda/cuda_plan.hpp"
#include "tegula/error.hpp"
#include "tegula/lang/kernel.hpp"
#include "tegula/stream.hpp"

namespace tegula {

namespace {

constexpr std::int64_t clock_mask = (std::int64_t{1} << 48) - 1;

// The kernel with one more parameter, after the others.
std::shared_ptr<const ir::Kernel> with_timeline(const ir::Kernel& kernel, const TimelineOptions& options) {
  ir::Kernel result = kernel;
  result.name += "_timeline";
  ir::Buffer words{codegen::timeline_name, ir::Space::global, ir::Role::inout, i64, {}, false, kernel.at};
  const std::int64_t extents[] = {std::ssize(kernel.grids), options.blocks, codegen::timeline_rows,
                                  options.events + 2};
  for (const std::int64_t extent : extents) words.shape.push_back(ir::int32(extent, kernel.at));
  result.parameters.push_back({std::make_shared<const ir::Buffer>(std::move(words)), nullptr});
  return std::make_shared<const ir::Kernel>(std::move(result));
}

// The text that ran, of those that a target may choose from by how the tensors are laid out.
codegen::CudaProgram program_with(std::int64_t key, const Signature& signature, Target target) {
  const bool common = target == Target::emulated() || target == Target::cuda_sm80();
  const int architecture = common ? 80 : 90;
  const passes::CudaTarget forms[] = {
      {architecture, true}, {architecture, false}, {architecture, true, true}};
  for (const passes::CudaTarget& form : forms) {
    codegen::CudaProgram program = codegen::print_cuda(signature, form);
    if (program.events_key() == key) return program;
  }
  throw InternalError("no text of a kernel has the events of its timeline");
}

std::string role_of(const passes::CudaPlan& plan, std::size_t grid, int row) {
  const auto& roles = plan.grids[grid].roles;
  if (!roles) return fmt::format("warps {}", 4 * row);
  const int groups = roles->consumers / 128;
  return row < groups ? fmt::format("consumers {}", row) : row == groups ? "producer" : "warps that add";
}

std::string quoted_text(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + "\"";
}

// The words of one row, of which the first are the key, the time and the clock at its start.
void add_row(Timeline& timeline, Timeline::Event own, const std::int64_t* words, std::int64_t count,
             const codegen::CudaProgram& program, double ticks) {
  const double begin = 1e-3 * static_cast<double>(words[0]);
  const auto time = [&](std::int64_t word) {
    return begin + static_cast<double>((word - words[1]) & clock_mask) / ticks;
  };
  for (std::int64_t i = 2; i < count && words[i] != 0; ++i) {
    const auto& event = program.events.at(static_cast<std::size_t>(words[i] >> 48) - 1);
    own.words = event.words, own.place = short_location(event.at);
    own.begin = time(words[i]);
    own.end = i + 1 < count && words[i + 1] != 0 ? time(words[i + 1]) : own.begin;
    timeline.events.push_back(own);
  }
}

void check(const TimelineOptions& options, Target target) {
  if (options.blocks < 1 || options.events < 1)
    throw ArgumentError(fmt::format("record_timeline: {} blocks with {} events; give positive numbers",
                                    options.blocks, options.events));
  if (target == Target::cpu() || target == Target::interpreter() || target == Target::automatic())
    throw ArgumentError(
        fmt::format("record_timeline: target {} has no roles; give it Target::cuda() or "
                    "Target::emulated_sm90()",
                    target.name()));
}

}  // namespace

Timeline record_timeline_in_order(const lang::Kernel& kernel, Target target, std::span<const Argument> args,
                                  TimelineOptions options) {
  check(options, target);
  const auto own = with_timeline(*kernel.ir(), options);
  const bool on_gpu = target.device() == DeviceKind::cuda;
  Device device = Device::cpu();
  if (on_gpu) {
    device = Device::cuda();
    for (const Argument& a : args)
      if (a.tensor() && a.tensor()->device.kind == DeviceKind::cuda) device = a.tensor()->device;
  }
  const std::int64_t grids = std::ssize(own->grids), words = options.events + 2;
  const Tensor stamps = Tensor::zeros({grids, options.blocks, codegen::timeline_rows, words}, i64, device);
  std::vector<Argument> all(args.begin(), args.end());
  all.emplace_back(stamps);
  compile(own, target).call_in_order(all);
  if (on_gpu) synchronize(device);
  const Tensor read = on_gpu ? stamps.to(Device::cpu()) : stamps;
  const std::int64_t* data = read.data_as<std::int64_t>();
  // A clock counts cycles, that of an emulated GPU events.
  const double ticks = on_gpu ? 1e-3 * cuda::Gpu::get(device.index).clock_khz() : 1;
  Timeline result;
  const Signature signature(own);
  std::optional<codegen::CudaProgram> program;
  for (std::int64_t row = 0; row < grids * options.blocks * codegen::timeline_rows; ++row) {
    const std::int64_t* first = data + row * words;
    if (first[1] == 0) continue;
    if (!program) program = program_with(first[0] >> 48, signature, target);
    Timeline::Event event;
    event.grid = static_cast<int>(row / codegen::timeline_rows / options.blocks);
    event.block = static_cast<int>(row / codegen::timeline_rows % options.blocks);
    event.role = role_of(*program->plan, static_cast<std::size_t>(event.grid),
                         static_cast<int>(row % codegen::timeline_rows));
    std::vector<std::int64_t> own_words(first, first + words);
    own_words[0] &= clock_mask;
    add_row(result, event, own_words.data(), words, *program, ticks);
  }
  double begin = result.events.empty() ? 0 : result.events.front().begin;
  for (const Timeline::Event& e : result.events) begin = std::min(begin, e.begin);
  for (Timeline::Event& e : result.events) e.begin -= begin, e.end -= begin;
  return result;
}

// The format of chrome://tracing: complete events, in microseconds; a process is a block, a thread a role.
std::string Timeline::json() const {
  std::string text = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  std::vector<std::pair<std::pair<int, int>, std::string>> rows;
  const auto row_of = [&](const Event& e) {
    const std::pair key(std::pair(e.grid, e.block), e.role);
    const auto place = std::find(rows.begin(), rows.end(), key) - rows.begin();
    if (place == std::ssize(rows)) rows.push_back(key);
    return place;
  };
  std::string all;
  for (const Event& e : events)
    all += fmt::format(
        "{}\n{{\"ph\": \"X\", \"name\": {}, \"pid\": {}, \"tid\": {}, \"ts\": {:.4f}, \"dur\": {:.4f}, "
        "\"args\": {{\"at\": {}}}}}",
        all.empty() ? "" : ",", quoted_text(e.words), e.grid * 100000 + e.block, row_of(e), e.begin,
        e.end - e.begin, quoted_text(e.place));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [place, role] = rows[i];
    const int process = place.first * 100000 + place.second;
    all += fmt::format(
        ",\n{{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": {}, \"args\": {{\"name\": \"grid {} block "
        "{}\"}}}},\n{{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": {}, \"tid\": {}, \"args\": "
        "{{\"name\": "
        "{}}}}}",
        process, place.first, place.second, process, i, quoted_text(role));
  }
  return text + all + "\n]}\n";
}

void Timeline::write(const std::string& path) const {
  std::ofstream out(path, std::ios::binary);
  out << json();
  if (!out.flush()) throw Error(fmt::format("{} cannot be written", path));
}

}  // namespace tegula
