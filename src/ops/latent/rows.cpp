#include "ops/latent/rows.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

Tensor features_of(const std::string& name, Extents extents, int features, DType type) {
  extents.push_back(features);
  return lang::input(name, extents, type);
}

}  // namespace

LatentTensor LatentTensor::input(const std::string& name, const Extents& extents, int dim, int dim_v,
                                 DType type) {
  LatentTensor result{features_of(name + "_values", extents, dim_v, type), {}};
  if (dim > dim_v) result.rest.emplace(features_of(name + "_rest", extents, dim - dim_v, type));
  return result;
}

LatentTile::LatentTile(int rows, int dim, int dim_v, const TileFeatures& padded, DType type)
    : values({rows, padded.of(dim_v)}, type) {
  if (dim > dim_v) rest.emplace(Shared({rows, padded.of_v(dim - dim_v)}, type));
}

void LatentTile::copy_from(const LatentTensor& from, const Expr& first) {
  copy(from.values.at(first), values);
  if (rest) copy(from.rest->at(first), *rest);
}

void add_scores(const LatentTile& left, const LatentTile& right, Fragment& scores) {
  gemm(left.values, right.values.T(), scores);
  if (left.rest) gemm(*left.rest, right.rest->T(), scores);
}

}  // namespace tegula::ops
