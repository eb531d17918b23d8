// An instance has the fields that fix a compiled kernel; its name and cache key are derived from them.
//
//   struct Instance {
//     DType type;
//     std::optional<DType> weight;
//     int dim = 0;
//     bool causal = false;
//     auto fields() const { return std::tuple(type, labelled("weight", weight), dim, labelled("causal",
//     causal)); }
//   };
//
// If fields() omits a member, the code does not compile.
#pragma once
#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tegula/dtype.hpp"

namespace tegula::ops {

// A field whose value alone would not say what it is: a condition that is named if it holds, a value that is
// named before it if it differs from what stands for none.
template <class T>
struct Labelled {
  const char* label;
  T value;
};
template <class T>
Labelled<T> labelled(const char* label, T value) {
  return {label, value};
}

// The names of an enumeration's values, in their order. Enumerations of operators specialise it.
template <class E>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 0> choice_names{};

// Two fields that are named together: `joined("b", 64, 128)` is `_b64x128`.
struct Joined {
  const char* label;
  int first, second;
};
inline Joined joined(const char* label, int first, int second) { return {label, first, second}; }

// How a type stands in names and keys, of how many members of an instance. Types of operators specialise it.
template <class T>
struct FieldOf {
  static_assert(std::is_integral_v<T>, "specialise FieldOf for this type");
  static constexpr std::size_t words = 1, members = 1;
  static void key(const T& value, std::int64_t* words) { *words = static_cast<std::int64_t>(value); }
  static std::string name(const T& value) { return fmt::format("_{}", value); }
};

template <class Instance>
using FieldsOf = decltype(std::declval<const Instance&>().fields());
// An instance that is a member of another.
template <class Instance>
requires requires(const Instance& instance) { instance.fields(); }
struct FieldOf<Instance>;
// Its first value stands for nothing and has no name.
template <class E>
requires std::is_enum_v<E>
struct FieldOf<E> {
  static constexpr std::size_t words = 1, members = 1;
  static void key(const E& value, std::int64_t* words) { *words = static_cast<std::int64_t>(value); }
  static std::string name(const E& value) {
    return value == E{} ? "" : fmt::format("_{}", choice_names<E>[static_cast<std::size_t>(value)]);
  }
};
template <>
struct FieldOf<DType> {
  static constexpr std::size_t words = 1, members = 1;
  static void key(const DType& type, std::int64_t* words) { *words = static_cast<std::int64_t>(type.code); }
  static std::string name(const DType& type) { return "_" + std::string(type.name()); }
};
template <class T>
struct FieldOf<std::optional<T>> {
  static constexpr std::size_t words = 1 + FieldOf<T>::words, members = 1;
  static void key(const std::optional<T>& value, std::int64_t* words) {
    words[0] = value.has_value();
    if (value) FieldOf<T>::key(*value, words + 1);
  }
  static std::string name(const std::optional<T>& value) { return value ? FieldOf<T>::name(*value) : ""; }
};
template <class T>
struct FieldOf<Labelled<T>> {
  static constexpr std::size_t words = FieldOf<T>::words, members = 1;
  static void key(const Labelled<T>& field, std::int64_t* words) { FieldOf<T>::key(field.value, words); }
  static std::string name(const Labelled<T>& field) {
    if constexpr (std::is_same_v<T, bool>) {
      return field.value ? fmt::format("_{}", field.label) : "";
    } else {
      // Numbers follow their label, `_d64`; names apart, `_bias_f32`.
      const std::string value = FieldOf<T>::name(field.value);
      const bool is_number = value.size() > 1 && value[1] >= '0' && value[1] <= '9';
      return value.empty() ? "" : fmt::format("_{}{}", field.label, value.substr(is_number ? 1 : 0));
    }
  }
};
template <>
struct FieldOf<Joined> {
  static constexpr std::size_t words = 2, members = 2;
  static void key(const Joined& field, std::int64_t* words) {
    words[0] = field.first, words[1] = field.second;
  }
  static std::string name(const Joined& field) {
    return fmt::format("_{}{}x{}", field.label, field.first, field.second);
  }
};

namespace detail {

// Stands for any field, so that an aggregate can be asked how many it has.
struct AnyField {
  template <class T>
  operator T() const;
};
template <class T, std::size_t... I>
constexpr bool takes_fields(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyField())...}; };
}
template <class T, std::size_t N = 32>
constexpr std::size_t field_count() {
  static_assert(std::is_aggregate_v<T>, "an instance is a plain struct");
  if constexpr (takes_fields<T>(std::make_index_sequence<N>()))
    return N;
  else
    return field_count<T, N - 1>();
}

template <class... F>
constexpr std::size_t words_of(const std::tuple<F...>*) {
  return (FieldOf<F>::words + ... + 0);
}
template <class... F>
constexpr std::size_t members_of(const std::tuple<F...>*) {
  return (FieldOf<F>::members + ... + 0);
}

}  // namespace detail

template <class Instance>
inline constexpr std::size_t key_words = detail::words_of(static_cast<const FieldsOf<Instance>*>(nullptr));

template <class Instance>
using InstanceKey = std::array<std::int64_t, key_words<Instance>>;

template <class Instance>
requires requires(const Instance& instance) { instance.fields(); }
struct FieldOf<Instance> {
  static constexpr std::size_t words = key_words<Instance>, members = 1;
  static void key(const Instance& instance, std::int64_t* next) {
    static_assert(detail::members_of(static_cast<const FieldsOf<Instance>*>(nullptr)) ==
                      detail::field_count<Instance>(),
                  "fields() states every member of the instance, once");
    const auto add = [&]<class F>(const F& field) {
      FieldOf<F>::key(field, next);
      next += FieldOf<F>::words;
    };
    std::apply([&](const auto&... field) { (add(field), ...); }, instance.fields());
  }
  static std::string name(const Instance& instance) {
    std::string name;
    const auto add = [&]<class F>(const F& field) { name += FieldOf<F>::name(field); };
    std::apply([&](const auto&... field) { (add(field), ...); }, instance.fields());
    return name;
  }
};

template <class Instance>
InstanceKey<Instance> key_of(const Instance& instance) {
  InstanceKey<Instance> key{};
  FieldOf<Instance>::key(instance, key.data());
  return key;
}

// `operator_f32_bias_bf16_causal`.
template <class Instance>
std::string instance_name(const std::string& op, const Instance& instance) {
  return op + FieldOf<Instance>::name(instance);
}

}  // namespace tegula::ops
