#include "lock.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tegula::python {

namespace {

std::atomic<int> in_module{0};  // threads
std::atomic<bool> ending{false};
std::thread::id last_thread;  // which ends the interpreter, and may call to the end

[[noreturn]] void wait_for_the_end() {
  for (;;) pause();
}

bool must_stop() { return ending && std::this_thread::get_id() != last_thread; }

// With the lock, under which `ending` is set.
void stop_if_ending() {
  if (!must_stop()) return;
  PyEval_SaveThread();
  wait_for_the_end();
}

// Called with the lock when the interpreter begins to end. An array of the user's may take long, or wait for
// this very thread, so the others have a second.
void end() {
  last_thread = std::this_thread::get_id();
  ending = true;
  const WithoutLock released;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (in_module > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

}  // namespace

InModule::InModule() {
  stop_if_ending();
  ++in_module;
}

InModule::~InModule() { --in_module; }

WithoutLock::WithoutLock() : state_(PyEval_SaveThread()) { --in_module; }

WithoutLock::~WithoutLock() {
  if (must_stop()) wait_for_the_end();
  try {
    PyEval_RestoreThread(state_);
  } catch (...) { wait_for_the_end(); }
  stop_if_ending();
  ++in_module;
}

void register_end(nanobind::module_& module) {
  // The other threads of a process are not in its copy.
  pthread_atfork(nullptr, nullptr, [] { in_module = 0; });
  module.def("_end", [] {
    const InModule here;
    end();
  });
  nanobind::module_::import_("atexit").attr("register")(module.attr("_end"));
}

}  // namespace tegula::python
