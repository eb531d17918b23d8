// Places: tensors, tiles, their views and elements, and variables.
#pragma once
#include <initializer_list>
#include <span>
#include <variant>
#include <vector>

#include "tegula/lang/value.hpp"

TEGULA_API_BEGIN
namespace tegula::lang {

using ViewPtr = std::shared_ptr<const ir::View>;

// One element of a tensor or a tile. Using it as a value reads it now; assigning to it records a store.
class Element {
 public:
  Element(const ViewPtr& view, std::span<const Operand> index, Loc at);
  Element(const ViewPtr& view, std::initializer_list<Operand> index, Loc at)
      : Element(view, std::span(index.begin(), index.size()), at) {}
  ~Element();
  Element(const Element&) = delete;             // an element is used where it is written: `Expr x = a(i);`
  Element& operator=(const Element&) = delete;  // `auto x = a(i)` is a reference: write `Expr x = a(i);`

  void operator=(const Operand& value) &&;
  void operator=(Element&& value) &&;
  void operator+=(const Operand& value) &&;
  void operator-=(const Operand& value) &&;
  void operator*=(const Operand& value) &&;
  void operator/=(const Operand& value) &&;

  const ViewPtr& view() const { return view_; }
  const std::vector<Expr::Node>& index() const { return index_; }
  const Loc& at() const { return at_; }

 private:
  ViewPtr view_;
  std::vector<Expr::Node> index_;
  Loc at_;
};

// Keeps a whole dimension of a view.
struct All {};
inline constexpr All all{};

// Half-open; empty if end <= begin.
struct Range {
  Operand begin, end;
};
inline Range range(Operand begin, Operand end) { return {std::move(begin), std::move(end)}; }

// One argument of slice(): an index drops the dimension; a range or `all` keeps it.
struct Subscript {
  std::variant<All, Range, Operand> what;
  Subscript();
  Subscript(All) : Subscript() {}
  Subscript(const Range& range);
  template <Number T>
  Subscript(T index, Loc at = Loc::current()) : Subscript(Expr(index), at) {}
  Subscript(const Expr& index, Loc at = Loc::current());
  Subscript(Element&& index, Loc at = Loc::current());
  Subscript(const Var& index, Loc at = Loc::current());
  Subscript(const Subscript&);
  Subscript& operator=(const Subscript&);
  ~Subscript();
};

using Extents = std::vector<Operand>;

// The window of a tensor that starts at an offset. Its size is that of the tile on the other side of the
// copy.
struct Window {
  ViewPtr view;
  Loc at;
  Window(ViewPtr view, Loc at);
  Window(const Window&);
  ~Window();
};

// A tensor in global memory, or a view of one. Copying a Tensor copies the handle. An element outside the
// view reads as 0, and is not written.
class Tensor {
 public:
  explicit Tensor(ViewPtr view);
  Tensor(const Tensor&);
  Tensor(Tensor&&) noexcept;
  Tensor& operator=(const Tensor&);
  Tensor& operator=(Tensor&&) noexcept;
  ~Tensor();

  template <std::convertible_to<Operand>... Indices>
  Element operator()(Operand first, Indices&&... rest) const {
    Loc at = first.at;
    return {view_, {std::move(first), detail::operand_at(std::forward<Indices>(rest), at)...}, at};
  }
  // Missing trailing arguments are `all`.
  [[nodiscard]] Tensor slice(Subscript a, Subscript b = {}, Subscript c = {}, Subscript d = {},
                             Subscript e = {}, Subscript f = {}, Loc at = Loc::current()) const;
  // Missing trailing offsets are 0.
  template <std::convertible_to<Operand>... Offsets>
  [[nodiscard]] Window at(Operand first, Offsets&&... rest) const {
    Loc at = first.at;
    return window({std::move(first), detail::operand_at(std::forward<Offsets>(rest), at)...}, at);
  }
  // The same elements in row-major order with another shape. The memory must be contiguous (checked at the
  // call). Only for a whole tensor, not for a slice.
  [[nodiscard]] Tensor reshape(const Extents& shape, Loc at = Loc::current()) const;
  [[nodiscard]] Expr extent(int dim, Loc at = Loc::current()) const;
  int rank() const;
  DType type() const;
  const ViewPtr& view() const { return view_; }

 private:
  Window window(std::initializer_list<Operand> offsets, Loc at) const;
  ViewPtr view_;
};

// A tile has a constant shape and belongs to one block. It is never copied implicitly; pass it by reference.
class Tile {
 public:
  Tile(Tile&&) noexcept;
  Tile(const Tile&) = delete;
  Tile& operator=(const Tile&) = delete;  // write copy(from, to)

  int rank() const;
  int extent(int dim) const;
  std::vector<int> shape() const;
  DType type() const;
  const ViewPtr& view() const { return view_; }

  template <std::convertible_to<Operand>... Indices>
  Element operator()(Operand first, Indices&&... rest) {
    Loc at = first.at;
    return {view_, {std::move(first), detail::operand_at(std::forward<Indices>(rest), at)...}, at};
  }
  template <std::convertible_to<Operand>... Indices>
  Expr operator()(Operand first, Indices&&... rest) const {
    Loc at = first.at;
    return Element{view_, {std::move(first), detail::operand_at(std::forward<Indices>(rest), at)...}, at};
  }
  // The value of a tile of rank 0, such as the sum of a vector.
  [[nodiscard]] Expr scalar(Loc at = Loc::current()) const;

 protected:
  ~Tile();
  enum class Space { shared, fragment };
  Tile(const char* name, Space space, const std::vector<int>& shape, DType type, Loc at);
  explicit Tile(ViewPtr view);
  ViewPtr transposed(Loc at) const;
  ViewPtr sliced(const std::vector<Subscript>& subscripts, Loc at) const;
  ViewPtr reshaped(const std::vector<int>& shape, Loc at) const;
  void fill_with(const Operand& value, Loc at);

 private:
  ViewPtr view_;
};

// A tile is not a value; compute with its elements, as in parallel(t, [&](Index i) { t(i) = t(i) * 2; }).
// clang-format off
template <class T> void operator+(const Tile&, const T&) = delete;  // of elements: parallel(t, [&](Index i) { t(i) + … })
template <class T> void operator-(const Tile&, const T&) = delete;  // of elements: parallel(t, [&](Index i) { t(i) - … })
template <class T> void operator*(const Tile&, const T&) = delete;  // of elements: parallel(t, [&](Index i) { t(i) * … }); products: gemm
template <class T> void operator/(const Tile&, const T&) = delete;  // of elements: parallel(t, [&](Index i) { t(i) / … })
template <class T> requires(!std::derived_from<T, Tile>) void operator+(const T&, const Tile&) = delete;  // of elements: parallel(t, …)
template <class T> requires(!std::derived_from<T, Tile>) void operator-(const T&, const Tile&) = delete;  // of elements: parallel(t, …)
template <class T> requires(!std::derived_from<T, Tile>) void operator*(const T&, const Tile&) = delete;  // of elements: parallel(t, …)
template <class T> requires(!std::derived_from<T, Tile>) void operator/(const T&, const Tile&) = delete;  // of elements: parallel(t, …)
// clang-format on

// A tile in the shared memory of the block; its contents are undefined. A name appears in printed programs,
// generated code, schedules and errors; without one a tile is called s0, s1, …
class Shared : public Tile {
 public:
  Shared(std::initializer_list<int> shape, DType type, Loc at = Loc::current())
      : Tile("", Space::shared, shape, type, at) {}
  Shared(const char* name, std::initializer_list<int> shape, DType type, Loc at = Loc::current())
      : Tile(name, Space::shared, shape, type, at) {}
  Shared(const std::vector<int>& shape, DType type, Loc at) : Tile("", Space::shared, shape, type, at) {}
  Shared(const char* name, const std::vector<int>& shape, DType type, Loc at)
      : Tile(name, Space::shared, shape, type, at) {}
  Shared(const Extents&, DType) = delete;  // the extents of a tile are C++ numbers, not Dims or Exprs
  Shared(const char*, const Extents&, DType) = delete;  // the extents of a tile are C++ numbers
  [[nodiscard]] Shared T(Loc at = Loc::current()) const;
  [[nodiscard]] Shared slice(Subscript a, Subscript b = {}, Subscript c = {}, Subscript d = {},
                             Loc at = Loc::current()) const;
  [[nodiscard]] Shared reshape(const std::vector<int>& shape, Loc at = Loc::current()) const;

 private:
  explicit Shared(ViewPtr view) : Tile(std::move(view)) {}
};

// A tile distributed over the registers of the block's threads; undefined, or filled with `value`.
// Its elements can be used inside parallel() only. Names are as those of Shared tiles; without one: f0, f1, …
class Fragment : public Tile {
 public:
  Fragment(std::initializer_list<int> shape, DType type, Loc at = Loc::current())
      : Tile("", Space::fragment, shape, type, at) {}
  Fragment(const char* name, std::initializer_list<int> shape, DType type, Loc at = Loc::current())
      : Tile(name, Space::fragment, shape, type, at) {}
  Fragment(std::initializer_list<int> shape, DType type, const Operand& value, Loc at = Loc::current())
      : Fragment("", shape, type, value, at) {}
  Fragment(const char* name, std::initializer_list<int> shape, DType type, const Operand& value,
           Loc at = Loc::current())
      : Tile(name, Space::fragment, shape, type, at) {
    fill_with(value, at);
  }
  Fragment(const std::vector<int>& shape, DType type, Loc at) : Tile("", Space::fragment, shape, type, at) {}
  Fragment(const char* name, const std::vector<int>& shape, DType type, Loc at)
      : Tile(name, Space::fragment, shape, type, at) {}
  Fragment(const Extents&, DType) = delete;  // the extents of a tile are C++ numbers, not Dims or Exprs
  Fragment(const Extents&, DType, const Operand&) = delete;  // the extents of a tile are C++ numbers
  Fragment(const char*, const Extents&, DType) = delete;     // the extents of a tile are C++ numbers
  Fragment(const char*, const Extents&, DType,
           const Operand&) = delete;  // the extents of a tile are C++ numbers

  [[nodiscard]] Fragment T(Loc at = Loc::current()) const;
  [[nodiscard]] Fragment slice(Subscript a, Subscript b = {}, Subscript c = {}, Subscript d = {},
                               Loc at = Loc::current()) const;
  [[nodiscard]] Fragment reshape(const std::vector<int>& shape, Loc at = Loc::current()) const;
  // A new Fragment with the same contents in another type.
  [[nodiscard]] Fragment to(DType type, Loc at = Loc::current()) const;

 private:
  explicit Fragment(ViewPtr view) : Tile(std::move(view)) {}
};

// A scalar that can change. Outside parallel() there is one per block, inside parallel() one per iteration.
class Var {
 public:
  template <Number T>
  Var(T value, Loc at = Loc::current()) : Var(Operand(value, at)) {}
  Var(const Expr& value, Loc at = Loc::current());
  Var(Element&& value, Loc at = Loc::current());
  explicit Var(const Operand& value);
  Var(const Var&) = delete;  // for a second variable write Var y = Expr(x)
  ~Var();

  void operator=(const Operand& value);
  void operator=(Var& value);
  void operator+=(const Operand& value);
  void operator-=(const Operand& value);
  void operator*=(const Operand& value);
  void operator/=(const Operand& value);
  void operator|=(const Operand& value);
  void operator&=(const Operand& value);
  void operator^=(const Operand& value);

  const std::shared_ptr<const ir::Variable>& variable() const { return variable_; }

 private:
  std::shared_ptr<const ir::Variable> variable_;
};

}  // namespace tegula::lang
TEGULA_API_END
