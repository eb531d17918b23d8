// Prints elements: where each is, one by one or several of a row at a time, and rows that are found one by
// one.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/cuda/grid_state.hpp"
#include "codegen/cuda/places.hpp"
#include "codegen/cuda/reductions.hpp"
#include "passes/cuda/lane_sums.hpp"
#include "passes/cuda/plan_row_stores.hpp"
#include "passes/cuda/plan_rows.hpp"

namespace tegula::codegen {

class ElementPrinter : protected GridState {
 protected:
  using Layout = layout::Layout;
  using Texts = std::vector<std::string>;

  std::string value(const ir::Expr& e) { return values_.value(e); }
  std::string variable_text(const ir::VariablePtr& v) const { return values_.variable_text(v); }
  std::string name_variable(const ir::VariablePtr& v) { return values_.name_variable(v); }

  using GridState::GridState;
  ~ElementPrinter() = default;
  // The statements of a loop's body.
  virtual void body(const ir::Body& statements) = 0;

  // ---- elements (print_access.cpp)
  GuardedAddress address(const ir::Access& access);
  GuardedAddress tensor_address(const ir::Access& access, const std::vector<ir::Expr>& at);
  GuardedAddress shared_address(const ir::Access& access, const std::vector<ir::Expr>& at);
  void add_limits(const ir::View& view, std::size_t dim, const ir::Expr& at, const std::string& text,
                  Texts& guards);
  std::string stride_text(const ir::View& view, std::size_t dim);
  std::string offset_in(const SharedTile& tile, const ir::Buffer& buffer, const Texts& at) const;
  std::string register_text(const ir::Access& access) const;
  std::string register_of_bits(const ir::Access& access) const;
  // `as_stored`: of a tensor, what memory has, before it is converted.
  std::string load_text(const ir::Access& access, bool as_stored = false);
  // `text` is the value's.
  void store(const ir::Access& access, const ir::Expr& value, const std::string& text);
  // The element, or all of the view without an index.
  void touch(const ir::View& view, MemoryUse use, bool by_one, const std::vector<ir::Expr>* index = nullptr);
  Memory tensor_memory(const ir::View& view, const std::vector<ir::Expr>* index) const;
  // What only one thread of those that run it may do.
  std::string only_one() const;
  // Calls with this tensor have its last stride 1, and all else at multiples of 16 bytes.
  void require_aligned(const ir::BufferPtr& tensor, int unit = passes::piece_bytes);

  // ---- registers that threads hold (print_registers.cpp)
  void touch_all(const ir::Body& body);
  Texts base_coordinates(const Layout& layout);
  Coordinates register_coordinates(const Layout& layout, const Texts& base);
  std::string first_replica(const Layout& layout) const;
  // Where all threads may store what others load, in one CTA; and where they store it for every CTA of the
  // block.
  SharedTile stage(const std::string& name, std::int64_t elements, DType type);
  SharedTile place_between_threads(const std::string& name, std::int64_t elements, DType type);

  // ---- blocks that are spread over a cluster (print_spread.cpp)
  void begin_spread_block();
  bool is_counted(DType type, const passes::Parting& divided) const;
  std::string place_of_meeting(const Meeting& m) const;
  void await_parts(std::span<const Meeting> meetings);
  void leave_meeting(std::span<const Meeting> meetings);
  void refuse_to_spread(const std::string& why, const char* remedy);

  void to_shared(const FragmentTile& from, const SharedTile& to, const Loc& at);
  void from_shared(const SharedTile& from, const FragmentTile& to, const Loc& at);
  void release(const SharedTile& tile);

  // ---- loops over elements that load much of shared tiles (print_crowded_loops.cpp)
  std::int64_t words_of_shared_tiles(const ir::For& n, const ir::Stmt& stmt) const;
  bool loads_more_than_registers(const ir::Body& statements) const;
  void keep_few_words(const ir::For& n, const ir::Stmt& stmt);

  // ---- loops over elements, several of a row at a time (print_vectors.cpp)
  // `most` at a time.
  std::optional<Vectors> find_vectors(const ir::For& n, std::int64_t most, const Layout* layout = nullptr);
  bool stores_beside(const ir::For& n, const std::vector<const ir::Stmt*>& pieces) const;
  std::optional<std::vector<const ir::Stmt*>> row_accesses(const ir::For& n) const;
  bool goes_along_row(const ir::For& n, const ir::Access& access) const;
  bool begins_aligned_in_row(const ir::For& n, const ir::Access& access, int width) const;
  bool is_aligned(const ir::For& n, const ir::Access& access, int width) const;
  bool is_stored_in_parts(const ir::For& n, const ir::StmtNode& s, int width) const;
  std::string part_pointer(const ir::Access& access, int first);
  // Whether the text is for calls whose tensor is at multiples of 16 bytes, others having a text of their
  // own.
  bool supposes_alignment(const ir::Buffer& tensor) const;
  static int unit_of_pieces(const ir::Buffer& tensor, int width);
  void add_conditions(const ir::For& n, const ir::Access& access, int width, Texts& conditions,
                      const std::vector<std::size_t>& asked_by_piece = {});
  void add_corner_limits(const ir::For& n, const ir::Access& access, const std::vector<std::size_t>& dims,
                         Texts& conditions);
  std::vector<std::size_t> dims_known_before(const ir::For& n, const ir::Access& access) const;
  std::vector<std::size_t> dims_of_some_pieces(const ir::For& n, const ir::Access& access, int width) const;
  bool is_cut_as_a_whole(const ir::For& n, const ir::Access& access) const;
  std::vector<std::size_t> dims_of_cut_pieces(const ir::For& n, const ir::Access& access, int width) const;
  std::vector<std::size_t> dims_limited_by_piece(const ir::For& n, const ir::Stmt& s, int width) const;
  std::vector<std::size_t> dims_of_some_rows(const ir::For& n, const ir::Stmt& s) const;
  bool runs_outside(const ir::For& n, const Vectors* vectors) const;
  Texts begin_pieces(const ir::For& n, const Vectors& vectors, const ir::Stmt& s, const std::string& exists);
  void by_vectors(const ir::For& n, const Vectors& vectors, const std::string& exists,
                  const std::function<void()>& element);
  void find_pieces(const ir::For& n);
  const std::string& loaded_piece(std::size_t number);
  bool adds_vectors(const ir::Stmt& s) const;
  bool is_packed(const ir::Stmt& s) const { return vectors_ && vectors_->names.contains(s.get()); }
  void either(const Texts& conditions, const std::function<void()>& fast, const std::function<void()>& slow);
  Texts name_place_of_vector(const ir::Buffer& tile, const std::vector<ir::Expr>& index,
                             const std::string& number, int elements);

  // ---- pieces of rows that begin at any element (print_odd_rows.cpp)
  std::optional<Vectors> find_cut_vectors(const ir::For& n, const Layout& layout);
  bool may_be_anywhere(const ir::For& n, const ir::Stmt& s, int width) const;
  bool asks_for_no_place(const ir::For& n, const ir::Stmt& s, int width) const;
  bool ends_within_piece(const ir::For& n, const ir::Access& access, int width) const;
  bool begins_aligned(const ir::For& n, const ir::Access& access, int width);
  void add_anywhere(const Layout& layout, const ir::Stmt& s, Vectors& vectors);
  std::string left_in_row(const ir::For& n, const ir::Access& access, int width);
  void load_piece_of_tile(const ir::For& n, const ir::Access& access, const std::string& name, int width,
                          const std::string& exists);
  Texts begin_piece_anywhere(const ir::For& n, const Vectors& vectors, const ir::Stmt& s,
                             const std::string& exists);

  // ---- elements that are only moved (print_moved_elements.cpp)
  void move_element(const ir::Load& n, const ir::Stmt& stmt);
  bool moves_pieces(const ir::For& n, const Vectors& vectors) const;
  void name_piece(const ir::For& n, const std::string& number, int width);
  void move_pieces(const ir::For& n, const Vectors& vectors);

  // ---- fragments to rows of tensors (print_row_stores.cpp)
  std::string find_row(const passes::RowLoop& rows);
  std::optional<passes::RowLoop> rows_to_find(const ir::For& n) const;
  void find_rows(const Layout& layout, const Texts& base, RowTable& table);
  void name_found(const RowTable& table);
  void store_rows(const ir::For& n, const passes::RowStore& plan, const ir::Stmt& s);
  using WriteElements = std::function<void(const std::string& column, const std::string& elements)>;
  std::function<std::string(const std::string& column)> limits_of_row(const ir::Access& to);
  WriteElements writer_of_row(const passes::RowStore& plan, const GuardedAddress& address,
                              const std::string& guard);
  void store_computed(const ir::For& n, const passes::RowStore& plan, int half, const std::string& of_group,
                      const WriteElements& write);
};

}  // namespace tegula::codegen
