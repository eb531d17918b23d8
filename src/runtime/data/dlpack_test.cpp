#include "tegula/dlpack.hpp"

#include <gtest/gtest.h>

#include "runtime/testing/expect_error.hpp"
#include "tegula/error.hpp"
#include "tegula/tensor.hpp"

namespace tegula {
namespace {

TEST(DLPack, RoundTripOfEveryDtype) {
  for (const DType type : all_dtypes) {
    const Tensor original = Tensor::random_integers({3, 4, 2}, type, 1, 0, 2).permute({2, 0, 1}).flip(0);
    const Tensor back = from_dlpack(to_dlpack(original));
    EXPECT_EQ(back.dtype(), type);
    EXPECT_EQ(back.data(), original.data());
    EXPECT_EQ(back.strides(), original.strides());
    EXPECT_TRUE(equal(back, original));
    EXPECT_TRUE(equal(from_dlpack(to_dlpack_versioned(original)), original));
  }
}

TEST(DLPack, KeepsTheElementsAlive) {
  Tensor tensor = Tensor::full({1000}, f32, 3);
  const std::weak_ptr<void> storage = tensor.owner();
  DLManagedTensor* managed = to_dlpack(tensor);
  tensor = Tensor();
  EXPECT_FALSE(storage.expired());
  {
    const Tensor window = from_dlpack(managed).slice(0, 10, 20);
    EXPECT_EQ(window.get({0}), 3);
  }
  EXPECT_TRUE(storage.expired());
}

TEST(DLPack, BorrowsFromAReference) {
  float data[6] = {0, 1, 2, 3, 4, 5};
  DLManagedTensorVersioned* managed = to_dlpack_versioned(TensorRef(data, f32, {2, 3}));
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(view_dlpack(*managed).get({1, 2}), 5);
  managed->deleter(managed);
}

// A description such as another library would make.
struct Foreign {
  std::int64_t shape[2] = {2, 3}, strides[2] = {3, 1};
  alignas(8) float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  int deleted = 0;
  DLManagedTensor managed{{data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0},
                          this,
                          [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; }};
};

TEST(DLPack, TakesForeignTensors) {
  Foreign foreign;
  foreign.managed.dl_tensor.strides = nullptr;
  foreign.managed.dl_tensor.byte_offset = 8;
  { EXPECT_EQ(from_dlpack(&foreign.managed).get({1, 0}), 5); }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DLPack, TakesExponentsAndPairsOfFourBitsAsBytes) {
  for (const DLDataType type : {DLDataType{kDLFloat8_e8m0fnu, 8, 1}, DLDataType{kDLFloat4_e2m1fn, 4, 2}}) {
    Foreign foreign;
    foreign.managed.dl_tensor.dtype = type;
    EXPECT_EQ(from_dlpack(&foreign.managed).dtype(), u8);
  }
}

TEST(DLPack, RefusesWhatItDoesNotKnow) {
  struct Case {
    void (*spoil)(DLTensor&);
    const char* message;
  };
  const Case cases[] = {
      {[](DLTensor& t) { t.device.device_type = static_cast<DLDeviceType>(10); }, "device of type 10"},
      {[](DLTensor& t) { t.dtype.code = kDLComplex; }, "complex numbers"},
      {[](DLTensor& t) { t.dtype.code = 99; }, "type code 99"},
      {[](DLTensor& t) { t.dtype.lanes = 4; }, "4 lanes"},
      {[](DLTensor& t) { t.dtype.bits = 4; }, "4 bits"},
      {[](DLTensor& t) { t.ndim = -1; }, "-1 dimensions"},
      {[](DLTensor& t) { t.shape = nullptr; }, "no shape"},
      {[](DLTensor& t) { t.shape[0] = -2; }, "negative extent"},
      {[](DLTensor& t) { t.data = nullptr; }, "without data"},
      {[](DLTensor& t) { t.byte_offset = 2; }, "not aligned"},
      {[](DLTensor& t) { t.strides[0] = INT64_MAX; }, "address space"},
      {[](DLTensor& t) { t.byte_offset = std::uint64_t{1} << 63; }, "address space"},
      {[](DLTensor& t) { t.byte_offset = UINT64_MAX - 3; }, "address space"},
  };
  for (const Case& c : cases) {
    Foreign foreign;
    c.spoil(foreign.managed.dl_tensor);
    EXPECT_ERROR(ArgumentError, c.message, from_dlpack(&foreign.managed));
    EXPECT_EQ(foreign.deleted, 0) << "a refused tensor stays the caller's";
  }
  EXPECT_ERROR(ArgumentError, "null pointer", from_dlpack(static_cast<DLManagedTensor*>(nullptr)));
  DLManagedTensorVersioned* managed = to_dlpack_versioned(Tensor::zeros({1}, f32));
  managed->version.major = 2;
  EXPECT_ERROR(ArgumentError, "version 2.0", from_dlpack(managed));
  managed->deleter(managed);
}

}  // namespace
}  // namespace tegula
