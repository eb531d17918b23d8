#include "lock.hpp"

#include <unistd.h>

namespace tegula::python {

WithoutLock::~WithoutLock() {
  try {
    PyEval_RestoreThread(state_);
  } catch (...) {
    // Python before 3.14 ends a daemon thread that wants the lock while the interpreter ends, by unwinding
    // its stack (https://docs.python.org/3/c-api/init.html#c.PyEval_RestoreThread), which C++ does not
    // survive. As in later versions the thread waits until the process has ended.
    for (;;) pause();
  }
}

}  // namespace tegula::python
