// Makes random programs that are valid by construction: nothing undefined is read, no two iterations, groups
// or blocks conflict, and no integer overflows; what slips through, the interpreter refuses.
#pragma once
#include <functional>
#include <numeric>
#include <optional>

#include "fuzz/program.hpp"
#include "fuzz/random.hpp"

namespace tegula::fuzz {

struct Limits {
  int statements;         // of a program, declarations and loads apart
  int depth;              // of expressions
  std::int64_t work;      // elements touched, loops counted in full
  bool wide = false;      // tiles of up to 256 columns
  bool looks_up = false;  // blocks multiply tiles that are looked up, as a producer and consumers do
};
// Most programs are small, because compiling them takes the time; some are not, and some have wide tiles.
Limits limits_of(std::uint64_t seed);

Program generate(std::uint64_t seed);

inline std::int64_t product_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

struct Value {
  ir::Expr e;
  Nature nature;
};

// How the blocks of a grid use a tensor.
enum class Use : std::uint8_t { none, read, owned, atomic, ordered, in_turns };

struct TensorPlace {
  ir::BufferPtr buffer;
  Nature contract;
  Shape shape;
  bool defined = true;  // every element has contents
  Use use = Use::none;
  ir::AtomicOp op = ir::AtomicOp::add;  // of atomic and ordered
  int sites = 0;                        // ordered accumulations so far
  ir::View view;                        // the window that a block, or an instance of each_group, may touch
  Shape extents;                        // of the view, at most
  bool writable = false;
  bool is_sum = false;  // of atomics, for which its contract has room
  bool is_dense = true;
  bool covered = false;  // the views of all blocks make up the tensor
};

struct TilePlace {
  ir::BufferPtr buffer;
  Nature contract;
  Shape shape;
  bool defined = false;
  bool writable = true;
  bool is_sum = false;
};

struct Scalar {
  ir::VariablePtr variable;
  Nature nature;
  bool in_register_index = false;  // an index of `parallel`
};

struct MutablePlace {
  ir::VariablePtr variable;
  Nature contract;
  bool writable = true;
};

// A view that can be read here.
struct Source {
  ir::View view;
  Nature contract;
  Shape extents;
};

// The element of a buffer that belongs to an iteration of `parallel`, alone.
struct OwnElement {
  ir::Access access;
  Nature contract;
  bool defined = false;
};

class Generator {
 public:
  Generator(std::uint64_t seed, const Limits& limits) : random_(seed), limits_(limits) {
    program_.seed = seed;
  }
  Program run();

 private:
  // ---- the signature
  void make_signature();
  ir::Expr extent_expr(std::int64_t value, bool is_parameter);
  ir::Expr grid_extent(std::int64_t value);
  TensorPlace& make_tensor(ir::Role role, DType type, const Shape& shape, const Nature& contract,
                           bool cleared = false);
  void make_sum();
  void reshape(TensorPlace& tensor);
  void make_scalars();
  Shape random_shape(int rank);
  std::int64_t random_columns();
  Shape tensor_shape(int rank);
  DType random_type();
  Nature random_contract(DType type, bool is_input);
  void add_hints(ir::Grid& grid);
  void make_grid();
  void prepare_tensors(const ir::Grid& grid, const Shape& extents);
  void own(TensorPlace& tensor, const ir::Grid& grid, const Shape& extents);

  // ---- statements of a block
  void block_statements(int count);
  void block_statement();
  TilePlace& declare(DType type, const Shape& shape, const Nature& contract, ir::Space space);
  ir::Space random_space();
  DType similar_type(DType type);
  void declare_somehow();
  bool load_tile();
  bool bring_tile();
  ir::View window_of(const TensorPlace& tensor, std::size_t rank);
  void fill(TilePlace& tile);
  void copy_tiles();
  void copy_out();
  std::vector<std::size_t> writable_tensors();
  bool write_all(const TensorPlace& tensor);
  void cover_outputs();
  void block_store();
  void declare_variable();
  void assign_variable();
  void assertion();

  // ---- operations on tiles
  void gather();
  Nature small_terms(DType type);
  std::optional<ir::View> operand(DType type, const Nature& contract, std::int64_t rows,
                                  std::int64_t columns);
  void product();
  ir::GemmHints random_hints();
  std::optional<Nature> reduced(ir::ReduceOp op, const Nature& from, std::int64_t count, DType type);
  void reduction();
  std::optional<Nature> scanned(ir::ReduceOp op, const Nature& from, std::int64_t count, DType type);
  void scan();
  ir::Expr first_of(ir::ReduceOp op, const Nature& term, DType type);
  bool combine(TensorPlace& tensor);
  Nature contribution(const TensorPlace& tensor);
  void accumulate();
  ir::Expr turn(int site);
  bool dynamic_tiles(const ir::Grid& grid) const;
  void contribute_in_turns(const ir::Grid& grid, const Shape& extents);
  void contribute_in_turn(const TensorPlace& tensor, const ir::Grid& grid, const Shape& extents);
  void atomic();
  void shared_atomic();
  void histogram();
  Nature sums(DType type);
  void groups();
  void split(TensorPlace& tensor, const ir::Expr& instance, int count);

  // ---- products of a producer and consumers
  std::size_t make_table(DType type, const Shape& shape, const Nature& contract);
  void make_tables();
  void make_table_of_sums(std::int64_t rows);
  void store_sum(const TilePlace& sum);
  ir::View window_from(std::size_t table, const ir::Expr& begin);
  std::size_t bring_numbers(std::int64_t count, const std::optional<std::size_t>& older);
  Value number_in(const TilePlace& tile);
  void gather_rows(std::size_t table, const TilePlace& tile, const std::optional<std::size_t>& numbers);
  std::size_t bring_rows(std::int64_t count, const std::optional<std::size_t>& numbers);
  std::size_t convert_rows(std::size_t raw);
  void choose_signs(const TilePlace& sum, const TilePlace& numbers);
  void look_up_and_multiply(const TilePlace& queries, const TilePlace& sum,
                            const std::optional<std::size_t>& older);
  void looked_up_products();
  struct ByteTable {
    std::size_t tensor = 0;
    bool along_k = false;
  };
  void make_byte_tables();
  void bring_in_parts(const ir::View& window, const ir::View& to);
  ir::View bring_bytes(const ByteTable& from, std::int64_t rows, std::int64_t depth, const ir::Expr& step);
  void byte_products();
  void few_blocks(ir::Grid& grid, Shape& extents);
  // Tiles of a program whose steps multiply what the step before made: products of `left` with keys become
  // `carried`, and those of both are summed.
  struct Relay {
    TilePlace left, carried, sum;
  };
  void make_relay_tables();
  TilePlace declare_apart(DType type, const Shape& shape, const Nature& contract, ir::Space space);
  void write_elements(const TilePlace& from, const TilePlace& to, std::int64_t first, bool updates);
  void pass_on(const TilePlace& weights, const TilePlace& carried);
  void add_in_step(const TilePlace& weights);
  void relay_step(const Relay& relay, const ir::Expr& step);
  void multiply_carried(const Relay& relay);
  void relay_steps(const Relay& relay);
  void relayed_products();
  void add_carried(const Relay& relay);

  // ---- control
  struct Range {
    Value begin, end;
  };
  Range random_range(bool is_constant);
  void branch(const std::function<void()>& inside);
  void branch_of_rows();
  void change_rows(const TilePlace& tile, const std::vector<ir::Expr>& of_rows);
  void loop(bool of_elements);
  void inside_loop(std::int64_t most, const std::function<void()>& f);
  // A loop that ends at `last`, of at most so many steps, which statements in it may read.
  void loop_of_steps(ir::LoopKind kind, const char* name, std::int64_t most, const ir::Expr& last,
                     const std::function<void(const ir::Expr& number)>& step);
  void while_loop(bool of_elements);
  void leave();
  ir::Body body(const std::function<void()>& f);
  ir::Body maybe(const std::function<void()>& f);

  // ---- elements
  void parallel();
  void parallel_over(std::size_t tile);
  std::optional<ir::Access> own_access(const ir::View& view, const Shape& extents, const ir::For& loop,
                                       const Shape& count);
  ir::For open_parallel(const Shape& count, bool exactly);
  void fill_parallel(ir::For& loop, const Shape& count, const std::function<void()>& contents);
  void add_targets(const ir::For& loop, const Shape& count);
  void element_statements(int count);
  void element_statement();
  void element_store();

  // ---- values
  Value value(DType type, int depth);
  Value leaf(DType type);
  Value operation(DType type, int depth);
  Value integer_operation(DType type, int depth);
  Value byte_products_of_words(int depth);
  Value float_operation(DType type, int depth);
  Value truth_value(int depth);
  Value conversion(DType type, int depth);
  Value inexact_value(DType type, int depth);
  Value constant(DType type);
  Value checked(ir::Op op, DType type, std::vector<Value> args);
  Value guarded_division(ir::Op op, DType type, int depth);
  std::optional<Value> load(DType type);
  std::optional<Value> guarded_load(DType type);
  Value load_from(const Source& source, std::vector<ir::Expr> index);
  Value read_variable(const MutablePlace& place);
  Value within(const Value& x, std::int64_t low, std::int64_t high);
  Value small(const Value& x);
  Value matching(DType type, const Nature& contract, int depth);
  Value coerced(const Value& x, DType type, const Nature& contract);
  ir::Expr index_within(std::int64_t extent, bool of_register);
  ir::Expr any_index(std::int64_t extent);
  Value named(const Value& x);

  ir::Expr register_index(std::int64_t extent);
  bool reaches(const TilePlace& tile) const;
  bool is_written_here(const ir::BufferPtr& buffer) const;
  std::optional<Source> source(DType type);
  std::optional<Value> own_element(DType type);
  ir::View tile_window(const TilePlace& tile, Shape& extents, int rank);

  // ---- output
  template <class Node>
  void emit(Node node) {
    out_->push_back(ir::statement(std::move(node), Loc()));
  }
  ir::VariablePtr variable(const char* prefix, DType type, ir::VariableKind kind, const Nature& nature);
  Value value_of(const ir::VariablePtr& v) {
    return {ir::variable(v), program_.contracts.variables.at(v.get())};
  }
  bool spend(std::int64_t elements);

  Random random_;
  Limits limits_;
  struct Tables {  // of tensors_
    std::size_t rows = 0, numbers = 0, fours = 0, sums = 0;
    std::int64_t height = 0;  // of products
    bool of_relays = false;   // with the following
    std::int64_t keys = 0;
    std::size_t added = 0;    // of tensors_, to which steps add
    bool of_bytes = false;    // operands, from the following
    ByteTable left, right;
    std::int64_t depth = 0;
    std::optional<DType> wide = {};  // of tiles whose tensors have 8-bit floats
  };
  Tables tables_;
  Program program_;
  ir::Kernel kernel_;
  std::vector<TensorPlace> tensors_;
  std::vector<TilePlace> tiles_;
  std::vector<Scalar> scalars_;
  std::vector<MutablePlace> variables_;
  ir::Body* out_ = nullptr;
  std::int64_t times_ = 1;
  std::int64_t work_ = 0;
  int left_ = 0;
  int nesting_ = 0, value_nesting_ = 0;
  int next_name_ = 0;
  std::vector<Value> turn_digits_;  // indices whose values tell executions of one statement apart
  bool turns_known_ = true;         // that they do
  bool in_parallel_ = false, in_group_ = false, in_loop_ = false, may_exit_ = true;
  // In `parallel`: the one element of each written buffer that belongs to the iteration.
  std::vector<OwnElement> own_elements_;
};

}  // namespace tegula::fuzz
