// Prints the function of one grid for a GPU. Its members are spread over several files, by what they print:
// statements, loops over elements, operations on tiles, roles. Elements and rows have printers of their own.
#pragma once
#include <functional>
#include <optional>
#include <span>

#include "codegen/cuda/box_stores.hpp"
#include "codegen/cuda/places.hpp"
#include "codegen/cuda/reductions.hpp"
#include "codegen/cuda/row_printer.hpp"
#include "codegen/cuda/step_writer.hpp"
#include "codegen/cuda_program.hpp"
#include "passes/cuda/cuda_plan.hpp"
#include "passes/cuda/operand_place.hpp"
#include "passes/cuda/plan_conversions.hpp"
#include "passes/cuda/plan_rows.hpp"
#include "passes/cuda/plan_stores.hpp"
#include "passes/cuda/rows_of_groups.hpp"
#include "passes/cuda/scan_levels.hpp"
#include "passes/cuda/word_sums.hpp"
#include "runtime/call/binding.hpp"

namespace tegula::codegen {

class CudaGridPrinter : private RowPrinter {
 public:
  // Prints grid `number` of the plan.
  CudaGridPrinter(const Signature& signature, const passes::CudaPlan& plan, int number, CudaProgram& program);
  // The text of the function; adds it to the program's kernels.
  std::string print();

  // The number of bytes by which the printed grid exceeds shared memory; throws ProgramError if no plan needs
  // less.
  std::int64_t missing_shared_bytes(const ir::Grid& grid) const;
  // Shared memory in addition to ring slots, store buffers and second halves.
  std::int64_t other_shared_bytes() const { return memory_.peak() - ahead_bytes_; }
  int blocks_per_processor() const { return blocks_; }
  const passes::Reason& not_spread() const { return not_spread_; }  // over the CTAs of the plan

 private:
  // ---- the text as a whole (print_grid.cpp)
  void prologue();
  std::string print_without_roles(const ir::Grid& grid);
  // ---- the order of grids, and of blocks that take what is left (print_order.cpp)
  bool has_waits() const { return target_.has_wgmma() && number_ > 0; }
  bool runs_beside(int number) const;  // beside the grid before it
  void between_grids();
  void end_of_block();
  std::string leave_by(const ir::Exit& exit) const;
  // ---- statements (print_stmt.cpp, print_control.cpp)
  void body(const ir::Body& body) override;
  void in_scope(const ir::Body& body);
  void stmt(const ir::Stmt& stmt);
  void begin(const ir::Stmt& stmt);
  void operator()(const ir::Let& n, const ir::Stmt& stmt);
  void operator()(const ir::Load& n, const ir::Stmt& stmt);
  static std::string element_of_pack(const ir::Load& n, const std::string& pack, const std::string& at);
  void operator()(const ir::Store& n, const ir::Stmt& stmt);
  void operator()(const ir::Declare& n, const ir::Stmt& stmt);
  void operator()(const ir::DeclareVar& n, const ir::Stmt& stmt);
  void operator()(const ir::Assign& n, const ir::Stmt& stmt);
  void operator()(const ir::Atomic& n, const ir::Stmt& stmt);
  void operator()(const ir::Copy& n, const ir::Stmt& stmt);
  void operator()(const ir::Gather& n, const ir::Stmt& stmt);
  void operator()(const ir::Fill& n, const ir::Stmt& stmt);
  void operator()(const ir::Gemm& n, const ir::Stmt& stmt);
  void operator()(const ir::Reduce& n, const ir::Stmt& stmt);
  void operator()(const ir::Scan& n, const ir::Stmt& stmt);
  void operator()(const ir::Accumulate& n, const ir::Stmt& stmt);
  void operator()(const ir::Turn& n, const ir::Stmt& stmt);
  void operator()(const ir::For& n, const ir::Stmt& stmt);
  void operator()(const ir::If& n, const ir::Stmt& stmt);
  void operator()(const ir::While& n, const ir::Stmt& stmt);
  void operator()(const ir::Break& n, const ir::Stmt& stmt);
  void operator()(const ir::Exit& n, const ir::Stmt& stmt);
  void operator()(const ir::Print& n, const ir::Stmt& stmt);
  void operator()(const ir::Assert& n, const ir::Stmt& stmt);
  void define(const ir::VariablePtr& variable, const std::string& value, bool is_const, const Loc& at);
  // `inside` prints the body.
  void sequential(const ir::For& n, const Loc& at, const std::function<void()>& inside,
                  const std::function<void()>& before_loop = {});
  void keep_apart(const ir::For& n);
  void repeated(const ir::While& n, const Loc& at, const std::function<void()>& inside);
  void branch(const ir::If& n, const Loc& at, const std::function<void()>& inside);
  void otherwise(const ir::If& n);
  void set_team(bool is_warp);
  void groups(const ir::For& n, const Loc& at);
  void add_index(const ir::VariablePtr& index, const ir::Expr& begin, const ir::Expr& end);
  void open(const std::string& text, StepKind kind);
  void close();

  // ---- loops over elements (print_loops.cpp)
  void elements(const ir::For& n, const ir::Stmt& stmt);
  std::vector<std::pair<ir::BufferPtr, bool>> moved_by(const ir::For& n, const layout::Layout* layout) const;
  // The threads for which is printed here, and what is known of what they run.
  passes::Computing computing() const;
  void by_register(const ir::For& n, const ir::Stmt& stmt);
  std::optional<Vectors> vectors_of(const ir::For& n, const Layout& layout);
  std::optional<Vectors> with_steady_loads(const ir::For& n, const Layout& layout) const;
  void in_register_loop(const ir::For& n, const ir::Stmt& stmt,
                        const std::function<void(const std::string& first)>& inside);
  void register_loop(const ir::For& n, const ir::Stmt& stmt);
  void register_loop(const ir::For& n, const ir::Stmt& stmt, const Vectors* vectors);
  bool as_a_whole(const ir::For& n, const ir::Stmt& stmt);
  void by_flat_index(const ir::For& n, const ir::Stmt& stmt);
  void registers(const ir::For& n, const Layout& layout, const std::string& first, const Vectors* vectors);
  // ---- loads in front of all elements (print_common_loads.cpp)
  bool has_common_loads(const ir::For& n, const Layout& layout, const Vectors& vectors) const;
  void load_numbers_of_runs(const ir::For& n, const Layout& layout, const Vectors& vectors,
                            const std::function<std::string()>& name);
  void load_pieces_of_columns(const ir::For& n, const Layout& layout, const Vectors& vectors,
                              const std::function<std::string()>& name);
  void flat(const ir::For& n, const std::string& type, const Texts& extents, const Vectors* vectors);
  void convert_elements(const ir::For& loop) override;
  FragmentTile converted(const ir::BufferPtr& buffer, const Layout& layout, bool with_contents,
                         const Loc& at);

  // ---- loops over elements that share a question (print_loop_groups.cpp)
  const Layout* plain_registers(const ir::For& n, const ir::Stmt& stmt) const;
  bool goes_with(const ir::For& n, std::span<const ir::Stmt> before) const;
  std::size_t loops_together(const ir::Body& statements, std::size_t first) const;
  void print_together(std::span<const ir::Stmt> statements);

  // ---- registers that change their threads (print_exchange.cpp)
  bool exchange(const ir::For& n, const ir::Stmt& stmt);

  // ---- packed fragments (print_packed.cpp)
  bool is_masked_later(const ir::VariablePtr& v) const;
  void declare_factors(const std::string& name, const layout::Layout& layout, const passes::ExactFactors& own,
                       const Loc& at);
  void store_factors(const ir::Access& to, const passes::ExactFactors& own);
  void pack(const passes::Conversion& n, const Loc& at);
  void fill_words(const passes::Filling& n, const Loc& at);

  // ---- tiles that a producer's threads read a step ahead (print_held_rows.cpp, print_byte_turns.cpp)
  void producer_loop(const ir::For& step, const Loc& at, const schedule::Events& list);
  void hold_next_step(const ir::For& step, const schedule::Events& list);
  bool is_read_ahead(const ir::For& step, const ir::VariablePtr& v) const;
  bool can_hold(const ir::For& step, const ir::For& loop) const;
  ir::Stmt elements_of(const ir::Stmt& s) const;
  std::optional<HeldLoop> held_rows(const ir::For& step, const ir::Stmt& s);
  std::optional<HeldLoop> held_elements(const ir::For& step, const ir::Stmt& s);
  const HeldLoop* held(const ir::Stmt& s) const;
  void load_first_step(const ir::For& step);
  void load_ahead(const HeldLoop& own);
  void load_held(const HeldLoop& own);
  void make_held(const HeldLoop& own);
  void open_own_element(const ir::For& loop);
  void load_next_step(const HeldLoop& own);
  std::vector<ir::VariablePtr> read_ahead(const ir::For& step, const ir::For& loop) const;
  void with_read_ahead(const std::vector<ir::VariablePtr>& ahead, const std::function<void()>& print);
  void in_later_step(int steps, const std::function<void()>& print);
  void prefetch(const ir::Access& from);
  std::optional<passes::RowConversion> lines_of(const passes::RowConversion& rows,
                                                const ir::Load& load) const;
  void prefetch_lines(const passes::RowConversion& lines, const ir::Load& load);
  void prefetch_rows(const HeldLoop& own);
  void events_of_step(const schedule::Events& list);
  std::vector<passes::MovingRows> rows_to_prefetch(const schedule::Events& list) const;
  void prefetch_moving(const passes::MovingRows& moving);
  void prefetch_parts(const ir::For& loop, const ir::Load& load);
  void prefetch_of_rows(const ir::For& loop, const ir::Load& load);
  void transpose(const passes::Transposition& n, const Loc& at);
  void clear_zero_columns();
  void widen(const passes::Transposition& n, const Loc& at);

  // ---- what concerns some rows only (print_row_guards.cpp)
  passes::Deciders deciders(const ir::If& n) const;
  ir::Expr of_unit(const std::vector<ir::Expr>& all, passes::Deciders unit);
  std::string choice(const std::vector<ir::Expr>& all, const char* unit);
  bool open_row_guard(const ir::For& n);

  // ---- elements that a loop reads one after the other (print_step_reads.cpp)
  void begin_step_reads(const ir::For& n, const std::string& first, const std::string& end);
  void begin_step_read(const ir::For& n, const ir::Load& load, const std::string& first,
                       const std::string& end);
  bool is_used_in_step(const ir::For& n, const ir::VariablePtr& v) const;
  void begin_number_ahead(const ir::For& n, const ir::Load& load, const std::string& first,
                          const std::string& end);
  void step_read(const ir::Load& n, const StepRead& read, const Loc& at);

  // ---- copies (print_copies.cpp)
  bool copy_by_vectors(const ir::Copy& n, const Loc& at);
  std::optional<std::size_t> vector_dim(const ir::Copy& n, const std::vector<ir::Expr>& at) const;
  bool is_brought(const ir::Buffer& tile) const;
  void await_brought();
  void wait_for_copies();
  void print_vectors(const ir::Copy& n, const ir::Access& from, const std::vector<ir::Expr>& where,
                     std::size_t along, int elements, const Loc& at);
  std::string vector_count(const ir::View& view, std::size_t dim, const ir::Expr& at, const std::string& text,
                           int elements);
  ir::Body element_copies(const ir::Copy& n, const Loc& at) const;

  // ---- tiles that all threads bring ahead (print_copy_rings.cpp)
  bool is_in_copy_ring(const ir::Buffer& tile) const { return plan_.copy_rings.tiles.contains(&tile); }
  void declare_copy_rings();
  void loop_with_ring(const ir::For& n, const passes::CopyRing& ring, const Loc& at);
  void allocate_slots(const passes::CopyRing& ring);
  void touch_brought(const ir::Body& body);
  void touch_slots(int number);
  void name_slot(const ir::BufferPtr& tile, const passes::CopyRing& ring, int shift);
  void begin_copies(const ir::Stmt& s, int shift);
  void bring(const ir::Copy& n, const ir::Stmt& s);
  void bring_run(const ir::Copy& n, const ir::Stmt& s);
  void name_run(const ir::BufferPtr& tile, const char* begin);
  void lay_rows(const passes::CopyRing& ring);
  void print_pieces(const ir::For& loop, std::optional<std::size_t> along, int elements, const Loc& at);
  std::string whole_pieces(const ir::For& loop, std::size_t along, int elements);
  void print_piece(const ir::Load& load, const ir::Store& store, std::optional<std::size_t> along,
                   int elements, bool is_whole);
  void event(const schedule::CopyCommit&, const schedule::Event&);
  void event(const schedule::CopyWait& n, const schedule::Event&);

  // ---- fragments to operands in shared memory (print_matrices.cpp)
  bool is_registers_of_pairs(const passes::Conversion& n) const {
    return n.from->type == f32 || plan_.forms.packed.contains(n.from.get());
  }
  void store_matrices(const passes::Conversion& n, const ir::View& to, const Loc& at);
  void store_plain_matrices(const passes::Conversion& n);
  void store_transposed_matrices(const passes::Conversion& n);
  // What is read by ldmatrix into registers, one a value.
  std::optional<passes::Conversion> matrix_load(const ir::Stmt& s) const;
  void load_matrices(const passes::Conversion& n, const ir::View& from, const Loc& at);

  // ---- operations on tiles (print_tiles.cpp)
  void declare_fragment(const std::string& name, DType type, const Layout& layout, const Loc& at);
  void declare_shared(const ir::BufferPtr& tile, const Loc& at);

  // ---- reductions (print_reductions.cpp)
  void begin_fold(const ir::Reduce& n, const Loc& at);
  void fold_registers(const ir::Reduce& n, const FragmentTile& from);
  FragmentTile end_fold(const ir::Reduce& n, const Loc& at);
  FragmentTile shared_by_lanes(const ir::Reduce& n, const FragmentTile& sum,
                               const std::vector<layout::Halving>& steps);
  void fold_lanes(const passes::Parting& parting, const FragmentTile& sum, ir::ReduceOp op);
  void begin_lane_sum(const passes::LaneSum& n);
  void end_lane_sum(const passes::LaneSum& n);
  void fold_threads(const ir::Reduce& n, const FragmentTile& from, const FragmentTile& sum, const Loc& at);
  void fold_warps(ir::ReduceOp op, DType type, const passes::Parting& divided, const FragmentTile& sum,
                  const Loc& at);
  void each_sum(const Meeting& m, const std::string& header,
                const std::function<void(const Coordinates&, const std::string&)>& body);
  std::optional<Meeting> begin_meeting(ir::ReduceOp op, DType type, const passes::Parting& divided,
                                       const FragmentTile& sum, const Loc& at, bool counts);
  void end_meeting(const Meeting& m);
  passes::Parting parting_of(const ir::Reduce& n) const;
  std::size_t reductions_together(const ir::Body& statements, std::size_t first) const;
  void print_reductions_together(std::span<const ir::Stmt> statements);
  void finish_reduction(const ir::Reduce& n, const FragmentTile& sum, const Loc& at);
  std::string place_format(const ir::Stmt& s, Texts& values) const;

  // ---- stamps of the clock (print_timeline.cpp)
  void begin_timeline();
  void stamp(const std::string& words, const Loc& at);
  void stamp(const schedule::Event& e);
  void stamp(const ir::Stmt& s);

  // ---- scans (print_scans.cpp)
  struct ScanTexts;
  void scan_elements(const ir::Scan& n, const FragmentTile& from, const ScanTexts& texts, const Loc& at);
  std::string scan_levels(const std::vector<passes::ScanLevel>& levels, const ScanTexts& texts,
                          const Loc& at);
  void scan_registers(const passes::ScanLevel& level, const ScanTexts& texts, const std::string& total,
                      const std::string& before, const std::string& next, const Loc& at);
  void scan_threads(const passes::ScanLevel& level, bool by_warp, const ScanTexts& texts,
                    const std::string& total, const std::string& before, const Loc& at);
  void finish_scan(const ir::Scan& n, const FragmentTile& from, const ScanTexts& texts,
                   const std::string& before, const Loc& at);

  // ---- products (print_gemm.cpp, print_wgmma.cpp)
  std::string own_lines(const ir::Gemm& n, const ir::View& operand, const layout::OwnBlock& own);
  void gemm_fma(const ir::Gemm& n, const passes::GemmPlan& plan, const FragmentTile& c, const Loc& at);
  void gemm_mma(const ir::Gemm& n, const passes::GemmPlan& plan, const FragmentTile& c, const Loc& at);
  std::string mma_operand(const ir::View& view, int k_axis, bool fits, DType packed);
  std::string operand_lambda(const ir::View& view, int pair_axis, DType packed);
  std::string words_operand(const ir::Gemm& n, const ir::View& view, bool fits);
  std::string word_lambda(const ir::View& view, int k_axis);
  void land(const Flight& flight);
  void publish_operands(const ir::Gemm& n);
  void gemm_wgmma(const ir::Gemm& n, const FragmentTile& c, const Loc& at);
  void name_nothing();
  std::pair<std::string, std::string> own_part(const passes::GemmPlan& plan, std::int64_t columns) const;
  // All accumulators, or `only` one.
  Flight wgmma(const ir::Gemm& n, const passes::GemmPlan& plan, const FragmentTile& c, const Loc& at,
               int only);
  std::string instruction(const ir::Gemm& n, const passes::GemmPlan& plan, int columns, int selector = -1);
  void sparse_product(const ir::Gemm& n, const passes::GemmPlan& plan, int columns, std::int64_t first,
                      const std::string& arguments, const std::string& adds);
  std::string place_in_part(const ir::View& view, const std::string& row, const std::string& column);
  std::string metadata_bytes(const ir::Gemm& n, bool some_outside);
  void load_metadata(const ir::Gemm& n);
  void read_metadata(const ir::Gemm& n);
  std::string operand_registers(const ir::Gemm& n, const passes::GemmPlan& plan, const Loc& at);
  std::string operand_at(const ir::View& view, int along_k, const std::string& row,
                         const std::string& column);
  std::string packed_operand(const FragmentTile& tile, DType type);
  void clear_registers(const FragmentTile& tile);
  std::string rounding_of_sum(const ir::Gemm& n, const FragmentTile& c) const;
  void touch_operands(const ir::Gemm& n);

  // ---- roles (print_roles.cpp, print_rings.cpp, print_pairs.cpp, print_holds.cpp, print_tensor_copies.cpp)
  void name_divisions();
  void name_divisions(const std::function<bool(const ir::VariablePtr&)>& of);
  bool has_even_blocks(const ir::Grid& grid) const;
  std::string print_roles(const ir::Grid& grid);
  std::string begin_roles(const passes::Roles& roles);
  std::string consumers(const ir::Grid& grid);
  std::string producer(const ir::Grid& grid);
  std::string transposer(const ir::Grid& grid);
  bool some_load() const;  // of the producer's warps, all of them by themselves
  std::string registers_text(int count) const;
  std::string registers_of_producer() const;
  void declare_rings(const passes::Roles& roles);
  int depth_of(std::size_t ring) const;
  void print_rings(const std::vector<int>& cursors);
  std::string cursor_name(int ring) const;
  std::string behind_rows(int ring, const ir::Stmt& reader);
  std::string role(const schedule::Schedule& schedule, const schedule::Role& role, const ir::Grid& grid,
                   int barrier, int threads);
  void event(const schedule::StoreWait& n, const schedule::Event&);
  bool gives(const schedule::Events& list, std::size_t& i);
  std::string blocks_text(const ir::Grid& grid);
  void tiles(const schedule::Loop& n);
  void name_in_pair(const ir::Grid& pairs);
  void events(const schedule::Events& list);
  void event(const schedule::Operation& n, const schedule::Event& e);
  void hold(const ir::Stmt& s, int sixteenths);
  bool multiplies_bytes() const;
  void note_factors(const ir::Stmt& s);
  void event(const schedule::NextTile&, const schedule::Event&);
  void event(const schedule::SendTile& n, const schedule::Event&);
  void event(const schedule::ReceiveTile&, const schedule::Event&);
  void event(const schedule::Leave&, const schedule::Event&);
  void dynamic_tiles(const schedule::Loop& n);
  std::string tile_slot() const;
  std::string tile_value() const;
  std::string counters() const;
  std::string next_slot() const;
  void event(const schedule::Gemm&, const schedule::Event& e);
  void event(const schedule::GemmFence& n, const schedule::Event& e);
  void event(const schedule::GemmCommit&, const schedule::Event&);
  void event(const schedule::GemmWait& n, const schedule::Event&);
  void event(const schedule::WaitFull& n, const schedule::Event&);
  void event(const schedule::Acquire& n, const schedule::Event&);
  void event(const schedule::Arrive& n, const schedule::Event&);
  void event(const schedule::Expect& n, const schedule::Event&);
  void event(const schedule::Advance& n, const schedule::Event&);
  void event(const schedule::Load& n, const schedule::Event& e);
  void event(const schedule::Complete& n, const schedule::Event&);
  void event(const schedule::CopyAsync& n, const schedule::Event& e);
  void event(const schedule::CopyArrive& n, const schedule::Event&);
  void event(const schedule::ProxyFence&, const schedule::Event&);
  void event(const schedule::ClusterBarrier&, const schedule::Event&);
  void event(const schedule::Barrier& n, const schedule::Event&);
  void event(const schedule::WarpSync&, const schedule::Event&);
  void event(const schedule::SetRegisters& n, const schedule::Event&);
  void event(const schedule::Loop& n, const schedule::Event& e);
  void event(const schedule::Guard& n, const schedule::Event& e);
  template <class Other>
  void event(const Other&, const schedule::Event&) {
    throw InternalError("an event that roles of tile programs do not have");
  }
  bool reads_rings(const ir::Gemm& n) const;
  void each_group(const schedule::Loop& n, const ir::For& loop);
  std::string metadata_;  // words of the sparse product that is printed
  void sync_line(const std::string& text);
  std::string by_loader(const std::string& text) const;
  std::string slot_number(int ring) const;
  void name_slots(int ring);
  void name_slot_before(const ir::BufferPtr& tile);
  void carry_operands(int ring);
  std::size_t tensor_map(CudaProgram::TensorMap map);
  std::string load_function(const ir::Copy& n, const passes::TensorCopy& plan);
  void load_boxes(const ir::Copy& n, const passes::TensorCopy& plan, int ring, const Loc& at);

  // ---- stores by the copy engine (print_tensor_stores.cpp)
  void begin_store(const ir::Stmt& s);
  void end_store();
  void stage_boxes(std::size_t count);
  void meet_around_staging(const char* of_whom);
  void send_boxes(const char* verb);
  void send_boxes();
  void give();
  BoxStores boxes_of(const ir::View& from, const ir::View& to, const layout::Division& parts,
                     const passes::TensorStore& plan);
  bool is_handover(const schedule::Place& place) const;
  void event(const schedule::Store& n, const schedule::Event&);
  void event(const schedule::StoreCommit&, const schedule::Event&) {}  // each store commits itself
  void event(const schedule::WaitTurn&, const schedule::Event& e);
  void event(const schedule::PassTurn&, const schedule::Event& e);
  std::string turn_word(const ir::Access& word, const std::string& part = {});
  std::string turns_text(const ir::Accumulate& sum, const Loc& at);
  void print_adders(const BoxStores& n, const ir::Accumulate& sum, const Loc& at);
  // The number of the assertion that turns come as promised.
  std::size_t turns_broken(const Loc& at);
  std::string wait_text(const ir::Expr& order, const std::string& word, const Loc& at);
};

}  // namespace tegula::codegen
