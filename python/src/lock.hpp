// The interpreter lock, which other threads of Python have while an operator runs.
#pragma once
#include <nanobind/nanobind.h>

namespace tegula::python {

class WithoutLock {
 public:
  WithoutLock() : state_(PyEval_SaveThread()) {}
  ~WithoutLock();
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace tegula::python
