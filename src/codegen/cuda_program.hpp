// Prints the grids of a kernel as CUDA C++ that includes the embedded device header `kernel.cuh`: one
// function for each grid. The data needed to launch them accompanies the text.
//
// Every function takes one parameter by value, a struct of 8-byte words:
//   the address of each tensor of the signature, workspaces included (Signature::buffers);
//   the strides of each tensor, in elements, one after the other;
//   the values of the call (Signature::variables): 64-bit integers, floats as their bits;
//   the address of a 64-bit word that holds 0: a failed assertion writes its number + 1 into the low half,
//   the number of its block into the high half;
//   the address of counter_words 32-bit words in device memory that hold 0 before each launch, and after it:
//   no two calls that may run at the same time have the same;
// followed, if there are any, at the next multiple of 64 bytes, by the tensor maps.
// It is launched with as many blocks as the product of the grid's extents, in one dimension, times the CTAs
// that a block is spread over; a persistent one with any number of blocks, or of pairs of blocks.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "codegen/cuda/shared_memory.hpp"
#include "passes/cuda/plan_gemms.hpp"
#include "passes/note.hpp"
#include "runtime/call/binding.hpp"

namespace tegula::passes {
struct CudaPlan;
}

namespace tegula::codegen {

inline constexpr int counter_words = 4;  // two for each of two neighbouring grids

struct CudaProgram {
  // One per grid.
  struct Kernel {
    std::string function;
    int threads = 0;               // of a CTA
    std::size_t shared_bytes = 0;  // of dynamic shared memory
    bool is_persistent = false;    // as many blocks as the processors hold run all blocks of the grid
    bool is_even = false;          // persistent, of products, and each block takes the same time
    int pair_index = -1;           // of the grid: two blocks along it are a cluster and share loads
    int ctas = 1;                  // of a block; the text says that they are a cluster
    bool waits = false;            // for the grid before: it may be launched while that ends
    std::string way = {};          // in words: roles, what loads, the instructions of products
    std::vector<SharedInterval> shared = {};  // where tiles and barriers are

    int cluster() const { return pair_index >= 0 ? 2 : 1; }
  };
  // Covers all dimensions of a tensor; zeros outside, no interleaving.
  struct TensorMap {
    int tensor = 0;            // in Signature::buffers
    std::vector<int> box;      // elements along each dimension of the tensor, the last one left out
    int columns = 0;           // and along that
    bool is_swizzled = false;  // by the bytes of a row
    // Along the dimension before the last one the box has as many elements as a row of whole boxes leaves.
    bool is_rest = false;
    friend bool operator==(const TensorMap&, const TensorMap&) = default;
  };
  struct Assertion {
    std::string message;
    Loc at;
  };
  std::string text;
  std::shared_ptr<const passes::CudaPlan> plan;  // what was printed
  std::vector<Kernel> kernels;
  std::vector<TensorMap> maps;
  // Tensors in Signature::buffers, and the bytes at a multiple of which they begin and all rows do: the text
  // supposes it, and that the last stride is 1, and that the last ones fit 32 bits.
  std::map<int, int> aligned;
  std::vector<Assertion> assertions;
  // The meaning of the time stamps of a kernel with a timeline, from number 1 on.
  struct Event {
    std::string words;
    Loc at;
  };
  std::vector<Event> events;
  // 15 bits that tell the texts of a kernel apart by their events.
  std::int64_t events_key() const;
  std::map<std::string, std::string> instructions;  // functions that the text holds, by name
  std::vector<passes::Note> notes;                  // what fell back to a slower way, and why
};

inline constexpr std::size_t narrow_strides = 3;

CudaProgram print_cuda(const Signature& signature, const passes::CudaTarget& target);

}  // namespace tegula::codegen
