// Index arithmetic as text, without neutral terms and factors.
#pragma once
#include <cstdint>
#include <string>

namespace tegula::codegen {

// A digit of a number: number / step % extent. The remainder is left out where the number has no higher
// digit, which is so if it is less than `count`; 0: any number.
std::string digit_text(const std::string& number, std::int64_t step, std::int64_t extent,
                       std::int64_t count = 0);
// Both conditions, either of which may be empty.
std::string both(const std::string& a, const std::string& b);
// text * factor
std::string times(const std::string& text, std::int64_t factor);
// text + offset
std::string plus(const std::string& text, std::int64_t offset);
std::string plus(const std::string& text, const std::string& offset);

}  // namespace tegula::codegen
