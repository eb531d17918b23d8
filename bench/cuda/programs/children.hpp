// Work in processes of its own, so that a crash, a hang or an error that a device does not forget costs one
// piece of it.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace programs {

struct Work {
  std::function<nlohmann::json(int item)> of;  // in a child; what it throws is the item's failure
  std::function<void(int item, const nlohmann::json& result)> done;  // here
  double limit_s;                                                    // of an item
};

// Does the items of each list one after another in a process, as many lists at a time as said. After an item
// that failed, {"failure": why}, what remains of its list goes on in a new process.
void in_children(std::vector<std::vector<int>> lists, int processes, const Work& work);

}  // namespace programs
