// The interpreter lock, which other threads of Python have while an operator runs, and the end of the
// interpreter.
//
// Python before 3.14 ends a daemon thread that wants the lock when the interpreter ends, by unwinding its
// stack (https://docs.python.org/3/c-api/init.html#c.PyEval_RestoreThread). C++ does not survive that:
// destructors would count references without the lock. So such threads wait here until the process has ended,
// as those of later versions do, and the interpreter does not end before the others have left.
#pragma once
#include <nanobind/nanobind.h>

namespace tegula::python {

// A thread that runs functions of this module with the lock.
class InModule {
 public:
  InModule();
  ~InModule();
  InModule(const InModule&) = delete;
  InModule& operator=(const InModule&) = delete;
};

// Inside of it, a scope without the lock.
class WithoutLock {
 public:
  WithoutLock();
  ~WithoutLock();
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* state_;
};

void register_end(nanobind::module_& module);

}  // namespace tegula::python
