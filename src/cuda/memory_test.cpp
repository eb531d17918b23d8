// Tensors, streams, events and graphs, on a fake driver and, where there is one, on the real one.
#include "cuda/memory.hpp"

#include <gtest/gtest.h>

#include <iostream>

#include "cuda/gpu.hpp"
#include "cuda/testing/fake_driver.hpp"
#include "cuda/workspaces.hpp"
#include "runtime/testing/expect_error.hpp"
#include "tegula/dlpack.hpp"
#include "tegula/stream.hpp"

namespace tegula {
namespace memory_test {

using cuda::testing::FakeDriver;

// Each test of memory runs on both drivers.
class CudaTensor : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      static const FakeDriver driver;
      fake_ = &driver;
      scope_.emplace(driver.driver());
    } else if (!cuda::is_driver_usable()) {
      GTEST_SKIP() << "this machine has no CUDA device";
    }
  }
  const FakeDriver* fake_ = nullptr;
  std::optional<cuda::ScopedDriver> scope_;
};

TEST_P(CudaTensor, GoesThereAndBack) {
  for (const DType type : all_dtypes) {
    const Tensor host = Tensor::random_integers({5, 7, 3}, type, 1, 0, 2);
    const Tensor there = host.to(Device::cuda());
    EXPECT_EQ(there.device(), Device::cuda());
    EXPECT_TRUE(equal(there, host));
    EXPECT_TRUE(equal(there.clone(), host));
    EXPECT_TRUE(equal(host.permute({2, 0, 1}).flip(1).to(Device::cuda()), host.permute({2, 0, 1}).flip(1)));
    EXPECT_TRUE(equal(there.permute({2, 0, 1}).flip(1).contiguous(), host.permute({2, 0, 1}).flip(1)));
    EXPECT_TRUE(equal(there.to(f32), host.to(f32)));
  }
  EXPECT_EQ(Tensor::arange(5, i32).to(Device::cuda()).values<std::int32_t>(),
            (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(Tensor::empty({0, 3}, f32, Device::cuda()).to(Device::cpu()).nelements(), 0);
}

TEST_P(CudaTensor, CopiesRowsWithinADevice) {
  const Tensor host = Tensor::random_normal({3, 70, 9}, f32, 2), there = host.to(Device::cuda());
  const Tensor other = Tensor::full({70, 3, 12}, f32, 7).to(Device::cuda());
  const auto columns = [](const Tensor& t) { return t.slice(2, 2, 11); };
  EXPECT_TRUE(equal(there.transpose(0, 1).contiguous(), host.transpose(0, 1)));
  copy_elements(there.transpose(0, 1), columns(other));
  EXPECT_TRUE(equal(columns(other), host.transpose(0, 1)));
  EXPECT_TRUE(equal(other.slice(2, 11, 12), Tensor::full({70, 3, 1}, f32, 7)));
}

TEST_P(CudaTensor, WritesBetweenWhatItLeavesAlone) {
  const Tensor there = Tensor::full({6, 8}, f32, 7).to(Device::cuda());
  const Tensor expected = Tensor::full({6, 8}, f32, 7);
  const auto window = [](const Tensor& t) { return t.slice(0, 1, 5, 2).slice(1, 2, 7).flip(1); };
  const Tensor values = Tensor::random_normal({2, 5}, f32, 1);
  copy_elements(values, window(there));
  copy_elements(values, window(expected));
  EXPECT_TRUE(equal(there, expected));
}

TEST_P(CudaTensor, IsCleared) {
  EXPECT_TRUE(equal(Tensor::zeros({3, 4}, f32, Device::cuda()), Tensor::zeros({3, 4}, f32)));
  struct Case {
    const char* name;
    Tensor (*window)(const Tensor&);
  };
  const Case cases[] = {
      {"rows", [](const Tensor& t) { return t.slice(0, 1, 3); }},
      {"columns", [](const Tensor& t) { return t.slice(2, 1, 5); }},
      {"every other element", [](const Tensor& t) { return t.slice(2, 0, 6, 2); }},
      {"planes and columns", [](const Tensor& t) { return t.slice(0, 0, 4, 3).slice(2, 2, 4); }},
      {"transposed and backwards", [](const Tensor& t) { return t.transpose(0, 2).flip(1).slice(0, 1, 3); }},
      {"one element", [](const Tensor& t) { return t.select(0, 2).select(0, 1).select(0, 3); }},
      {"nothing", [](const Tensor& t) { return t.slice(1, 2, 2); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Tensor there = Tensor::full({4, 5, 6}, f16, 7).to(Device::cuda());
    const Tensor expected = Tensor::full({4, 5, 6}, f16, 7);
    cuda::clear(c.window(there));
    const Tensor window = c.window(expected);
    copy_elements(Tensor::zeros(window.shape(), f16), window);
    EXPECT_TRUE(equal(there, expected));
  }
}

TEST_P(CudaTensor, ElementsCannotBeReadFromTheHost) {
  const Tensor there = Tensor::zeros({3}, f32, Device::cuda());
  EXPECT_ERROR(ArgumentError, "are on cuda:0; copy the tensor to the cpu", there.get({0}));
}

TEST_P(CudaTensor, DlpackKeepsItAlive) {
  Tensor there = Tensor::arange(6, f32).to(Device::cuda());
  DLManagedTensor* managed = to_dlpack(there);
  there = Tensor();
  EXPECT_EQ(managed->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_TRUE(equal(from_dlpack(managed), Tensor::arange(6, f32)));
}

TEST_P(CudaTensor, DlpackHandsOverInTheOrderOfStreams) {
  const Stream mine = Stream::create(), theirs = Stream::create();
  const StreamScope scope(mine);
  const Tensor there = Tensor::arange(6, f32).to(Device::cuda());
  if (fake_) fake_->calls();
  DLManagedTensorVersioned* managed = to_dlpack_versioned(there, theirs);
  const Tensor back = from_dlpack(managed, theirs);
  if (fake_) { EXPECT_EQ(fake_->calls().size(), 4u) << "each way one stream waits for the other"; }
  EXPECT_TRUE(equal(back, there));
}

TEST_P(CudaTensor, EventsAndStreams) {
  const Stream stream = Stream::create();
  EXPECT_TRUE(stream.is_owned());
  EXPECT_FALSE(Stream::wrap(stream.handle()).is_owned());
  EXPECT_EQ(current_stream().handle(), nullptr);
  Event begin, end;
  {
    const StreamScope scope(stream);
    EXPECT_EQ(current_stream().handle(), stream.handle());
    begin.record();
    const Tensor there = Tensor::zeros({1 << 20}, f32, Device::cuda());
    end.record();
  }
  EXPECT_EQ(current_stream().handle(), nullptr);
  Stream::of_default().wait(end);
  stream.synchronize();
  EXPECT_TRUE(end.is_done());
  EXPECT_GT(Event::milliseconds(begin, end), 0);
  synchronize();
}

TEST_P(CudaTensor, RefusesWhatAGraphCannotHold) {
  const Stream stream = Stream::create();
  const Tensor there = Tensor::zeros({8}, f32, Device::cuda()), host = Tensor::zeros({8}, f32);
  EXPECT_ERROR(DeviceError, "captured into a graph",
               Graph::capture(stream, [&] { Tensor::empty({3}, f32, Device::cuda()); }));
  EXPECT_ERROR(DeviceError, "captured into a graph",
               Graph::capture(stream, [&] { copy_elements(there, host); }));
  const Tensor copy = Tensor::full({8}, f32, 1).to(Device::cuda());
  const Graph graph = Graph::capture(stream, [&] { copy_elements(there, copy); });
  graph.launch(stream);
  stream.synchronize();
  EXPECT_TRUE(equal(copy, host));
}

TEST_P(CudaTensor, NamesTheDeviceThatIsMissing) {
  EXPECT_ERROR(ArgumentError, "there is no device cuda:77", Tensor::zeros({1}, f32, Device::cuda(77)));
  EXPECT_ERROR(ArgumentError, "belong to a CUDA device", Stream::create(Device::cpu()));
}

INSTANTIATE_TEST_SUITE_P(Drivers, CudaTensor, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "fake" : "real"; });

class FakeCuda : public ::testing::Test {
 protected:
  FakeDriver fake_;
  cuda::ScopedDriver scope_{fake_.driver()};
};

TEST_F(FakeCuda, MemoryIsFreedInTheOrderOfItsStream) {
  const Stream stream = Stream::create();
  fake_.calls();
  {
    const StreamScope scope(stream);
    const Tensor there = Tensor::zeros({4}, f32, Device::cuda());
  }
  const std::string n = std::to_string(reinterpret_cast<std::uintptr_t>(stream.handle()));
  EXPECT_EQ(fake_.calls(),
            (std::vector<std::string>{"alloc 16 stream " + n, "clear 16 stream " + n, "free stream " + n}));
}

TEST_F(FakeCuda, AnotherLibrarysStreamMayBeGone) {
  const Stream stream = Stream::create();
  const std::string n = std::to_string(reinterpret_cast<std::uintptr_t>(stream.handle()));
  fake_.calls();
  {
    const StreamScope scope(Stream::wrap(stream.handle()));
    const Tensor there = Tensor::empty({4}, f32, Device::cuda());
  }
  EXPECT_EQ(fake_.calls(), (std::vector<std::string>{"alloc 16 stream " + n, "free"}));
}

TEST_F(FakeCuda, ScratchIsFreedInTheOrderOfAnyStream) {
  const Stream stream = Stream::create();
  const std::string n = std::to_string(reinterpret_cast<std::uintptr_t>(stream.handle()));
  const std::vector<std::string> expected{"alloc 16 stream " + n, "free stream " + n};
  const auto use = [&] {
    fake_.calls();
    cuda::allocate_scratch(0, 16);
    EXPECT_EQ(fake_.calls(), expected);
  };
  {
    const StreamScope scope(Stream::wrap(stream.handle()));
    use();
  }
  Graph::capture(stream, use);
}

TEST_F(FakeCuda, CopiesAcrossDevices) {
  const Tensor first = Tensor::arange(5, f32).to(Device::cuda(0));
  EXPECT_EQ(first.to(Device::cuda(1)).device(), Device::cuda(1));
  EXPECT_TRUE(equal(first.to(Device::cuda(1)), Tensor::arange(5, f32)));
}

TEST_F(FakeCuda, ErrorsNameTheCall) {
  fake_.fail_next("cuMemAllocAsync", 700);
  EXPECT_ERROR(DeviceError,
               "cuMemAllocAsync failed with CUDA_ERROR_ILLEGAL_ADDRESS (700): an error of the fake",
               Tensor::empty({4}, f32, Device::cuda()));
}

TEST_F(FakeCuda, WorkspacesAreKeptForEachStream) {
  cuda::Workspaces& workspaces = cuda::Gpu::get(0).workspaces();
  const cuda::CurrentContext current(cuda::Gpu::get(0));
  const Stream a = Stream::create(), b = Stream::create();
  const auto handle = [](const Stream& s) { return static_cast<cuda::StreamHandle>(s.handle()); };
  const cuda::DeviceAddress first = workspaces.lease(handle(a), 1000).memory;
  EXPECT_NE(workspaces.lease(handle(b), 1000).memory, first);
  fake_.calls();
  EXPECT_EQ(workspaces.lease(handle(a), 5000).memory, first);
  EXPECT_EQ(fake_.calls(), std::vector<std::string>{}) << "nothing is allocated";
  workspaces.lease(handle(a), 5 << 20);
  EXPECT_EQ(fake_.calls().size(), 3u) << "freed, allocated, counters cleared";
}

TEST_F(FakeCuda, GraphsHaveWorkspacesOfTheirOwn) {
  cuda::Workspaces& workspaces = cuda::Gpu::get(0).workspaces();
  const Stream stream = Stream::create();
  const auto handle = static_cast<cuda::StreamHandle>(stream.handle());
  const cuda::CurrentContext current(cuda::Gpu::get(0));
  const cuda::DeviceAddress usual = workspaces.lease(handle, 1000).memory;
  cuda::DeviceAddress captured = 0;
  {
    const Graph graph = Graph::capture(stream, [&] {
      captured = workspaces.lease(handle, 1000).memory;
      EXPECT_EQ(workspaces.lease(handle, 2000).memory, captured);
      EXPECT_NE(workspaces.lease(handle, 2 << 20).memory, captured);
    });
    EXPECT_NE(captured, usual);
    EXPECT_EQ(workspaces.lease(handle, 1000).memory, usual);
    const Graph other =
        Graph::capture(stream, [&] { EXPECT_NE(workspaces.lease(handle, 1000).memory, captured); });
  }
  const Graph again = Graph::capture(stream, [&] {
    fake_.calls();
    workspaces.lease(handle, 1000);
    EXPECT_EQ(fake_.calls(), std::vector<std::string>{})
        << "the memory of graphs that are gone is used again";
  });
}

}  // namespace memory_test
}  // namespace tegula
