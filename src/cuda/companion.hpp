// A second queue for work of one call whose grids leave processors idle: what else the call has to do runs
// there meanwhile.
#pragma once
#include <cstddef>
#include <memory>

#include "tegula/stream.hpp"

namespace tegula::cuda {

// Streams whose companions are kept for their next call.
inline constexpr std::size_t most_companions = 16;

// The companion of a stream; it is the same for all calls of that stream, unless others have used so many
// since that it was given up. One that belongs to a capture is kept: its work belongs to the graph until the
// capture ends. Its blocks begin before those of the stream that wait for a processor, too: a long chain on
// few processors begins at once, and what remains fills the others. Work of both is ordered by fork() and
// join() only.
class Companion {
 public:
  explicit Companion(const Stream& stream);

  const Stream& stream() const { return companion_; }
  // What the companion gets from now on waits for what the stream has got so far.
  void fork() const;
  // What the stream gets from now on waits for what the companion has got so far.
  void join() const;

 private:
  Stream stream_;
  std::shared_ptr<const void> owner_;  // of the companion
  Stream companion_;
};

}  // namespace tegula::cuda
