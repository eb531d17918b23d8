// TEST_P and INSTANTIATE_TEST_SUITE_P mean what they mean in GoogleTest, of whose macros these take the
// place: there every table of tests is 300 functions of templates, which were a sixth of all that the tests'
// compilers saw. Here a table is a loop over its rows, a test what makes one for a row, and the rest is
// compiled once. They reach the tests with the precompiled headers; without these, tests have GoogleTest's
// own.
#pragma once
#include <gtest/gtest.h>

#include <string>

namespace tegula::rows {

using ::testing::internal::CodeLocation;
using ::testing::internal::TestFactoryBase;
using ::testing::internal::TypeId;

// Hears of the rows of a table one after another.
class Visitor {
 public:
  virtual void visit(const void* row, const std::string& name, const std::string& printed) = 0;

 protected:
  ~Visitor() = default;
};

struct Suite {
  const char* name;
  TypeId id;
  CodeLocation place;
};

struct Test {
  const char* name;
  TestFactoryBase* (*make)(const void* row);
  void (*set_up)();
  void (*tear_down)();
};

struct Table {
  const char* prefix;
  void (*each_row)(Visitor&);
};

int add(const Suite& suite, const Test& test);
int add(const Suite& suite, const Table& table);

template <class Row, auto rows, auto name>
void each_row(Visitor& visitor) {
  std::size_t number = 0;
  for (const Row& row : rows()) visitor.visit(&row, name({row, number++}), ::testing::PrintToString(row));
}

// Makes the tests of all rows known, for which main() asks before it runs them.
void register_tests();

}  // namespace tegula::rows

#undef TEST_P
#define TEST_P(suite, name)                                                                                  \
  class GTEST_TEST_CLASS_NAME_(suite, name) : public suite {                                                 \
   public:                                                                                                   \
    GTEST_TEST_CLASS_NAME_(suite, name)() = default;                                                         \
    GTEST_TEST_CLASS_NAME_(suite, name)(const GTEST_TEST_CLASS_NAME_(suite, name) &) = delete;               \
    void TestBody() override;                                                                                \
                                                                                                             \
   private:                                                                                                  \
    static ::testing::internal::TestFactoryBase* gtest_of_row_(const void* row) {                            \
      return new ::testing::internal::ParameterizedTestFactory<GTEST_TEST_CLASS_NAME_(suite, name)>(         \
          *static_cast<const ParamType*>(row));                                                              \
    }                                                                                                        \
    static const int gtest_registered_;                                                                      \
  };                                                                                                         \
  const int GTEST_TEST_CLASS_NAME_(suite, name)::gtest_registered_ =                                         \
      ::tegula::rows::add({#suite, ::testing::internal::GetTypeId<suite>(), {__FILE__, __LINE__}},           \
                          ::tegula::rows::Test{#name, &gtest_of_row_, &SetUpTestSuite, &TearDownTestSuite}); \
  void GTEST_TEST_CLASS_NAME_(suite, name)::TestBody()

#undef INSTANTIATE_TEST_SUITE_P
#define INSTANTIATE_TEST_SUITE_P(prefix, suite, ...)                                                       \
  static ::testing::internal::ParamGenerator<suite::ParamType> gtest_rows_of_##prefix##_##suite() {        \
    return GTEST_EXPAND_(GTEST_GET_FIRST_(__VA_ARGS__, DUMMY_PARAM_));                                     \
  }                                                                                                        \
  static ::std::string gtest_name_in_##prefix##_##suite(                                                   \
      const ::testing::TestParamInfo<suite::ParamType>& info) {                                            \
    return (GTEST_EXPAND_(GTEST_GET_SECOND_(                                                               \
        __VA_ARGS__, ::testing::internal::DefaultParamName<suite::ParamType>, DUMMY_PARAM_)))(info);       \
  }                                                                                                        \
  [[maybe_unused]] static const int gtest_registered_##prefix##_##suite = ::tegula::rows::add(             \
      {#suite, ::testing::internal::GetTypeId<suite>(), {__FILE__, __LINE__}},                             \
      ::tegula::rows::Table{#prefix,                                                                       \
                            &::tegula::rows::each_row<suite::ParamType, &gtest_rows_of_##prefix##_##suite, \
                                                      &gtest_name_in_##prefix##_##suite>})
