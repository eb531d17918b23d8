#include "tegula/tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "runtime/testing/expect_error.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

Tensor counting(Shape shape, DType dtype = f32) {
  const std::int64_t count = nelements(shape);
  return Tensor::arange(count, dtype).reshape(shape);
}

TEST(Tensor, FactoriesFillEveryDtype) {
  for (const DType type : all_dtypes) {
    const Tensor ones = Tensor::full({2, 3}, type, 1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ones.data()) % 64, 0u);
    EXPECT_EQ(ones.values<double>(), std::vector<double>(6, 1)) << type.name();
    EXPECT_EQ(Tensor::zeros({5}, type).values<double>(), std::vector<double>(5, 0)) << type.name();
    const Tensor small = Tensor::arange(5, type);
    EXPECT_EQ(small.get({4}), type == boolean ? 1 : 4) << type.name();
  }
}

TEST(Tensor, DescribesItself) {
  EXPECT_EQ(describe(counting({2, 3})), "f32 [2, 3] strides [3, 1]");
  EXPECT_EQ(describe(TensorRef(nullptr, bf16, {4}, Device{DeviceKind::cuda, 1})),
            "bf16 [4] strides [1] on cuda:1");
  EXPECT_EQ(describe(Tensor::zeros({}, i32)), "i32 [] strides []");
}

TEST(Tensor, TypedAccess) {
  const Tensor t = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(t.at<float>(1, 2), 6);
  t.at<float>(0, 1) = 9;
  EXPECT_EQ(t.get({0, 1}), 9);
  t.set({0, 1}, -1.5);
  EXPECT_EQ(t.at<float>(0, 1), -1.5f);
  EXPECT_EQ(t.to(bf16).at<std::uint16_t>(0, 0), 0x3f80);
  EXPECT_EQ(t.to(e4m3).at<std::uint8_t>(0, 0), 0x38);
  EXPECT_EQ(Tensor::from<bool>({true, false}).at<bool>(0), true);
  EXPECT_ERROR(ArgumentError, "f32 [2, 3]", t.at<double>(0, 0));
  EXPECT_ERROR(ArgumentError, "1 indices given for f32 [2, 3]", t.at<float>(0));
  EXPECT_ERROR(ArgumentError, "index 3 is outside dimension 1", t.at<float>(0, 3));
  EXPECT_ERROR(ArgumentError, "index -1 is outside dimension 0", t.at<float>(-1, 0));
  EXPECT_ERROR(ArgumentError, "3 values given for shape [2, 2]", Tensor::from<float>({1, 2, 3}, {2, 2}));
  EXPECT_ERROR(ArgumentError, "cuda:0",
               TensorRef(nullptr, f32, {4}, Device{DeviceKind::cuda, 0}).at<float>(0));
}

TEST(Tensor, ViewsShareElements) {
  const Tensor t = counting({4, 6});
  const Tensor window = t.slice(0, 1, 3).slice(1, 1, -1, 2);
  EXPECT_EQ(window.shape(), (Shape{2, 2}));
  EXPECT_EQ(window.values<int>(), (std::vector<int>{7, 9, 13, 15}));
  window.set({1, 1}, 100);
  EXPECT_EQ(t.get({2, 3}), 100);
  EXPECT_EQ(t.transpose(0, 1).get({3, 2}), 100);
  EXPECT_EQ(t.permute({1, 0}).shape(), (Shape{6, 4}));
  EXPECT_EQ(t.select(0, -1).values<int>(), (std::vector<int>{18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(t.flip(1).select(0, 0).values<int>(), (std::vector<int>{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(t.slice(0, 2, 2).nelements(), 0);
  EXPECT_EQ(t.slice(0, 4, 4).shape(), (Shape{0, 6}));
  EXPECT_EQ(t.slice(1, 0, 6, 100).values<int>(), (std::vector<int>{0, 6, 12, 18}));
  const Tensor row = t.select(0, 0).expand({3, 6});
  EXPECT_EQ(row.strides(), (Shape{0, 1}));
  EXPECT_EQ(row.get({2, 5}), 5);
}

TEST(Tensor, ViewsRefuseWhatDoesNotFit) {
  const Tensor t = counting({4, 6});
  EXPECT_ERROR(ArgumentError, "slice 3:5:1 is not inside dimension 0 of f32 [4, 6]", t.slice(0, 3, 5));
  EXPECT_ERROR(ArgumentError, "step must be at least 1", t.slice(0, 0, 4, 0));
  EXPECT_ERROR(ArgumentError, "no dimension 2", t.slice(2, 0, 1));
  EXPECT_ERROR(ArgumentError, "index 6", t.select(1, 6));
  EXPECT_ERROR(ArgumentError, "every dimension", t.permute({0, 0}));
  EXPECT_ERROR(ArgumentError, "every dimension", t.permute({0}));
  EXPECT_ERROR(ArgumentError, "cannot expand", t.expand({4, 12}));
  EXPECT_ERROR(ArgumentError, "24 elements against 25", t.reshape({5, 5}));
  EXPECT_ERROR(ArgumentError, "24 elements are not a multiple of 5", t.reshape({-1, 5}));
  EXPECT_ERROR(ArgumentError, "negative extent", t.reshape({-1, -1}));
  EXPECT_ERROR(ArgumentError, "make it contiguous first", t.ref().transpose(0, 1).reshape({24}));
}

TEST(Tensor, ReshapeIsAViewWherePossible) {
  const Tensor t = counting({4, 6});
  EXPECT_EQ(t.reshape({2, 2, -1}).data(), t.data());
  EXPECT_EQ(t.slice(1, 0, 3).reshape({2, 2, 3}).strides(), (Shape{12, 6, 1}));
  const Tensor split = t.transpose(0, 1).reshape({2, 3, 1, 4});
  EXPECT_EQ(split.data(), t.data());
  EXPECT_EQ(split.get({1, 2, 0, 3}), 23);
  const Tensor copy = t.transpose(0, 1).reshape({24});
  EXPECT_NE(copy.data(), t.data());
  EXPECT_EQ(copy.get({1}), 6);
  EXPECT_EQ(t.flip(0).reshape({2, 2, 6}).get({0, 1, 0}), 12);
  EXPECT_EQ(Tensor::zeros({0, 3}, f32).reshape({3, 0, 7}).nelements(), 0);
  EXPECT_EQ(Tensor::zeros({1}, f32).reshape({}).rank(), 0);
}

// Every view of a small tensor that is reshaped to every factorisation keeps the order of the elements.
TEST(Tensor, ReshapeKeepsTheOrder) {
  const Tensor base = counting({4, 3, 4});
  const Tensor views[] = {base,
                          base.permute({2, 0, 1}),
                          base.permute({1, 2, 0}),
                          base.slice(0, 0, 4, 2),
                          base.slice(2, 0, 2),
                          base.flip(1),
                          base.select(0, 1).expand({2, 3, 4})};
  for (const Tensor& view : views) {
    const std::int64_t count = view.nelements();
    for (std::int64_t a = 1; a <= count; ++a) {
      for (std::int64_t b = 1; a * b <= count; ++b) {
        if (count % (a * b) != 0) continue;
        const Tensor reshaped = view.reshape({a, 1, b, count / (a * b)});
        ASSERT_EQ(reshaped.values<int>(), view.values<int>())
            << describe(view) << " to " << describe(reshaped);
      }
    }
  }
}

TEST(Tensor, ContiguityAndByteRange) {
  const Tensor t = counting({4, 6});
  const auto base = reinterpret_cast<std::uintptr_t>(t.data());
  EXPECT_TRUE(is_contiguous(t));
  EXPECT_FALSE(is_contiguous(t.transpose(0, 1)));
  EXPECT_TRUE(is_contiguous(t.slice(0, 1, 2)));
  EXPECT_TRUE(is_contiguous(t.slice(0, 1, 3)));
  EXPECT_FALSE(is_contiguous(t.slice(1, 1, 3)));
  EXPECT_TRUE(is_contiguous(t.slice(1, 1, 1)));
  const ByteRange all = byte_range(t), flipped = byte_range(t.flip(0).flip(1)),
                  window = byte_range(t.slice(1, 2, 4));
  EXPECT_EQ(all.begin, base);
  EXPECT_EQ(all.end, base + 96);
  EXPECT_EQ(flipped.begin, all.begin);
  EXPECT_EQ(flipped.end, all.end);
  EXPECT_EQ(window.begin, base + 8);
  EXPECT_EQ(window.end, base + 88);
  EXPECT_TRUE(all.overlaps(window));
  EXPECT_FALSE(byte_range(t.slice(0, 0, 2)).overlaps(byte_range(t.slice(0, 2, 4))));
  EXPECT_FALSE(all.overlaps(byte_range(t.slice(0, 1, 1))));
  EXPECT_EQ(byte_range(t.select(0, 0).expand({9, 6})).end, base + 24);
}

TEST(Tensor, RefusesImpossibleShapes) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_ERROR(ArgumentError, "negative extent", Tensor::empty({-1}, f32));
  EXPECT_ERROR(ArgumentError, "64-bit integer", Tensor::empty({huge, 2}, f32));
  EXPECT_ERROR(ArgumentError, "64-bit integer", Tensor::empty({huge / 2}, f32));
  EXPECT_ERROR(ArgumentError, "64-bit integer", Tensor::empty({huge, huge, 0}, f32));
  EXPECT_ERROR(DeviceError, "out of memory", Tensor::empty({huge / 8}, f32));
  EXPECT_ERROR(ArgumentError, "as many strides", TensorRef(nullptr, f32, {2, 2}, Shape{1}));
  EXPECT_ERROR(ArgumentError, "address space", byte_range(TensorRef(nullptr, f32, {huge}, Shape{huge})));
}

TEST(Tensor, ConvertsBetweenAllDtypes) {
  for (const DType from : all_dtypes) {
    for (const DType to : all_dtypes) {
      const Tensor source = Tensor::random_integers({3, 300}, from, 5, 0, 2);
      EXPECT_TRUE(equal(source.to(to), source)) << from.name() << " to " << to.name();
      const Tensor strided = source.transpose(0, 1);
      EXPECT_TRUE(equal(strided.to(to), strided)) << from.name() << " to " << to.name();
    }
  }
}

TEST(Tensor, ConversionsFollowTheCasts) {
  const std::int64_t big = (1ll << 53) + 1, tie = (1ll << 60) + (1ll << 36);
  EXPECT_EQ(Tensor::from<std::int64_t>({big}).to(i64).at<std::int64_t>(0), big);
  EXPECT_EQ(Tensor::from<std::int64_t>({big}).to(i32).at<std::int32_t>(0), 1);  // wraps
  EXPECT_EQ(Tensor::from<int>({-1, 300}).to(u8).values<int>(), (std::vector<int>{255, 44}));
  EXPECT_EQ(Tensor::from<float>({-1.7f, 3e9f, NAN}).to(i32).values<int>(),
            (std::vector<int>{-1, std::numeric_limits<int>::max(), 0}));
  EXPECT_EQ(Tensor::from<double>({500, -1e9, 0.3}).to(e4m3).get({1}), -448);
  EXPECT_EQ(Tensor::from<int>({2, 0, -3}).to(boolean).values<int>(), (std::vector<int>{1, 0, 1}));
  EXPECT_EQ(Tensor::from<double>({0.5, 0, NAN}).to(boolean).values<int>(), (std::vector<int>{1, 0, 1}));
  // One rounding, not two: a tie of f32 that the double loses.
  for (const std::int64_t value : {tie, tie + 1, tie - 1, -tie, -tie - 1, -tie + 1}) {
    EXPECT_EQ(Tensor::from<std::int64_t>({value}).to(f32).at<float>(0), static_cast<float>(value)) << value;
  }
}

// Every float of 16 bits, and numbers around every float of 8 and 16 bits, against the conversion of one
// number.
TEST(Tensor, ConversionsOfNarrowFloatsAreExact) {
  for (const DType type : {e4m3, e5m2, f16, bf16}) {
    const std::int64_t codes = std::int64_t{1} << type.bits();
    std::vector<float> around;
    const Tensor all = Tensor::empty({codes}, type);
    for (std::int64_t code = 0; code < codes; ++code) {
      std::memcpy(static_cast<std::byte*>(all.data()) + code * type.bytes(), &code, type.bytes());
      const auto value = static_cast<float>(decode(type, code)),
                 next = static_cast<float>(decode(type, code + 1));
      const float middle = value + (next - value) / 2;
      for (float x :
           {value, middle, std::nextafterf(middle, value), std::nextafterf(middle, next), value * 1.3f})
        around.push_back(x);
    }
    const std::vector<float> values = all.values<float>();
    for (std::int64_t code = 0; code < codes; ++code) {
      const double expected = decode(type, code);
      ASSERT_TRUE(values[code] == expected || (std::isnan(values[code]) && std::isnan(expected))) << code;
    }
    const Tensor narrow = Tensor::from(around).to(type);
    for (std::size_t i = 0; i < around.size(); ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, static_cast<std::byte*>(narrow.data()) + i * type.bytes(), type.bytes());
      ASSERT_EQ(bits, encode(type, around[i])) << type.name() << " of " << around[i];
    }
  }
}

// Parts of large tensors are copied by several threads.
TEST(Tensor, CopiesOfLargeTensors) {
  for (const Shape& shape : {Shape{500'000}, Shape{3, 200'000}, Shape{2, 700, 300}}) {
    const Tensor from = Tensor::random_integers(shape, f32, 3, -100, 100), to = from.to(f16);
    EXPECT_TRUE(equal(from, to));
    EXPECT_TRUE(equal(from.clone(), from));
    const int last = from.rank() - 1;
    EXPECT_TRUE(equal(to.flip(last).to(i16), from.flip(last)));
    EXPECT_TRUE(equal(from.transpose(0, last).contiguous(), from.transpose(0, last)));
  }
}

TEST(Tensor, StridedCopies) {
  const Tensor from = counting({3, 4, 5}), to = Tensor::zeros({5, 3, 8}, f64);
  copy_elements(from.permute({2, 0, 1}), to.slice(2, 0, 8, 2).flip(1));
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) {
      for (int k = 0; k < 5; ++k) EXPECT_EQ(to.get({k, 2 - i, 2 * j}), from.get({i, j, k}));
    }
  }
  EXPECT_EQ(to.get({0, 0, 1}), 0);
  EXPECT_ERROR(ArgumentError, "the shapes differ", copy_elements(from, to));
  EXPECT_TRUE(equal(from.transpose(0, 2).contiguous(), from.transpose(0, 2)));
  EXPECT_EQ(from.contiguous().data(), from.data());
  EXPECT_NE(from.clone().data(), from.data());
}

TEST(Tensor, RandomNumbersDependOnTheSeedAlone) {
  const Tensor a = Tensor::random_normal({100'000}, f64, 7), b = Tensor::random_normal({100'000}, f64, 7);
  EXPECT_TRUE(equal(a, b));
  EXPECT_FALSE(equal(a, Tensor::random_normal({100'000}, f64, 8)));
  const std::vector<double> x = a.values<double>();
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / x.size();
  const double square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / x.size();
  EXPECT_NEAR(mean, 0, 0.02);
  EXPECT_NEAR(square, 1, 0.03);
  double neighbours = 0;
  for (std::size_t i = 1; i < x.size(); ++i) neighbours += x[i] * x[i - 1];
  EXPECT_NEAR(neighbours / x.size(), 0, 0.02);
  std::vector<int> counts(6);
  for (const int value : Tensor::random_integers({60'000}, i8, 3, -2, 4).values<int>())
    ++counts.at(value + 2);
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
  for (const double value : Tensor::random_uniform({1000}, f32, 1, -2, 3).values<double>()) {
    EXPECT_GE(value, -2);
    EXPECT_LE(value, 3);
  }
  EXPECT_ERROR(ArgumentError, "low < high", Tensor::random_integers({1}, i32, 0, 4, 4));
}

TEST(Tensor, Comparison) {
  const Tensor a = Tensor::from<float>({1, 2, NAN, INFINITY, 5, 6}, {2, 3}), b = a.clone();
  EXPECT_TRUE(equal(a, b));
  EXPECT_EQ(max_abs_difference(a, b), 0);
  b.set({1, 1}, 5.25);
  EXPECT_EQ(first_difference(a, b), "at [1, 1]: 5 against 5.25");
  EXPECT_TRUE(all_close(a, b, 0.25));
  EXPECT_TRUE(all_close(a, b, 0, 0.05));
  EXPECT_FALSE(all_close(a, b, 0, 0.01));
  EXPECT_EQ(max_abs_difference(a, b), 0.25);
  b.set({0, 2}, 3);
  EXPECT_TRUE(std::isnan(max_abs_difference(a, b)));
  EXPECT_FALSE(all_close(a, b, 1e9));
  EXPECT_FALSE(all_close(Tensor::from<float>({1}), Tensor::from<float>({INFINITY}), 1, 1));
  EXPECT_EQ(first_difference(a, b.select(0, 0)), "the shapes [2, 3] and [3] differ");
  const std::int64_t big = 1ll << 60;
  EXPECT_FALSE(equal(Tensor::from<std::int64_t>({big}), Tensor::from<std::int64_t>({big + 1})));
}

TEST(Tensor, StorageLivesAsLongAsItsViews) {
  Tensor window;
  {
    const Tensor whole = counting({1000});
    window = whole.slice(0, 500, 600);
  }
  EXPECT_EQ(window.get({0}), 500);
}

}  // namespace
}  // namespace tegula
