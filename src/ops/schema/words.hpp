// The wording of tables in messages and documents.
#pragma once
#include <string>
#include <vector>

#include "ops/schema/bound.hpp"

namespace tegula::ops {

std::string names_of(const std::vector<DType>& types);  // "f32, f16 or bf16"
std::string text_of(const DimList& list);               // "[m, k]"
std::string text_of(const OptionValue& value);          // "0.5", "bhsd", "nothing"
std::string expected_of(const OptionSpec& option);      // "a value from 1 to 9"
// `{name}` replaced by the value of that dim or option.
std::string with_values(const std::string& text, const BoundCall& call);

}  // namespace tegula::ops
