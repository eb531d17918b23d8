// A second queue for work of one call whose grids leave processors idle: what else the call has to do runs
// there meanwhile.
#pragma once
#include "tegula/stream.hpp"

namespace tegula::cuda {

// The companion of a stream; it is the same for all calls of that stream and lasts as long as the process.
// Its blocks begin before those of the stream that wait for a processor, too: a long chain on few processors
// begins at once, and the rest fills the others. Work of both is ordered by fork() and join() only.
class Companion {
 public:
  explicit Companion(const Stream& stream);

  const Stream& stream() const { return companion_; }
  // What the companion gets from now on waits for what the stream has got so far.
  void fork() const;
  // What the stream gets from now on waits for what the companion has got so far.
  void join() const;

 private:
  Stream stream_, companion_;
};

}  // namespace tegula::cuda
