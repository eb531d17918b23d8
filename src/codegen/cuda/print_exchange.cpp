// Registers that change their threads, by way of shared memory: all elements are stored where the one layout has
// them, and loaded where the other one does.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/element_bits.hpp"
#include "passes/cuda/exchange_registers.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

using Texts = std::vector<std::string>;

constexpr int bank_bits = 5;     // 32 banks of four bytes, one for each lane
constexpr int bits_at_once = 2;  // of the numbers of elements that a thread moves together, 16 bytes at most

// Bits of an element's number, and the banks that each of them changes: bank = xor over the bits that are
// set. The lowest bits number elements that a thread moves together, so that fewer lanes move at once.
class Banks {
 public:
  Banks(int bits, int together) : masks_(static_cast<std::size_t>(bits), 0), together_(together) {
    for (int bit = 0; bit < std::min(bits, bank_bits); ++bit) masks_[static_cast<std::size_t>(bit)] = 1 << bit;
  }

  // The higher bits of lanes get banks so that no two lanes of either layout meet, if that is possible. Lanes
  // have bits of their own: as many banks as bits, so one bank bit for each.
  bool spread(const std::vector<int>& stored, const std::vector<int>& loaded) {
    lanes_ = {first(stored), first(loaded)};
    std::vector<int> open;
    for (const auto& lanes : lanes_)
      for (const int bit : lanes)
        if (bit >= bank_bits && std::find(open.begin(), open.end(), bit) == open.end()) open.push_back(bit);
    return place(open, 0);
  }
  // The place of an element that has only this bit.
  int place_of(int bit) const {
    return bit < bank_bits ? 1 << bit : 1 << bit ^ masks_[static_cast<std::size_t>(bit)];
  }

 private:
  std::vector<int> first(const std::vector<int>& threads) const {
    return {threads.begin(),
            threads.begin() + std::min<std::ptrdiff_t>(std::ssize(threads), bank_bits - together_)};
  }
  bool place(const std::vector<int>& open, std::size_t next) {
    if (next == open.size()) return are_apart();
    int& mask = masks_[static_cast<std::size_t>(open[next])];
    for (int bank = together_; bank < bank_bits; ++bank) {
      mask = 1 << bank;
      if (are_apart() && place(open, next + 1)) return true;
    }
    mask = 0;
    return false;
  }
  // No two bits of a layout's lanes have one bank bit.
  bool are_apart() const {
    return std::all_of(lanes_.begin(), lanes_.end(), [&](const std::vector<int>& lanes) {
      int all = 0;
      for (const int bit : lanes) {
        const int own = masks_[static_cast<std::size_t>(bit)];
        if ((all & own) != 0) return false;
        all |= own;
      }
      return true;
    });
  }

  std::vector<int> masks_;
  int together_;
  std::vector<std::vector<int>> lanes_;
};

// The place of the elements whose bits count the number.
std::string place_text(const std::string& number, const std::vector<int>& bits, const Banks& banks) {
  std::string text;
  for (std::size_t i = 0, run = 0; i < bits.size(); i += run) {
    const int place = banks.place_of(bits[i]);
    for (run = 1; i + run < bits.size() && banks.place_of(bits[i + run]) == place << run;) ++run;
    const bool is_last = i + run == bits.size();
    const std::string own = i == 0 ? number : fmt::format("({} >> {})", number, i);
    text += fmt::format("{}{} * {}", text.empty() ? "" : " ^ ",
                        is_last ? own : fmt::format("({} & {})", own, (1 << run) - 1), place);
  }
  return text.empty() ? "0" : text;
}

// The lowest bits that number registers on both sides, so that their elements are moved together.
int bits_together(const passes::BitLayout& stored, const passes::BitLayout& loaded, DType type) {
  const auto is_register = [](const passes::BitLayout& bits, int bit) {
    return static_cast<std::size_t>(bit) < bits.registers.size() &&
           bits.registers[static_cast<std::size_t>(bit)] == bit;
  };
  int bits = 0;
  while (type.bytes() == 4 && bits < bits_at_once && is_register(stored, bits) && is_register(loaded, bits))
    ++bits;
  return bits;
}

// What each step does with the place `at` of registers from `r` on.
Texts lines_of_store(DType type, int width, const std::string& tile, const std::string& from) {
  if (width == 1) return {fmt::format("tg::store({} + at, {}[r]);", tile, from)};
  return {fmt::format("tg::Pack<{}, {}> pack;", element_type(type), width), "#pragma unroll",
          fmt::format("for (int e = 0; e < {}; ++e) pack.set(e, {}[r + e]);", width, from),
          fmt::format("tg::store_pack({} + at, pack);", tile)};
}
Texts lines_of_load(int width, const std::string& tile, const std::string& to) {
  if (width == 1) return {fmt::format("{}[r] = tg::load({} + at);", to, tile)};
  return {fmt::format("const auto pack = tg::load_pack<{}>({} + at);", width, tile), "#pragma unroll",
          fmt::format("for (int e = 0; e < {}; ++e) {}[r + e] = pack.get(e);", width, to)};
}

}  // namespace

// True if the loop is such a change.
bool CudaGridPrinter::exchange(const For& n, const Stmt& s) {
  if (n.body.size() != 2) return false;
  const auto* load = as<Load>(n.body[0]);
  const auto* store = as<Store>(n.body[1]);
  if (!load || !store || !is_variable(store->value, load->variable)) return false;
  const BufferPtr &from = load->from.view.buffer, &to = store->to.view.buffer;
  if (!plan_.held.contains(from.get()) || !plan_.held.contains(to.get())) return false;
  const FragmentTile &old = fragments_.at(from.get()), &now = fragments_.at(to.get());
  const auto stored = passes::bits_of(old.layout), loaded = passes::bits_of(now.layout);
  if (old.layout == now.layout || !stored || !loaded) return false;
  const int bits = static_cast<int>(stored->threads.size() + stored->registers.size());
  int together = bits_together(*stored, *loaded, from->type);
  Banks banks(bits, together);
  while (!banks.spread(stored->threads, loaded->threads) && together > 0) banks = Banks(bits, --together);
  const int width = 1 << together;
  const SharedTile tile = stage(from->name, from->elements(), from->type);
  const auto pass = [&](const passes::BitLayout& bits, MemoryUse use, const Texts& lines) {
    out_.code();
    out_.touch({tile.memory, use});
    out_.open(fmt::format("{{  // {}: registers change their threads", location_in_folder(s->at)));
    out_.line(fmt::format("const int own = {};", place_text(team_.thread, bits.threads, banks)));
    out_.line("#pragma unroll");
    out_.open(
        fmt::format("for (int r = 0; r < {}; r += {}) {{", std::int64_t{1} << bits.registers.size(), width));
    out_.line(fmt::format("const int at = own ^ ({});", place_text("r", bits.registers, banks)));
    for (const std::string& line : lines) out_.line(line);
    out_.close();
    out_.close();
  };
  pass(*stored, MemoryUse::write, lines_of_store(from->type, width, tile.name, old.name));
  pass(*loaded, MemoryUse::read, lines_of_load(width, tile.name, now.name));
  release(tile);
  return true;
}

}  // namespace tegula::codegen
