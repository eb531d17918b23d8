// The state of one run: registers, memories, the current moment, and the data needed to explain an error.
#pragma once
#include <array>
#include <limits>

#include "interp/memory.hpp"
#include "interp/program.hpp"
#include "ir/effects.hpp"

namespace tegula::interp {

// Where a resolved view is: position = base + sum of index · step, for indices within [low, high).
struct ResolvedView {
  struct Axis {
    std::int64_t step = 0, low = 0, high = 0;
  };
  Moment resolved = 0;
  std::int64_t base = 0;
  bool empty = false;  // a coordinate that no axis changes is outside
  std::array<Axis, 8> axes;
};

// The position of what is not in a view. Positions in a reversed tensor are negative.
inline constexpr std::int64_t outside = std::numeric_limits<std::int64_t>::min();

// The order in which blocks and iterations run: i → (i · factor + start) mod n.
struct Permutation {
  std::int64_t factor = 1, start = 0;
};

// What a run does differently from others.
struct RunOptions {
  std::uint64_t order = 0;  // 0: as written, 1: backwards, others: at random
  std::int64_t step_limit = 0;
  bool silent = false;  // print statements write nothing
};

class Machine {
 public:
  Machine(const Program& program, const Binding& binding, const RunOptions& options);
  void run();
  // The tensor at a position of the signature, as this run left it.
  const Memory& memory(std::size_t buffer) const { return memories_[buffer]; }

  // ---- for nodes
  Cell& operator[](Register r) { return registers_[r]; }
  void execute(const Code& code) {
    for (const Instruction& instruction : code) instruction.run(instruction, *this);
  }
  Flow run_body(const Nodes& body);
  Memory& buffer(std::uint32_t index) { return memories_[index]; }
  // The integer in a register; an error if it is invalid. `what` names its use: "the index".
  std::int64_t integer(Register r, const char* what, const Loc& at);
  bool truth(Register r, const char* what, const Loc& at);
  void begin_scope(std::uint32_t scope) { scope_moments_[scope] = ++clock_; }
  const ResolvedView& resolve(const PreparedView& view);
  // The position of an element, or `outside`.
  std::int64_t locate(const PreparedAccess& access);
  void declare(std::uint32_t tile);

  // ---- accesses, in order of use: checks, marks
  void note_read(Memory& memory, std::int64_t position, const Node& node);
  void note_write(Memory& memory, std::int64_t position, const Node& node);
  void note_combine(Memory& memory, std::int64_t position, const Node& node);
  // The element; undefined ones give an invalid value.
  Cell read(Memory& memory, std::int64_t position, const Node& node);
  // The element where an invalid value is an error.
  Cell read_valid(Memory& memory, std::int64_t position, const char* use, const Node& node);
  void write(Memory& memory, std::int64_t position, const Cell& value, const Node& node);
  void overwrite(Memory& memory, std::int64_t position, const Cell& value, const Node& node);
  void combine(ir::AtomicOp op, Memory& memory, std::int64_t position, const Cell& value, const Node& node);

  // ---- time
  Now& now() { return now_; }
  Moment tick() { return now_.moment = ++clock_; }
  Permutation permutation(std::int64_t count) const;

  // ---- loops that are open, for messages
  struct Loop {
    const std::vector<ir::VariablePtr>* names;
    const Register* index;
  };
  void open(const Loop& loop) { loops_.push_back(loop); }
  void close() { loops_.pop_back(); }

  // ---- contributions with an order, applied at the end of the grid
  struct Contribution {
    std::int64_t order;
    std::uint32_t buffer;
    const Node* node;
    ir::AtomicOp op;
    bool consecutive, overwrites;
    std::vector<std::int64_t> positions;
    std::vector<Cell> values;
    std::string place;
  };
  void contribute(Contribution contribution) { contributions_.push_back(std::move(contribution)); }

  // ---- errors
  std::uint32_t cause_of_element(const Memory& memory, std::int64_t position, const Node& node);
  std::uint32_t cause_of_index(const PreparedAccess& access, const Node& node);
  std::uint32_t cause_of_division(const ir::ExprNode* node);
  [[noreturn]] void fail(const std::string& message, const Loc& at) const;
  [[noreturn]] void fail_invalid(const char* use, std::uint32_t cause, const Loc& at) const;
  [[noreturn]] void fail_overflow(const Instruction& instruction);
  // An index of the view of a tile leaves the tile.
  [[noreturn]] void fail_outside(const PreparedView& view, const Loc& at);
  std::string element_text(const Memory& memory, std::int64_t position) const;
  std::string place_text() const;
  bool silent() const { return options_.silent; }

 private:
  struct Cause {
    enum class Kind : std::uint8_t { element, index, division } kind;
    Loc at;
    const Memory* memory;
    std::int64_t position;
    std::uint32_t stored;  // why an element was poisoned, if it was
    std::array<std::int64_t, 4> index;
    int rank;
  };

  // The moment of an access that is unordered with one now, or 0.
  Moment unordered(const Memory& memory, const Seen& seen) const;
  void check_writer(const char* access, const Memory& memory, std::int64_t position, const Node& node) const;
  void check_reads(const char* access, const Memory& memory, std::int64_t position, const Node& node) const;
  void check_combines(const char* access, const Memory& memory, std::int64_t position,
                      const Node& node) const;
  void bind_tensors(const Binding& binding);
  void run_grid(const PreparedGrid& grid);
  void apply_contributions();
  void resolve_now(const PreparedView& view, ResolvedView& resolved);
  std::uint32_t add_cause(const Cause& cause);
  std::string cause_text(std::uint32_t cause, int depth = 0) const;
  const char* remedy_of(std::uint32_t cause) const;
  std::string sites_of(const Memory& memory, ir::Touch touch) const;
  void count_steps(std::size_t steps);
  [[noreturn]] void fail_conflict(const char* access, const char* other, Moment then, const Memory& memory,
                                  std::int64_t position, const Node& node) const;

  const Program& program_;
  RunOptions options_;
  std::vector<ir::Value> host_;
  std::vector<Cell> registers_;
  std::vector<Memory> memories_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<ResolvedView> resolved_;
  std::vector<Moment> scope_moments_;
  Moment clock_ = 1;
  Now now_;
  Moment grid_begin_ = 0;
  const ir::Grid* grid_ = nullptr;  // that runs
  std::int64_t steps_ = 0;
  std::vector<Loop> loops_;
  void check_turns(const std::vector<Contribution>& sorted) const;

  std::vector<Contribution> contributions_;
  std::vector<Cause> causes_;
  std::size_t next_cause_ = 0;
};

}  // namespace tegula::interp
