// Access to options that are members of operators' structs, for any struct.
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <type_traits>

#include "ops/schema/instance.hpp"
#include "ops/schema/table.hpp"

namespace tegula::ops::detail {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// How a member's type is an option.
template <class V>
struct OptionTypeOf {
  static constexpr OptionKind kind = std::is_same_v<V, bool>       ? OptionKind::boolean
                                     : std::is_enum_v<V>           ? OptionKind::choice
                                     : std::is_floating_point_v<V> ? OptionKind::real
                                     : std::is_same_v<V, DType>    ? OptionKind::dtype
                                                                   : OptionKind::integer;
  static OptionValue get(const V& value) {
    if constexpr (kind == OptionKind::choice)
      return std::string(choice_names<V>[static_cast<std::size_t>(value)]);
    else if constexpr (kind == OptionKind::dtype)
      return std::string(value.name());
    else if constexpr (kind == OptionKind::real)
      return static_cast<double>(value);
    else if constexpr (kind == OptionKind::boolean)
      return value;
    else
      return static_cast<std::int64_t>(value);
  }
  static void set(V& member, const OptionValue& value) {
    if constexpr (kind == OptionKind::choice) {
      const auto& names = choice_names<V>;
      const auto found = std::find(names.begin(), names.end(), std::get<std::string>(value));
      member = static_cast<V>(found - names.begin());
    } else if constexpr (kind == OptionKind::dtype) {
      for (const DType type : all_dtypes)
        if (type.name() == std::get<std::string>(value)) member = type;
    } else if constexpr (kind == OptionKind::real) {
      member = static_cast<V>(std::get<double>(value));
    } else if constexpr (kind == OptionKind::boolean) {
      member = std::get<bool>(value);
    } else {
      member = static_cast<V>(std::get<std::int64_t>(value));
    }
  }
  static std::int64_t number(const V& value) {
    if constexpr (kind == OptionKind::dtype)
      return static_cast<std::int64_t>(value.code) + 1;
    else if constexpr (kind == OptionKind::real)
      return std::isfinite(value) ? static_cast<std::int64_t>(value) : 0;
    else
      return static_cast<std::int64_t>(value);
  }
  static bool obeys(const V& value, const OptionRule& rule) {
    if constexpr (kind == OptionKind::integer || kind == OptionKind::real) {
      const auto x = static_cast<double>(value);
      if (!std::isfinite(x) || (rule.high && x > *rule.high)) return false;
      return !rule.low || (rule.above_low ? x > *rule.low : x >= *rule.low);
    } else {
      return true;  // of dtypes, those of outputs are known once the table is complete
    }
  }
};

template <class Member>
struct OptionValueOf {
  using Value = Member;
};
template <class V>
struct OptionValueOf<std::optional<V>> {
  using Value = V;
};

// The same of members whose type is forgotten: a value, or one that may be missing.
template <class Member>
struct OptionAccessOf {
  static constexpr bool optional = IsOptional<Member>::value;
  using Value = typename OptionValueOf<Member>::Value;
  using Type = OptionTypeOf<Value>;

  // Null where there is none.
  static const Value* find(const void* member) {
    const auto& own = *static_cast<const Member*>(member);
    if constexpr (optional)
      return own ? &*own : nullptr;
    else
      return &own;
  }
  static OptionValue get(const void* member) {
    const Value* value = find(member);
    return value == nullptr ? OptionValue() : Type::get(*value);
  }
  static void set(void* member, const OptionValue& value) {
    Value made{};
    Type::set(made, value);
    *static_cast<Member*>(member) = made;
  }
  static std::int64_t number(const void* member) {
    const Value* value = find(member);
    return value == nullptr ? 0 : Type::number(*value);
  }
  static bool obeys(const void* member, const OptionRule& rule) {
    const Value* value = find(member);
    return value == nullptr || Type::obeys(*value, rule);
  }
  static constexpr OptionAccess access{get, set, number, obeys};
};

}  // namespace tegula::ops::detail
