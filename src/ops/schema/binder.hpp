// Checks a call against its table.
#pragma once
#include "ops/schema/arguments.hpp"
#include "ops/schema/bound.hpp"

namespace tegula::ops {

class Binder {
 public:
  explicit Binder(BoundCall& call) : c_(call), schema_(call.schema()), args_(schema_.name) {}
  void bind();

 private:
  struct Waiting {  // an extent whose dims are not all known yet
    std::size_t tensor, dim;
    const DimItem* item;
  };

  void read_options();
  void check_options() const;
  void bind_inputs();
  void bind_input(std::size_t index);
  void check_type(std::size_t index, const TensorRef& tensor) const;
  void choose_list(std::size_t index, const TensorRef& tensor);
  void bind_dims(std::size_t index, const TensorRef& tensor);
  void bind_leading(std::size_t index, const TensorRef& tensor, std::size_t count);
  void bind_extent(std::size_t index, std::size_t dim, const DimItem& item, std::int64_t extent);
  bool solve_some();  // whether an extent that waited for others is known now
  bool solve(const Waiting& waiting);
  bool is_known(const Expression& e);
  void set(const Expression& name, std::int64_t value, std::size_t tensor);
  void derive();
  void check_packing(std::size_t index);
  void check_requirements(bool of_options) const;
  void bind_outputs();
  void bind_output(std::size_t index);
  void check_apart(std::size_t index, const TensorRef& output) const;
  DType type_of_output(const TensorSpec& spec, const TensorRef* given) const;
  Shape shape_of_output(std::size_t index) const;
  void check_given_output(std::size_t index, const TensorRef& given, const Shape& shape, DType type) const;
  [[noreturn]] void refuse_extent(std::size_t index, const Expression& extent, bool repeats = false) const;

  bool is_met(int position) const { return (c_.met_ >> position & 1) != 0; }
  bool is_written(std::size_t index) const { return spec(index).output || spec(index).written; }
  const TensorSpec& spec(std::size_t index) const { return schema_.tensors[index]; }

  BoundCall& c_;
  const OperatorSchema& schema_;
  Arguments args_;
  std::vector<int> sources_;    // of each dim: the tensor that gave it its value
  std::uint64_t repeated_ = 0;  // dims that are 1 so far because they repeat
  std::vector<Waiting> waiting_;
};

}  // namespace tegula::ops
