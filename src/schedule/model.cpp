#include "schedule/model.hpp"

namespace tegula::schedule {

int Schedule::warps() const {
  int n = 0;
  for (const Role& role : roles) n += role.groups * role.warps;
  return n;
}

Model::Model(const Schedule& schedule) : schedule_(schedule) {
  prologue_steps_ = static_cast<int>(flatten(schedule.prologue, {}).size());
  for (const Role& role : schedule.roles) {
    programs_.push_back(flatten(schedule.prologue, role.events));
    has_turns_ |= contains<WaitTurn>(programs_.back()) || contains<PassTurn>(programs_.back());
  }
  ctas_ = schedule.cluster > 1 ? schedule.cluster : has_turns_ ? 2 : 1;
  for (int cta = 0; cta < ctas_; ++cta) {
    int in_cta = 0;
    for (int role = 0; role < static_cast<int>(schedule.roles.size()); ++role)
      for (int group = 0; group < schedule.roles[role].groups; ++group)
        for (int warp = 0; warp < schedule.roles[role].warps; ++warp)
          warps_.push_back({role, group, warp, cta, in_cta++});
  }
  number_components();
  for (const Ring& ring : schedule.rings) {
    first_barrier_.push_back(barriers_per_cta_);
    if (ring.barriers) barriers_per_cta_ += 2 * ring.instances * ring.depth;
  }
  for (const Buffer& buffer : schedule.buffers) {
    first_cell_.push_back(cells_);
    const int owners = buffer.space == Space::registers ? static_cast<int>(warps_.size())
                       : buffer.space == Space::shared  ? ctas_
                                                        : 1;
    cells_ += owners * buffer.instances * (buffer.space == Space::global ? global_slots : buffer.slots);
  }
}

void Model::number_components() {
  components_.assign(warps_.size() * queues, -1);
  for (int warp = 0; warp < static_cast<int>(warps_.size()); ++warp) {
    const std::vector<Step>& program = programs_[warps_[warp].role];
    const auto number = [&](Queue queue, bool used) {
      if (!used) return;
      components_[warp * queues + static_cast<int>(queue)] = static_cast<int>(warp_of_component_.size());
      warp_of_component_.push_back(warp);
    };
    const bool stores = contains<Store>(program);
    for (const Queue queue : {Queue::writes, Queue::reads, Queue::lane}) number(queue, true);
    number(Queue::gemm, contains<Gemm>(program));
    number(Queue::store_reads, stores);
    number(Queue::store_writes, stores);
    number(Queue::copies, contains<CopyAsync>(program));
  }
  const int none = static_cast<int>(warp_of_component_.size());
  for (int& component : components_)
    if (component < 0) component = none;
  first_barrier_component_ = none + 1;
}

int Model::barrier(int cta, int ring, Side side, int instance, int slot) const {
  const Ring& r = schedule_.rings[ring];
  const int within = (side == Side::empty ? r.instances * r.depth : 0) + instance * r.depth + slot;
  return cta * barriers_per_cta_ + first_barrier_[ring] + within;
}

int Model::cell(int warp, int cta, int buffer, int instance, int slot) const {
  const Buffer& b = schedule_.buffers[buffer];
  const int owner = b.space == Space::registers ? warp : b.space == Space::shared ? cta : 0;
  const int slots = b.space == Space::global ? global_slots : b.slots;
  return first_cell_[buffer] + (owner * b.instances + instance) * slots + slot % slots;
}

}  // namespace tegula::schedule
