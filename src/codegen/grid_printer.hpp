// The state from which the function of one grid is printed. Its members are spread over several files, by
// what they print: expressions, accesses, statements, rows, copies and products.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "codegen/begun_sums.hpp"
#include "codegen/cpu.hpp"
#include "codegen/fetch_ahead.hpp"
#include "codegen/kept_tiles.hpp"
#include "codegen/late_copies.hpp"
#include "codegen/next_block.hpp"
#include "codegen/placed_rows.hpp"
#include "codegen/rows.hpp"
#include "codegen/scanned_copies.hpp"
#include "codegen/text.hpp"
#include "codegen/tiles.hpp"
#include "ir/bounds.hpp"

namespace tegula::codegen {

struct SumOfBytes;

// One axis of a view in memory.
struct MemoryAxis {
  std::string stride;
  std::string first, last;  // the indices along the axis that exist, half open
};

// A view as memory: the address of its first element, and its axes.
struct MemoryView {
  std::string base;
  std::string exists;  // a condition without which none of it may be touched; empty if there is none
  std::vector<MemoryAxis> axes;
};

std::vector<std::string> extent_texts(const ir::View& tile);

// Where an access goes, for one value or for the lanes of a vector.
struct Address {
  enum class Kind { single, row, scattered } kind = Kind::single;
  std::string pointer;       // to the element; of a row to that of lane 0
  std::string guard;         // a condition without which nothing may be touched; empty if there is none
  std::string step;          // of a row: distance of lanes
  std::string begin, end;    // of a row: the lanes that exist; empty where there is no limit
  bool own_padding = false;  // of a row: what follows the last lane is padding of the same row
  std::string where;         // of scattered lanes: those that exist
  std::string of_lane;       // the address of lane i; unless
  std::string lanes;         // these are the elements after `pointer`, in a vector
};

// Under which conditions the rows that a pass reads and writes exist and lie side by side.
struct WholeRows {
  std::vector<std::string> conditions;
  // The same but for the ends of pieces of rows, and how many elements of a piece there are.
  std::vector<std::string> of_pieces, ends;
};

// Vectors of a row, all elements of which exist: up to `end`, which is at most `most`.
struct FullVectors {
  std::int64_t most;
  std::string end = std::to_string(most);
};

class GridPrinter {
 public:
  GridPrinter(const Signature& signature, CpuProgram& program, Writer& out);
  void print(const ir::Grid& grid, int number);

 private:
  using Terms = std::vector<std::string>;

  // What the lanes of a vector stand for.
  struct Lane {
    ir::VariablePtr index;
    std::string first;   // the index of lane 0
    std::string active;  // number of lanes that exist; empty if all do
    ir::Expr extent;     // how many indices there are
  };

  // ---- expressions (print_expr.cpp)
  std::string scalar(const ir::Expr& e);
  std::string vector(const ir::Expr& e);
  std::string held_value(const ir::Expr& value);  // a vector where the value differs from lane to lane
  std::string at_first_lane(const ir::Expr& e);
  bool varies(const ir::Expr& e) const;
  bool is_same_in_lanes(const ir::Expr& e) const;
  bool differs_by_group(const ir::Expr& e) const;
  std::string emit(const ir::Expr& e);
  std::string emit_node(const ir::Expr& e);
  std::string emit_vector(const ir::Expr& e);
  std::string emit_byte_dots(const SumOfBytes& sum);
  ir::Expr with_unfinished_sums(const ir::Expr& e) const;
  bool is_left_unfinished(const ir::VariablePtr& variable, const ir::Expr& value);
  std::string emit_operation(const ir::Expr& e, const std::vector<std::string>& x, bool wide);
  std::string infix_text(const ir::Expr& e, std::string_view symbol, std::vector<std::string> x) const;
  static bool is_division(const ir::Expr& e) { return e->op == ir::Op::div || e->op == ir::Op::floordiv; }
  // The divisor of a division of integers, or of a remainder, by a power of two.
  static std::optional<std::int64_t> power_of_two_divisor(const ir::Expr& e);
  bool is_shift_or_mask(const ir::Expr& e);
  std::string emit_shift_or_mask(const ir::Expr& e, const std::string& x) const;
  std::string emit_cast(const ir::Expr& e, const std::string& x, bool wide);
  std::string emit_bitcast(const ir::Expr& e, const std::string& x, bool wide);
  std::string variable_text(const ir::VariablePtr& variable);
  std::optional<std::int64_t> lane_factor(const ir::Expr& e) const;
  ir::Expr expanded(const ir::Expr& e) const;
  std::string as_long(const ir::Expr& e);
  std::string name_variable(const ir::VariablePtr& variable);
  std::string name_vector(const ir::VariablePtr& variable);

  // ---- elements (print_access.cpp)
  std::string stride_text(const ir::View& view, int dim);
  std::string extent_text(const ir::View& view, int dim);
  std::string pointer_name(const ir::BufferPtr& buffer) const;
  bool is_inside(const ir::View& view, int dim, const ir::Interval& range) const;
  Terms limits(const ir::View& view, int dim, const std::string& coordinate, const ir::Interval& range);
  Address address(const ir::Access& access);
  using TakeLanes = std::function<bool(const ir::Expr& at, Terms& terms)>;
  std::optional<Terms> terms_of_lanes(const ir::Access& access, const TakeLanes& take);
  bool is_lane_index(const ir::Expr& e) const;
  std::optional<std::string> load_spread_text(const ir::Access& access);
  std::optional<std::string> load_exchanged_text(const ir::Access& access);
  Address scattered_address(const ir::Access& access, const std::vector<ir::Expr>& at);
  std::string lanes_of(const ir::Expr& coordinate, bool in_tile);
  void limit_lanes(const ir::View& view, int dim, const std::string& first, Address& row);
  Address row_address(const ir::Access& access, const std::vector<ir::Expr>& at, int lane_dim);
  std::string load_text(const ir::Access& access);
  std::string load_single(const ir::BufferPtr& buffer, const Address& at);
  std::string load_row(const ir::BufferPtr& buffer, const Address& at);
  void store(const ir::Access& access, const std::string& value, bool value_is_rounded);
  void store_row(const ir::BufferPtr& buffer, const Address& at, const std::string& value);
  MemoryView memory(const ir::View& view, const std::vector<std::string>& extents);
  void clip_axis(const ir::View& view, int dim, const std::string& offset, const std::string& extent,
                 MemoryAxis& axis);

  // ---- statements (print_stmt.cpp)
  void prologue(const ir::Grid& grid);
  void prologue_of(const ir::BufferPtr& buffer, int& place);
  void body(const ir::Body& body);
  void stmt(const ir::Stmt& stmt);
  void in_scope(const ir::Body& nested);
  void operator()(const ir::Let& n, const ir::Stmt& stmt);
  void operator()(const ir::Load& n, const ir::Stmt& stmt);
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
  void define(const ir::VariablePtr& variable, const std::string& value, bool wide, bool is_const,
              const Loc& at);
  std::string report_place(std::vector<CpuProgram::Report>& reports, const std::string& text, const Loc& at);
  void open_loop(const ir::VariablePtr& index, const ir::Expr& begin, const ir::Expr& end, const Loc& at);
  void masked(const ir::If& n, const Loc& at);
  void clear_without_steps(const ir::For& loop, std::span<const BegunSum> sums);

  // ---- rows (print_rows.cpp)
  void rows(const std::vector<RowOp>& group);
  void pass(const std::vector<RowOp>& ops, std::span<const RowOp> later);
  void scalar_op(const RowOp& op);
  bool scales_rows(const RowOp& op) const;
  void row_body(const RowOp& op, const std::string& accumulator);
  std::string begin_reduction(const RowOp& op);
  void end_reduction(const RowOp& op, const std::string& accumulator);
  void whole_vectors(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                     std::int64_t end);
  bool accesses_narrow(const std::vector<RowOp>& ops) const;
  void outer_loop(const ir::VariablePtr& index, const ir::Expr& extent, const Loc& at);
  void full_vectors(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                    const FullVectors& full);
  void apart(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators, std::int64_t end,
             const WholeRows& whole);
  void look_for_short_rows(const std::vector<RowOp>& ops);
  std::string vectors_of_piece(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                               std::int64_t end, const WholeRows& whole);
  void remaining_vectors(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                         const std::string& begin, std::int64_t end);
  void vectors_from(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                    std::int64_t begin);
  void vectors(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators, const Lane& lane);
  void sums_side_by_side(const std::vector<RowOp>& ops, const std::vector<std::string>& accumulators,
                         const std::string& end);

  // ---- rows of tensors (print_whole_rows.cpp)
  std::vector<RowOp> with_values_kept(std::vector<RowOp> ops, std::span<const RowOp> later) const;
  // The rows are in `whole_`, then.
  WholeRows whole_rows(const std::vector<RowOp>& ops);
  void add_whole_row(const std::vector<RowOp>& ops, const ir::Access& access, WholeRows& whole);
  ir::Expr of_whole_rows(const ir::Expr& value) const;
  std::string ahead_of(const ir::Access& access, const Address& at);
  bool is_read_again(const ir::Access& access) const;
  bool is_short_of_list(const ir::Access& access) const;
  std::string load_whole(const ir::Access& access, const Address& at);
  void store_whole(const ir::BufferPtr& buffer, const Address& at, const std::string& value);

  // ---- whole tiles (print_tiles.cpp)
  std::string allocate(std::int64_t bytes);
  // Prints loops over all axes but the last two, and gives the body two axes.
  using MatrixBody = std::function<void(const MemoryView& a, const MemoryView& b, const std::string& rows,
                                        const std::string& cols)>;
  void for_matrices(MemoryView a, MemoryView b, std::vector<std::string> extents, const MatrixBody& f);
  std::string inside_text(const MemoryView& view);
  std::string narrow_text(const ir::Copy& n, MemoryView from, const MemoryView& to);
  void copy_in(const ir::Copy& n, const ir::Stmt& copy);
  void copy_out(const ir::Copy& n, const Loc& at);
  void copy_transposed(const ir::Copy& n, const Loc& at);
  std::string fill_text(const ir::Copy& n);
  std::string gather_rows(const ir::Gather& n, const Loc& at);
  void fetch_rows(const ir::Gather& n, const MemoryView& from, const std::string& rows);
  void gather_panels(const ir::Gather& n, const MemoryView& from, const std::string& rows,
                     const std::vector<std::string>& extents, bool transposed, const Loc& at);
  void gather_tile(const ir::Gather& n, MemoryView from, MemoryView to, const std::string& rows,
                   std::vector<std::string> extents, const Loc& at);
  std::string operand_b(const ir::Gemm& n, const ir::Stmt& product);
  std::string product_text(const ir::Gemm& n);
  bool is_known(const ir::View& view) const;
  void let_sums_leave(const ir::For& loop, const BegunSum& sum);
  std::string operand_a(const ir::Gemm& n, const MemoryView& a) const;
  std::string leaving_text(const ir::Stmt& product, bool fetches) const;
  bool is_narrow(const ir::Access& access) const;
  std::string narrow_place(const ir::Access& access);
  void add_product(const ir::Gemm& n, const MemoryView& c, const std::string& from,
                   const std::string& row_stride, const std::string& adds);
  std::string adds_text(const ir::Gemm& n, const ir::Stmt& product) const;
  std::string unpacked_b(const ir::Gemm& n);
  bool reads_columns(const ir::Gemm& n) const;
  std::string copied_b(const ir::Copy& n, const ir::Gemm& product);
  std::string panels_text(const ir::Copy& n, MemoryView from);
  std::string rows_text(const FetchAhead& fetch);
  std::string rows_to_copy(const FetchAhead& fetch);
  std::string fetched_text(const ir::Stmt& product);

  // ---- what is fetched for the next block (print_next.cpp)
  std::string rows_of_next();
  bool stands_for_fetch(const ir::Copy& n);
  void print_beginning(ir::Grid grid, const NextBlock& next, const std::string& function);
  void look_ahead(const std::string& function);

  // ---- tiles kept for the next blocks (print_kept.cpp)
  std::vector<std::string> place_kept(const ir::Grid& grid, CpuProgram::Block& block);
  void fill_unless_kept(const ir::Copy& n, const ir::Stmt& copy, const MemoryView& from,
                        const std::string& fill);

  const Signature& signature_;
  CpuProgram& program_;
  Writer& out_;
  Names names_;
  std::unordered_map<const ir::Variable*, std::string> variables_;
  std::unordered_map<const ir::Buffer*, std::string> pointers_;
  std::unordered_map<const ir::Buffer*, int> places_;  // of a tensor's first stride
  std::unordered_set<const ir::Variable*> varying_;
  std::unordered_map<const ir::ExprNode*, std::string> shared_;  // of the expression being printed
  std::unordered_set<const ir::ExprNode*> repeated_;
  ir::Facts facts_{ir::Overflow::wraps};
  std::unordered_map<const ir::Variable*, ir::Expr>
      unfinished_;                                            // sums of bytes that are part of larger ones
  std::unordered_map<const ir::Variable*, ir::Expr> values_;  // of lets that only read what never changes
  std::int64_t short_row_ = 0;                                // as in the program
  std::vector<std::vector<ir::VariablePtr>> loops_;           // around the statement
  TileUses uses_;
  std::unordered_set<const ir::Buffer*> finished_;    // tiles that nothing reads any more
  std::vector<ir::Expr> true_of_rows_;                // while these are known to be whole
  std::unordered_set<const ir::Variable*> of_lists_;  // numbers that were loaded for the rows of a pass
  std::unordered_set<const ir::Access*> whole_;       // rows of tensors that are known to be whole
  std::vector<ir::Access> fetched_,
      fetched_of_pass_;   // whose rows passes have read, and the one that is printed reads
  FetchesAhead fetches_;  // of the loops being printed
  BegunSums begun_;       // of the bodies being printed
  std::unordered_set<const ir::Buffer*> of_maxima_;               // of the loops being printed
  std::unordered_set<const ir::StmtNode*> late_clears_;           // that the loops of these have
  std::unordered_map<const ir::StmtNode*, std::string> adds_;     // in which steps a product does
  std::unordered_map<const ir::StmtNode*, std::string> leaving_;  // where its sums go, by the product
  std::unordered_map<const ir::StmtNode*, std::string> stays_;    // when a copy is left to make
  ir::Effects effects_;                                           // of the block
  struct Placed {
    std::string name, sums;  // which leave, where rows stay where they are
  };
  std::unordered_map<const ir::Buffer*, Placed> placed_;    // rows of A, by their tile
  LateCopies late_;                                         // of the bodies being printed
  CopiesOfScans scanned_;                                   // the same
  std::unordered_set<const ir::StmtNode*> made_by_others_;  // copies that products and scans make
  std::vector<FetchAhead> results_;                         // of the block
  std::optional<NextBlock> next_;
  KeptCopies kept_;
  std::unordered_map<const ir::Buffer*, std::string> kept_names_;  // of what is kept, by the tile
  bool fetches_next_ = false;                                      // the rows that are printed next do
  std::optional<Lane> lane_;
  bool first_lane_ = false;  // the index of lane 0 stands for the lane
  bool by_tiles_ = false;    // rows are printed for processors that multiply bf16
  std::string mask_;         // lanes that take part; empty if all active ones do
  int pipelined_ = 0;        // loops around what is printed
  std::int64_t scratch_ = 0, scratch_peak_ = 0;
  int number_ = 0;
};

}  // namespace tegula::codegen
