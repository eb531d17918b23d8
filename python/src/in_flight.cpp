#include "in_flight.hpp"

#include <utility>

namespace tegula::python {

namespace {

struct Work {
  Event end;
  std::vector<nanobind::object> objects;
};

}  // namespace

void keep_until_done(const Stream& stream, std::vector<nanobind::object> objects) {
  // Guarded by the interpreter lock. Never destroyed, as the interpreter may end before the process.
  static auto* queued = new std::vector<Work>();
  Event end(stream.device());
  end.record(stream);
  std::vector<Work> going{{std::move(end), std::move(objects)}};
  for (Work& work : *queued)
    if (!work.end.is_done()) going.push_back(std::move(work));
  std::swap(*queued, going);
}

}  // namespace tegula::python
