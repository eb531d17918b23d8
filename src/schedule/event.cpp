#include "schedule/event.hpp"

namespace tegula::schedule {

What::What() = default;
What::What(const What& other) = default;
What::What(What&& other) noexcept = default;
What& What::operator=(const What& other) = default;
What& What::operator=(What&& other) noexcept = default;
What::~What() = default;

template <class Kind>
requires is_kind<Kind, Kinds> What::What(Kind kind) : Kinds(std::in_place_type<Kind>, std::move(kind)) {}

template What::What(Operation kind);
template What::What(Gemm kind);
template What::What(GemmFence kind);
template What::What(GemmCommit kind);
template What::What(GemmWait kind);
template What::What(WaitFull kind);
template What::What(Acquire kind);
template What::What(Arrive kind);
template What::What(Expect kind);
template What::What(Advance kind);
template What::What(Load kind);
template What::What(Complete kind);
template What::What(Store kind);
template What::What(StoreCommit kind);
template What::What(StoreWait kind);
template What::What(CopyAsync kind);
template What::What(CopyCommit kind);
template What::What(CopyWait kind);
template What::What(CopyArrive kind);
template What::What(ProxyFence kind);
template What::What(WarpSync kind);
template What::What(Barrier kind);
template What::What(ClusterBarrier kind);
template What::What(InitBarriers kind);
template What::What(InitFence kind);
template What::What(SetRegisters kind);
template What::What(NextTile kind);
template What::What(SendTile kind);
template What::What(ReceiveTile kind);
template What::What(WaitTurn kind);
template What::What(PassTurn kind);
template What::What(Loop kind);
template What::What(Guard kind);
template What::What(Leave kind);

}  // namespace tegula::schedule
