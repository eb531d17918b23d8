// The table of an operator without its C++ types: what the command line, Python, the documents and the tests
// read, and the access by name that calls need.
//
// Dims of a tensor, as text: `transpose_a ? [batch] k m : [batch] m k`. Every item is a name, an expression
// without blanks, `...` (any leading extents; a program gets them as one dim, `rows`), or `[name]`, which may
// be missing, with the items after it. `~name` may also be 1, which is repeated to what others have. `(a*b)`
// is one extent of the caller's and two, a and b, of a program.
#pragma once
#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ops/schema/expression.hpp"
#include "tegula/lang.hpp"
#include "tegula/runtime.hpp"

namespace tegula::ops {

using Tensors = std::map<std::string, Tensor>;
// Nothing stands for an option that is left to the operator.
using OptionValue = std::variant<std::monostate, bool, std::int64_t, double, std::string>;
using OptionValues = std::map<std::string, OptionValue>;

struct DimItem {
  Expression extent;
  bool optional = false, repeats = false;  // [name] and ~name
  bool leading = false;                    // ...
  bool splits = false;                     // (a*b)
};

// The dims of a tensor, of which conditions choose one list: the first whose condition holds.
struct DimList {
  std::optional<Expression> condition;
  std::vector<DimItem> items;
  std::vector<int> order;  // of the items in a program; empty: as they are
};

// Which dtypes a tensor may have: one of `types`, that of the tensor `like`, or what the option says.
struct TypeRule {
  std::vector<DType> types;
  std::string like;                     // the dtype of that tensor, or
  std::string option;                   // what the option says, if it is given
  std::optional<DType> of_8_bits = {};  // instead of `like`'s where that has 8 bits
  int like_index = -1, option_index = -1;

  bool lists(DType dtype) const { return std::find(types.begin(), types.end(), dtype) != types.end(); }
};

// A tensor [sequences + 1] that says where packed sequences begin and end: integers that start with 0, never
// fall and end with the number of tokens. On a device they are not read.
struct PackingSpec {
  Expression tokens;         // a dim
  std::string promise = {};  // the option that says how long one is at most, or empty
  std::string longest = {};  // the derived value that says it; without the tensor it is all tokens
  bool ends_early = false;   // tokens after the last one's end belong to no sequence
  int promise_position = -1, longest_position = -1;
};

struct TensorSpec {
  std::string name, meaning, dims;  // dims as text
  std::vector<DimList> lists;
  TypeRule type;
  bool output = false;
  bool written = false;      // an input that the operator writes in place
  bool optional = false;     // of an input
  bool unit_stride = false;  // the last dimension has stride 1
  bool converts = false;     // PyTorch's int64 are taken as the integers that it has
  bool ordered = false;      // a program gets it as the first list with the same items says
  bool follows = false;      // bound after the other inputs: where extents differ, its own are wrong
  std::optional<PackingSpec> packs = {};
  std::optional<Expression> when;  // of an output: whether there is one
  std::string steps_of;  // of an output: it is computed in that tensor's dtype, though it has another
  // Of an output, or the input whose gradient it is: where this holds, it is a difference of much larger
  // sums.
  std::optional<Expression> cancels;
  std::string remedy = "give it that shape";
  // Integers of an example: low <= value < end. Without, numbers are normal, and integers natural numbers.
  std::optional<Expression> low, end;
  // Values of an example that ranges cannot say.
  std::function<Tensor(const Shape& shape, DType type, std::uint64_t seed,
                       const std::function<std::int64_t(const std::string&)>& dim)>
      values;

  // The member of an operator's struct: a TensorRef, or std::optional<TensorRef>.
  std::size_t offset = 0;
  bool holds_optional = false;
  const TensorRef* get(const void* op) const;  // null if it is not given
  void set(void* op, const TensorRef& tensor) const;
};

enum class OptionKind : std::uint8_t { boolean, integer, real, choice, dtype };
std::string_view name_of(OptionKind kind);

struct OptionRule {
  std::optional<double> low, high;
  bool above_low = false;  // low itself is excluded
  std::string expected;    // "a positive finite number"
  std::string remedy;
};

// How a member of a struct is an option.
struct OptionAccess {
  OptionValue (*get)(const void* member);
  void (*set)(void* member, const OptionValue& value);
  std::int64_t (*number)(const void* member);
  bool (*obeys)(const void* member, const OptionRule& rule);
};

struct OptionSpec {
  std::string name, meaning;
  OptionKind kind = OptionKind::boolean;
  OptionValue fallback;                 // of the struct; nothing: the operator decides, or
  std::optional<Expression> otherwise;  // this real number
  bool small = true;                    // of an integer: has 32 bits
  bool needed = false;                  // has no sensible default
  std::vector<std::string> choices;     // of choices and dtypes
  OptionRule rule;

  // The member of an operator's struct.
  std::size_t offset = 0;
  const OptionAccess* access = nullptr;
  OptionValue get(const void* op) const { return access->get(member(op)); }
  void set(void* op, const OptionValue& value) const {
    access->set(static_cast<std::byte*>(op) + offset, value);
  }
  // As a number for expressions: that of a choice is its position, of what is not given 0.
  std::int64_t number(const void* op) const { return access->number(member(op)); }
  // A number that obeys the rule, or nothing.
  bool obeys(const void* op) const { return access->obeys(member(op), rule); }

 private:
  const void* member(const void* op) const { return static_cast<const std::byte*>(op) + offset; }
};

struct NamedExpression {
  std::string name;
  Expression value;
};

class BoundCall;
class Launch;
class Exact;

struct RequirementSpec {
  std::string argument;  // to blame: a tensor or an option
  std::optional<Expression> condition;
  std::function<bool(const BoundCall&)> holds;  // what an expression cannot say
  std::string expected, remedy;                 // `{name}` in it stands for the value of that dim or option
  bool of_options = false;  // names options and whether tensors are given only: checked before extents are
};

// An example: `ragged: m=37 k=45 n=29 f16 bias:f32 activation=gelu`.
struct Example {
  std::string name, text;
};

// Calls between and beside the examples, as a rectangle: `base`, a column and a row one after another are the
// text of an example, in which later words win.
struct CallMap {
  std::string name, base;
  std::vector<std::string> columns, rows;

  std::string text(std::size_t row, std::size_t column) const {
    return base + " " + columns.at(column) + " " + rows.at(row);
  }
};
// `text` with each number from `first` to `last` for every #: `d=# d_v=#`.
std::vector<std::string> stepped(const std::string& text, int first, int last, int step);

struct OperatorSchema {
  std::string name, doc, source;
  std::vector<TensorSpec> tensors;  // inputs, then outputs
  std::size_t inputs = 0;           // how many of them
  std::vector<OptionSpec> options;
  std::vector<std::string> dims;         // names, in the order of their first use
  std::vector<NamedExpression> derived;  // values of dims and options, by name
  std::vector<RequirementSpec> requirements;
  std::string gradient;     // name of the operator that differentiates it; may be empty
  std::string no_gradient;  // why it has none
  bool composed = false;    // PyTorch's gradient consists of calls of other operators
  std::string rival;        // what it is measured beside: another operator, or a routine that the tool knows
  std::optional<Expression> flops;
  std::function<double(const BoundCall&)> counted;  // flops of tensors that are not only described
  std::vector<Example> examples, measured;
  std::vector<CallMap> maps;
  std::vector<std::string> built_in;  // calls whose kernels the build compiles for CPUs

  // Access to calls: a struct with its defaults, and what runs on a checked one.
  std::function<std::shared_ptr<void>()> make;
  std::function<Target(const void* op)> target;
  std::function<void(void* op, Target target)> set_target;
  std::function<void(const BoundCall& call, Launch& launch)> run;
  std::function<void(const BoundCall& call, Exact& exact)> formula;

  // Whether some input is written in place.
  bool writes_inputs() const;

  // Defined once: every operator's source would compile them again.
  OperatorSchema();
  ~OperatorSchema();
  OperatorSchema(const OperatorSchema&);
  OperatorSchema(OperatorSchema&&) noexcept;
  OperatorSchema& operator=(const OperatorSchema&);
  OperatorSchema& operator=(OperatorSchema&&) noexcept;

  // Positions of names in expressions: dims, derived values, options, tensors.
  int position_of(const std::string& name) const;  // -1: unknown
  std::size_t positions() const { return dims.size() + derived.size() + options.size() + tensors.size(); }
  std::size_t first_option_position() const { return dims.size() + derived.size(); }
  std::size_t first_tensor_position() const { return first_option_position() + options.size(); }
  const TensorSpec* find_tensor(const std::string& tensor) const;
  const OptionSpec* find_option(const std::string& option) const;
  // The operator whose gradients this one gives; null if there is none.
  const OperatorSchema* forward() const;

  // Works out positions, once the table is written; an InternalError if it contradicts itself.
  void complete();
};

// The dims of `[batch] m k`, and of `c ? … : …`.
std::vector<DimList> parse_dims(const std::string& text);

// Everything that is declared, in the order of the list; an unknown name is an ArgumentError.
const std::vector<const OperatorSchema*>& operator_schemas();
const OperatorSchema& find_schema(const std::string& name);

// A call by names. Wrong names, and values of a wrong type, are an ArgumentError as wrong tensors are. The
// outputs that are given are written; others are new. Inputs that the operator writes in place are results
// too: here those are copies, and what is given stays as it is.
Tensors call_by_name(const OperatorSchema& schema, const Tensors& tensors, const OptionValues& options,
                     Target target = Target::automatic());
// The same, which writes them where they are.
Tensors call_in_place(const OperatorSchema& schema, const Tensors& tensors, const OptionValues& options,
                      Target target = Target::automatic());
// The kernels that such a call runs, and why its plan takes a slower way than others; nothing runs, and
// tensors need no memory.
struct ListedCall {
  std::vector<lang::Kernel> kernels;
  std::vector<std::string> notes;
  std::vector<std::string> moved;  // tensors of which programs get copies, one row behind the other
};
ListedCall listed_by_name(const OperatorSchema& schema, const Tensors& tensors, const OptionValues& options,
                          Target target = Target::automatic());
// The kernels alone.
std::vector<lang::Kernel> kernels_by_name(const OperatorSchema& schema, const Tensors& tensors,
                                          const OptionValues& options, Target target = Target::automatic());
// The same by the formula, in double precision; every step is rounded to `steps`.
Tensors formula_by_name(const OperatorSchema& schema, const Tensors& tensors, const OptionValues& options,
                        DType steps = f64);
// The dtype of the steps of a plain computation of an output of the dtype `own`, by which it is judged.
DType plain_steps(const OperatorSchema& schema, const std::string& output, DType own, const Tensors& tensors);
// The formula's results for a call given by the operator's struct.
Tensors formula_of(const OperatorSchema& schema, const void* op, DType steps = f64);
// A value for the option from text; an ArgumentError if it is not of its type.
OptionValue parse_option(const OperatorSchema& schema, const std::string& name, const std::string& text);

}  // namespace tegula::ops
