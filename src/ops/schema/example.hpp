// Examples of calls, in the notation of operator tables: `m=37 k=45 n=29 f16 bias:f32 activation=gelu`.
//
// A dim or an option with its value (`...=3,5` for leading extents), the dtype of the tensors that may have
// it, and the optional tensors that are given, with their own dtype after `:`. A boolean option stands for
// true. `strides=padded` says how the tensors of the named dtype lie in memory, `packing=even` which lengths
// packed sequences have.
#pragma once
#include "ops/schema/strided.hpp"
#include "ops/schema/table.hpp"

namespace tegula::ops {

struct ExampleCall {
  std::map<std::string, std::int64_t> dims;
  Shape leading;
  DType type = f32;
  bool has_type = false;                              // otherwise every tensor has the first of its own
  std::map<std::string, std::optional<DType>> given;  // optional tensors
  OptionValues options;
  Strides strides = Strides::plain;
  Packing packing = Packing::random;

  static ExampleCall parse(const OperatorSchema& schema, const std::string& text);

  // The values depend on nothing but the seed. Of a gradient, results of the operator that it differentiates
  // are results for these inputs: of small calls the formula's, of others the operator's own.
  Tensors inputs(const OperatorSchema& schema, std::uint64_t seed) const;
  // In the same way the values of one tensor.
  Tensor values(const OperatorSchema& schema, const TensorSpec& tensor, std::uint64_t seed) const;
  // The same tensors without memory, of which kernels can be listed.
  Tensors described(const OperatorSchema& schema) const;
  Shape shape(const OperatorSchema& schema, const TensorSpec& tensor) const;
  DType type_of(const OperatorSchema& schema, const TensorSpec& tensor) const;
  Strides strides_of(const OperatorSchema& schema, const TensorSpec& tensor) const;

 private:
  std::vector<std::int64_t> positions(const OperatorSchema& schema) const;
  Tensors results_of_forward(const OperatorSchema& schema, const OperatorSchema& forward,
                             const Tensors& inputs) const;
};

// The texts that `d={64|128} {|causal}` stands for: one for each choice.
std::vector<std::string> expanded(const std::string& text);

}  // namespace tegula::ops
