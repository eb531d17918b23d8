// Numbers of 4 and 2 bits, several of which share a byte of a tensor or of a Shared tile.
#pragma once
#include "tegula/lang/tile_ops.hpp"

TEGULA_API_BEGIN
namespace tegula::lang {

// How numbers are packed. The first of a byte is in its lowest bits. Read one by one they are i32, those of
// e2m1 f32; `i4` and `i2` are two's complement.
struct PackedType {
  enum class Code : std::uint8_t { signed_integer, unsigned_integer, e2m1 } code;
  int bits;
  int excess = 0;      // a number is what is stored, less this
  DType storage = u8;  // the elements that a tensor of such numbers has: u8, or u32

  // The same numbers, stored with an excess (offset binary): `u4.minus(8)` has −8 to 7.
  constexpr PackedType minus(int number) const { return {code, bits, excess + number, storage}; }
  // The same bytes, moved and decoded as u32: a thread reads eight numbers of 4 bits at a time.
  constexpr PackedType in_words() const { return {code, bits, excess, u32}; }

  constexpr int in_element() const { return storage.bits() / bits; }
  constexpr DType value() const { return code == Code::e2m1 ? f32 : i32; }
  std::string name() const;
  friend constexpr bool operator==(const PackedType&, const PackedType&) = default;
};

inline constexpr PackedType i4{PackedType::Code::signed_integer, 4};
inline constexpr PackedType u4{PackedType::Code::unsigned_integer, 4};
inline constexpr PackedType i2{PackedType::Code::signed_integer, 2};
inline constexpr PackedType u2{PackedType::Code::unsigned_integer, 2};
inline constexpr PackedType e2m1{PackedType::Code::e2m1,
                                 4};  // 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives

// A view of packed numbers: its elements, which hold several numbers along the last dimension.
struct PackedView {
  ViewPtr elements;
  PackedType type;

  int rank() const;
  // A number, in the type of values; as f32, which no instruction that converts integers makes.
  Expr number(const std::vector<Operand>& index, Loc at) const;
  Expr as_f32(const std::vector<Operand>& index, Loc at) const;
};

// The window of a packed tensor that begins at an offset.
struct PackedWindow {
  PackedView view;
  Loc at;
};

// A tensor in global memory that a call passes as u8 (or u32, with in_words()): [n, k] numbers of 4 bits are
// u8 [n, k / 2]. Numbers outside the view are those of elements 0, and are not written.
class PackedTensor {
 public:
  // `elements` hold such numbers along their last dimension.
  PackedTensor(const Tensor& elements, PackedType type, Loc at = Loc::current());

  template <std::convertible_to<Operand>... Indices>
  Expr operator()(Operand first, Indices&&... rest) const {
    Loc at = first.at;
    return view_.number({std::move(first), detail::operand_at(std::forward<Indices>(rest), at)...}, at);
  }
  template <std::convertible_to<Operand>... Indices>
  [[nodiscard]] Expr as_f32(Operand first, Indices&&... rest) const {
    Loc at = first.at;
    return view_.as_f32({std::move(first), detail::operand_at(std::forward<Indices>(rest), at)...}, at);
  }
  // As those of Tensor. The last dimension is kept, and ranges and offsets of it are multiples of the numbers
  // of an element.
  [[nodiscard]] PackedTensor slice(Subscript a, Subscript b = {}, Subscript c = {}, Subscript d = {},
                                   Subscript e = {}, Subscript f = {}, Loc at = Loc::current()) const;
  template <std::convertible_to<Operand>... Offsets>
  [[nodiscard]] PackedWindow at(Operand first, Offsets&&... rest) const {
    Loc at = first.at;
    return window({std::move(first), detail::operand_at(std::forward<Offsets>(rest), at)...}, at);
  }
  [[nodiscard]] Expr extent(int dim, Loc at = Loc::current()) const;
  int rank() const { return view_.rank(); }
  PackedType type() const { return view_.type; }
  Tensor elements() const { return Tensor(view_.elements); }  // for gather(), and programs of bytes
  const PackedView& view() const { return view_; }

 private:
  PackedWindow window(std::vector<Operand> offsets, Loc at) const;
  PackedView view_;
};

// A tile of packed numbers in the shared memory of the block. Its numbers are read one by one, and written by
// copy() only.
class PackedShared {
 public:
  PackedShared(std::initializer_list<int> shape, PackedType type, Loc at = Loc::current())
      : PackedShared("", std::vector<int>(shape), type, at) {}
  PackedShared(const char* name, std::initializer_list<int> shape, PackedType type, Loc at = Loc::current())
      : PackedShared(name, std::vector<int>(shape), type, at) {}
  PackedShared(const char* name, const std::vector<int>& shape, PackedType type, Loc at);

  template <std::convertible_to<Operand>... Indices>
  Expr operator()(Operand first, Indices&&... rest) const {
    Loc at = first.at;
    return view().number({std::move(first), detail::operand_at(std::forward<Indices>(rest), at)...}, at);
  }
  template <std::convertible_to<Operand>... Indices>
  [[nodiscard]] Expr as_f32(Operand first, Indices&&... rest) const {
    Loc at = first.at;
    return view().as_f32({std::move(first), detail::operand_at(std::forward<Indices>(rest), at)...}, at);
  }
  int rank() const { return elements_.rank(); }
  int extent(int dim) const;
  PackedType type() const { return type_; }
  Shared& elements() { return elements_; }
  const Shared& elements() const { return elements_; }
  PackedView view() const { return {elements_.view(), type_}; }

 private:
  Shared elements_;
  PackedType type_;
};

// Parameters and workspaces of packed numbers. The last extent must be a multiple of the numbers of an
// element; this is checked at every call, unless it is a promise of the Dim.
PackedTensor input(const std::string& name, const Extents& shape, PackedType type, Loc at = Loc::current());
PackedTensor output(const std::string& name, const Extents& shape, PackedType type,
                    OutputOptions options = {}, Loc at = Loc::current());
PackedTensor inout(const std::string& name, const Extents& shape, PackedType type, Loc at = Loc::current());
PackedTensor workspace(const std::string& name, const Extents& shape, PackedType type,
                       OutputOptions options = {}, Loc at = Loc::current());

struct PackedSource {
  PackedView view;
  PackedSource(const PackedWindow& window) : view(window.view) {}
  PackedSource(const PackedTensor& tensor) : view(tensor.view()) {}
  PackedSource(const PackedShared& tile) : view(tile.view()) {}
};
struct PackedTarget {
  PackedView view;
  PackedTarget(const PackedWindow& window) : view(window.view) {}
  PackedTarget(const PackedTensor& tensor) : view(tensor.view()) {}
  PackedTarget(PackedShared& tile) : view(tile.view()) {}
};

// Packed numbers of one type, as their elements.
void copy(const PackedSource& from, const PackedTarget& to, Loc at = Loc::current());
// To a tile of floats, or of integers that are not e2m1: each number is converted exactly, and then rounded
// or wrapped to the type of the tile. Ranks are 1 to 3.
void copy(const PackedSource& from, Tile& to, Loc at = Loc::current());
// From a tile of floats to e2m1: the nearest number, ties to even mantissas; what is beyond 6, infinities
// and NaN become 6 with their sign. From a tile of integers to integers: the lowest bits are kept.
void copy(const Tile& from, const PackedTarget& to, Loc at = Loc::current());
// A new Fragment with these numbers in `type`.
[[nodiscard]] Fragment load(const PackedSource& from, std::initializer_list<int> shape, DType type,
                            Loc at = Loc::current());

}  // namespace tegula::lang
TEGULA_API_END
