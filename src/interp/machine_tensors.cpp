// The memory of a run: inputs where they are, everything that is written as a copy.
#include <fmt/format.h>

#include <algorithm>

#include "interp/machine.hpp"
#include "runtime/data/overlap.hpp"
#include "tegula/error.hpp"

namespace tegula::interp {
namespace {

std::size_t element_count(const TensorRef& ref) { return static_cast<std::size_t>(nelements(ref)); }

void connect(Memory& memory, Region& region, const BufferUse& use) {
  const std::size_t elements = region.state.size();
  if (region.writer.empty()) region.writer.resize(elements);
  if (use.unordered_reads && region.reads.empty()) region.reads.resize(elements);
  if (use.combined && region.combines.empty()) region.combines.resize(elements);
  memory.data = region.bytes.data();
  memory.state = region.state.data();
  memory.writer = region.writer.data();
  memory.reads = region.reads.empty() ? nullptr : region.reads.data();
  memory.combines = region.combines.empty() ? nullptr : region.combines.data();
}

// Calls f(index) for every index of the shape.
template <class F>
void for_each_index(const Shape& shape, const F& f) {
  Shape index(shape.size());
  for (std::int64_t i = nelements(shape); i > 0; --i) {
    f(index);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

std::int64_t position_of(const Memory& memory, const Shape& index) {
  std::int64_t position = memory.origin;
  for (std::size_t d = 0; d < index.size(); ++d) position += index[d] * memory.strides[d];
  return position;
}

Memory tensor_memory(const ir::Buffer& buffer, const TensorRef& ref) {
  Memory memory;
  memory.buffer = &buffer;
  memory.type = memory.format = buffer.type;
  memory.data = static_cast<std::byte*>(ref.data);
  memory.elements = nelements(ref);
  memory.shape = ref.shape;
  memory.strides = ref.strides;
  return memory;
}

// Its own copy, dense.
std::unique_ptr<Region> copy_region(Memory& memory, const TensorRef& ref) {
  auto region = std::make_unique<Region>();
  const bool has_contents = memory.buffer->zero || memory.buffer->role == ir::Role::inout;
  region->bytes.resize(element_count(ref) * static_cast<std::size_t>(ref.dtype.bytes()));
  region->state.assign(element_count(ref), has_contents ? given : undefined);
  memory.strides = row_major_strides(ref.shape);
  if (memory.buffer->role == ir::Role::inout) {
    copy_elements(ref, TensorRef(region->bytes.data(), ref.dtype, ref.shape));
  }
  return region;
}

struct AliasGroups {
  std::vector<std::size_t> group;  // of each buffer: the smallest member

  AliasGroups(const Signature& signature, const Binding& binding) : group(signature.buffers().size()) {
    for (std::size_t i = 0; i < group.size(); ++i) group[i] = i;
    for (const auto& [a, b] : signature.kernel().may_alias) {
      const auto i = static_cast<std::size_t>(signature.position_of(a.get()));
      const auto j = static_cast<std::size_t>(signature.position_of(b.get()));
      if (!a->is_writable() && !b->is_writable()) continue;
      if (share_bytes(binding.tensors[i], binding.tensors[j])) merge(i, j);
    }
  }
  void merge(std::size_t i, std::size_t j) {
    const std::size_t from = std::max(group[i], group[j]), to = std::min(group[i], group[j]);
    for (std::size_t& g : group) g = g == from ? to : g;
  }
  std::vector<std::size_t> members(std::size_t leader) const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (group[i] == leader) result.push_back(i);
    }
    return result;
  }
};

// One copy of the bytes between the first and the last one of all tensors that share some.
std::unique_ptr<Region> shared_region(const std::vector<std::size_t>& members, std::vector<Memory>& memories,
                                      const Binding& binding) {
  const TensorRef& first = binding.tensors[members[0]];
  ByteRange range = byte_range(first);
  for (const std::size_t i : members) {
    const ByteRange other = byte_range(binding.tensors[i]);
    range = {std::min(range.begin, other.begin), std::max(range.end, other.end)};
  }
  const auto bytes = static_cast<std::uintptr_t>(first.dtype.bytes());
  auto region = std::make_unique<Region>();
  region->bytes.resize(range.end - range.begin);
  region->state.assign((range.end - range.begin) / bytes, undefined);
  for (const std::size_t i : members) {
    const TensorRef& ref = binding.tensors[i];
    Memory& memory = memories[i];
    const auto begin = reinterpret_cast<std::uintptr_t>(ref.data) - range.begin;
    if (!(ref.dtype == first.dtype) || begin % bytes != 0) {
      throw ArgumentError(fmt::format(
          "the arguments '{}' and '{}' share memory, but not whole elements of one dtype: {} and {}",
          memories[members[0]].buffer->name, memory.buffer->name, describe(first), describe(ref)));
    }
    memory.origin = static_cast<std::int64_t>(begin / bytes);
    memory.data = region->bytes.data();
    const bool has_contents = memory.buffer->role != ir::Role::output || memory.buffer->zero;
    if (!has_contents) continue;
    auto* data = region->bytes.data() + begin;
    if (memory.buffer->role != ir::Role::output) {
      copy_elements(ref, TensorRef(data, ref.dtype, ref.shape, ref.strides));
    }
    for_each_index(ref.shape, [&](const Shape& index) {
      region->state[static_cast<std::size_t>(position_of(memory, index))] = given;
    });
  }
  return region;
}

}  // namespace

void Machine::bind_tensors(const Binding& binding) {
  const AliasGroups aliases(*program_.signature, binding);
  const std::size_t tensors = program_.signature->buffers().size();
  for (std::size_t i = 0; i < tensors; ++i) {
    memories_[i] = tensor_memory(*program_.buffers[i].buffer, binding.tensors[i]);
  }
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::vector<std::size_t> members = aliases.members(i);
    if (members.empty()) continue;
    const bool alone = members.size() == 1;
    if (alone && !memories_[i].buffer->is_writable()) continue;
    regions_.push_back(alone ? copy_region(memories_[i], binding.tensors[i])
                             : shared_region(members, memories_, binding));
    BufferUse use{};
    for (const std::size_t m : members) {
      use.combined |= program_.buffers[m].combined;
      use.unordered_reads |= program_.buffers[m].unordered_reads || !alone;
    }
    for (const std::size_t m : members) connect(memories_[m], *regions_.back(), use);
  }
  for (std::size_t i = tensors; i < program_.buffers.size(); ++i) {
    const ir::Buffer& tile = *program_.buffers[i].buffer;
    Memory& memory = memories_[i];
    memory.buffer = &tile;
    memory.type = tile.type;
    memory.format = compute_type(tile.type);
    memory.elements = tile.elements();
    for (int d = 0; d < tile.rank(); ++d) memory.shape.push_back(tile.extent(d));
    memory.strides = row_major_strides(memory.shape);
    auto region = std::make_unique<Region>();
    region->bytes.resize(static_cast<std::size_t>(memory.elements * memory.format.bytes()));
    region->state.assign(static_cast<std::size_t>(memory.elements), undefined);
    connect(memory, *region, program_.buffers[i]);
    regions_.push_back(std::move(region));
  }
}

}  // namespace tegula::interp
