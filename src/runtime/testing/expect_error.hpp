// For tests: an expression that must throw an error of a type with a text in its message.
#pragma once
#include <gtest/gtest.h>

#include <string>

#define EXPECT_ERROR(type, text, ...)                                                     \
  do {                                                                                    \
    try {                                                                                 \
      (void)(__VA_ARGS__);                                                                \
      ADD_FAILURE() << "no error from " #__VA_ARGS__;                                     \
    } catch (const type& error) {                                                         \
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what(); \
    }                                                                                     \
  } while (false)
