// How threads hold fragments of small floats.
//
// Fragments that feed products from registers are packed into words of two elements (four 8-bit elements)
// where they are converted; the words are stored to shared memory as they are, and are otherwise only read.
// So are sums of f16, which tensor cores add to in words, where the program only fills and reads them.
// Other fragments whose readers all round hold unrounded values.
#pragma once
#include <optional>
#include <unordered_set>

#include "passes/cuda/exact_factors.hpp"
#include "passes/cuda/infer_layouts.hpp"

namespace tegula::passes {

using Buffers = std::unordered_set<const ir::Buffer*>;

// A fragment that a loop stores as a whole, and the tile of its shape that gets it.
struct Conversion {
  ir::BufferPtr from, to;
  bool transposed = false;  // `to` is the transposed
};

struct FragmentForms {
  Buffers packed;     // in words
  Buffers unrounded;  // as computed: whoever reads them rounds
  FactoredFragments factored;  // as words and factors, which are multiplied where they are converted
};

// The threads that run a body together, and what is known of it.
struct Computing {
  int threads;
  const Layouts& layouts;
  const Buffers& operands;  // shared tiles that tensor cores read
  const CudaTarget& target;
};

// Tiles of which loops over a fragment take elements by columns, from rows that they compute, or from words
// of several elements: lanes side by side have rows of their own there, which a swizzle keeps in banks of
// their own.
Buffers turned_tiles(const ir::Body& body);
// Shared tiles that tensor cores read, which are swizzled for them, and those that are turned.
Buffers operands_of(const ir::Body& body);
// Tiles of four bytes an element that products by multiply-add read.
Buffers plain_operands(const ir::Body& body);

// To a fragment of 16-bit floats, of which each thread has pairs, or one of 8-bit floats whose registers are
// those of the other fragment.
std::optional<Conversion> conversion(const ir::Stmt& s, const Layouts& layouts);
// Tiles that warp groups fill with their sums, and which are otherwise read along rows, such as those from
// which threads store whole rows: rows that a warp writes side by side are banks apart only if swizzled.
Buffers staging_tiles(const ir::Body& body, const Computing& own);
// A conversion by whole warp groups to a swizzled tile, using stmatrix.
std::optional<Conversion> matrix_store(const ir::Stmt& s, const Computing& own);

// The transposed of a swizzled tile to the fragment of a wgmma's sum, by ldmatrix.
std::optional<Conversion> matrix_load(const ir::Stmt& s, const Computing& own);

// Whether a loop over elements only reads the fragment, each thread its own registers.
bool reads_words(const ir::Stmt& s, const ir::Buffer& fragment, const Layouts& layouts);

FragmentForms fragment_forms(const ir::Body& body, const Computing& own);

}  // namespace tegula::passes
