#include "runtime/execution/cpu_executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "builtin/builtin.hpp"
#include "codegen/cpu.hpp"
#include "device/cpu/call.hpp"
#include "device/embedded.hpp"
#include "runtime/execution/block_order.hpp"
#include "runtime/execution/host_compiler.hpp"
#include "runtime/machine/cpu_features.hpp"
#include "runtime/machine/thread_pool.hpp"

namespace tegula {
namespace {

struct Contribution {
  std::int32_t id;
  std::int64_t order;
  std::vector<std::int64_t> bytes;
  std::int64_t size;
};

// What printed code reports to while one grid runs.
struct Context {
  const codegen::CpuProgram& program;
  std::mutex mutex;
  std::vector<Contribution> contributions;
};

// The block that the thread is running, for what it reports.
struct Running {
  const ir::Grid* grid = nullptr;
  const BlockIndex* index = nullptr;
};
thread_local Running running;

// Runs of grids, and the last one that the thread has taken a block of: what it keeps in its scratch memory
// is that run's.
std::atomic<std::uint64_t> runs{0};
thread_local std::uint64_t run_of_scratch = 0;

using Report = codegen::CpuProgram::Report;

// The block and the iterations in which a report is made: `block x = 1, y = 2; i = 3`.
std::string place(const Report& report, const std::int32_t* indices) {
  std::string text = "block ";
  for (std::size_t d = 0; d < running.grid->index.size(); ++d)
    text += fmt::format("{}{} = {}", d == 0 ? "" : ", ", running.grid->index[d]->name, (*running.index)[d]);
  for (auto& loop : report.loops) {
    const char* before = "; ";
    for (auto& name : loop) text += fmt::format("{}{} = {}", std::exchange(before, ", "), name, *indices++);
  }
  return text;
}

void on_print(void* context, std::int32_t id, const std::int32_t* indices, std::int32_t type,
              std::int64_t integer, double real) {
  auto& c = *static_cast<Context*>(context);
  const Report& report = c.program.prints[static_cast<std::size_t>(id)];
  std::lock_guard lock(c.mutex);
  std::string value = fmt::format("{}", integer);
  if (type == real_value) value = fmt::format("{}", real);
  if (type == truth_value) value = integer != 0 ? "true" : "false";
  fmt::print("[{}] {} = {}\n", place(report, indices), report.text, value);
}

void on_fail(void* context, std::int32_t id, const std::int32_t* indices) {
  const Report& report = static_cast<Context*>(context)->program.assertions[static_cast<std::size_t>(id)];
  throw ProgramError(fmt::format("assertion failed: {} [{}]", report.text, place(report, indices)),
                     report.at);
}

void* on_contribute(void* context, std::int32_t id, std::int64_t order, std::int64_t size) {
  auto& c = *static_cast<Context*>(context);
  std::lock_guard lock(c.mutex);
  c.contributions.push_back(
      {id, order, std::vector<std::int64_t>(static_cast<std::size_t>(size + 7) / 8), size});
  return c.contributions.back().bytes.data();
}

std::optional<SharedObject> compile_text(const std::string& text) {
  HostCompiler::Source source{text, cpu_flags(best_isa()), {}};
  if (has_dots_of_bytes()) source.flags.emplace_back("-mavx512vnni");
  if (has_tables_of_bytes()) source.flags.emplace_back("-mavx512vbmi");
  for (auto& file : embedded::cpu_headers())
    source.headers.push_back({std::string(file.name), std::string(file.text)});
  return load_compiled(source, kernel_cache());
}

DeviceError no_compiler(const std::string& kernel) {
  return DeviceError(
      fmt::format("kernel '{}' is neither built in nor cached, and no C++ compiler was found for the CPU "
                  "target; install g++, "
                  "name one in TEGULA_CXX, or use the interpreter",
                  kernel));
}

std::vector<passes::Note> notes_of(const ir::Kernel& kernel, const codegen::CpuProgram& program) {
  std::vector<passes::Note> result;
  const std::size_t room = l2_bytes() / 2;
  for (std::size_t i = 0; i < program.blocks.size(); ++i) {
    if (const std::int64_t numbers = program.blocks[i].short_row; numbers > 0)
      add(result, {passes::NoteKind::short_rows, kernel.grids[i].at,
                   fmt::format("rows of {} numbers are reduced one at a time, each by vectors that it does "
                               "not fill",
                               numbers),
                   "rows of more numbers take less time for each"});
    const std::size_t bytes = program.blocks[i].scratch_bytes - program.blocks[i].kept_bytes;
    if (bytes <= room) continue;
    add(result, {passes::NoteKind::large_tiles, kernel.grids[i].at,
                 fmt::format("the tiles of a block take {} KiB, more than half of the {} KiB second-level "
                             "cache of a core, and move to memory and back",
                             bytes >> 10, 2 * room >> 10),
                 "make them smaller"});
  }
  return result;
}

// More than any cache holds: a mistake.
constexpr std::size_t most_tile_bytes = std::size_t{1} << 30;

codegen::CpuProgram print_within_limits(const Signature& signature) {
  codegen::CpuProgram program = codegen::print_cpu(signature);
  for (std::size_t i = 0; i < program.blocks.size(); ++i) {
    if (program.blocks[i].scratch_bytes <= most_tile_bytes) continue;
    throw ProgramError(fmt::format("the tiles of a block take {} MiB, but at most {} MiB are allowed; make "
                                   "them smaller, or use a workspace",
                                   program.blocks[i].scratch_bytes >> 20, most_tile_bytes >> 20),
                       signature.kernel().grids[i].at);
  }
  return program;
}

class CpuExecutor : public Executable {
 public:
  CpuExecutor(std::shared_ptr<const Signature> signature, codegen::CpuProgram program,
              const builtin::Compiled& compiled)
      : CpuExecutor(std::move(signature), std::move(program)) {
    blocks_.assign(compiled.blocks.begin(), compiled.blocks.end());
    apply_.assign(compiled.apply.begin(), compiled.apply.end());
  }
  CpuExecutor(std::shared_ptr<const Signature> signature, codegen::CpuProgram program, SharedObject object)
      : CpuExecutor(std::move(signature), std::move(program)) {
    for (auto& block : program_.blocks) blocks_.push_back(object.function<TegulaBlock>(block.function));
    for (auto& ordered : program_.ordered) apply_.push_back(object.function<TegulaApply>(ordered.function));
    object_ = std::move(object);
  }

  void run(const Binding& binding) const override {
    clear_zeroed(*signature_, binding);
    std::vector<void*> data;
    std::vector<std::int64_t> strides, extents, values;
    for (auto& tensor : binding.tensors) {
      data.push_back(tensor.data);
      strides.insert(strides.end(), tensor.strides.begin(), tensor.strides.end());
      extents.insert(extents.end(), tensor.shape.begin(), tensor.shape.end());
    }
    for (auto& value : binding.values) values.push_back(word_of(value));
    for (std::size_t grid = 0; grid < blocks_.size(); ++grid) {
      Context context{program_, {}, {}};
      TegulaCall call{data.data(), strides.data(), extents.data(), values.data(),         &context,
                      on_print,    on_fail,        on_contribute,  way_of_bf16_products()};
      run_grid(grid, call, binding);
      apply(context);
    }
  }

  std::vector<std::string> notes() const override {
    return passes::format(notes_of(signature_->kernel(), program_));
  }

 private:
  CpuExecutor(std::shared_ptr<const Signature> signature, codegen::CpuProgram program)
      : signature_(std::move(signature)), program_(std::move(program)) {
    for (auto& grid : signature_->kernel().grids) orders_.emplace_back(grid, *signature_);
  }

  void run_grid(std::size_t grid, const TegulaCall& call, const Binding& binding) const {
    const auto n = orders_[grid].extents(binding);
    const auto order = orders_[grid].order(binding);
    const std::span<const std::int64_t> begun = order ? std::span(*order) : std::span<const std::int64_t>();
    const std::uint64_t run = ++runs;
    thread_pool().run_blocks(n[0] * n[1] * n[2], begun, [&](std::int64_t i, std::int64_t following, int) {
      const BlockIndex block = orders_[grid].index(i, n);
      const bool is_last = following == ThreadPool::no_block;
      const BlockIndex next = is_last ? block : orders_[grid].index(following, n);
      running = {&signature_->kernel().grids[grid], &block};
      auto* scratch = static_cast<char*>(ThreadPool::scratch(program_.blocks[grid].scratch_bytes));
      if (std::exchange(run_of_scratch, run) != run)
        std::memset(scratch, 0, program_.blocks[grid].record_bytes);
      blocks_[grid](&call, block.data(), is_last ? nullptr : next.data(), scratch);
    });
  }

  void apply(Context& context) const {
    std::stable_sort(context.contributions.begin(), context.contributions.end(),
                     [](auto& a, auto& b) { return a.order < b.order; });
    for (auto& c : context.contributions) apply_[static_cast<std::size_t>(c.id)](c.bytes.data(), c.size);
  }

  std::shared_ptr<const Signature> signature_;
  codegen::CpuProgram program_;
  std::optional<SharedObject> object_;  // that the functions are in, if they are not built in
  std::vector<TegulaBlock*> blocks_;
  std::vector<TegulaApply*> apply_;
  std::vector<BlockOrder> orders_;
};

}  // namespace

std::vector<std::string> cpu_flags(Isa isa) {
  std::vector<std::string> flags{"-std=c++17",         "-O2",     "-ffp-contract=fast",   "-fno-math-errno",
                                 "-fno-trapping-math", "-fwrapv", "-fno-strict-aliasing", "-fexceptions"};
  for (auto flag : isa_flags(isa)) flags.emplace_back(flag);
  return flags;
}

std::unique_ptr<const Executable> try_cpu_executor(const std::shared_ptr<const Signature>& signature) {
  codegen::CpuProgram program = print_within_limits(*signature);
  const std::string text = codegen::without_comments(program.text);
  if (const auto* compiled = builtin::find(text, best_isa()))
    return std::make_unique<CpuExecutor>(signature, std::move(program), *compiled);
  std::optional<SharedObject> object = compile_text(text);
  if (!object) return nullptr;
  return std::make_unique<CpuExecutor>(signature, std::move(program), *std::move(object));
}

std::vector<passes::Note> cpu_notes(const Signature& signature) {
  return notes_of(signature.kernel(), print_within_limits(signature));
}

std::unique_ptr<const Executable> make_cpu_executor(const std::shared_ptr<const Signature>& signature) {
  if (auto executor = try_cpu_executor(signature)) return executor;
  throw no_compiler(signature->kernel().name);
}

std::vector<std::unique_ptr<const Executable>> make_cpu_executors(
    std::span<const std::shared_ptr<const Signature>> signatures) {
  std::vector<codegen::CpuProgram> programs;
  std::string text;
  for (const auto& signature : signatures) {
    programs.push_back(print_within_limits(*signature));
    text += codegen::without_comments(programs.back().text);
  }
  const std::optional<SharedObject> object = compile_text(text);
  if (!object) throw no_compiler(signatures.front()->kernel().name);
  std::vector<std::unique_ptr<const Executable>> result;
  for (std::size_t i = 0; i < signatures.size(); ++i)
    result.push_back(std::make_unique<CpuExecutor>(signatures[i], std::move(programs[i]), *object));
  return result;
}

}  // namespace tegula
