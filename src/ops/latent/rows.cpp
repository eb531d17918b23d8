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
                                 DType type, int off) {
  LatentTensor result{features_of(name + "_values", extents, dim_v + off, type), {}};
  if (dim > dim_v) result.rest.emplace(features_of(name + "_rest", extents, dim - dim_v + off, type));
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

void LatentTile::load_from(const LatentTensor& from, const Expr& first, int dim_v, int dim_rest) {
  const auto load = [&](const Tensor& rows, int features, Shared& tile) {
    const Tensor own = rows.slice(all, range(0, features));
    parallel(tile, [&](Index i, Index d) { tile(i, d) = own(first + i, d); });
  };
  load(from.values, dim_v, values);
  if (rest) load(*from.rest, dim_rest, *rest);
}

void add_scores(const LatentTile& left, const LatentTile& right, Fragment& scores) {
  gemm(left.values, right.values.T(), scores);
  if (left.rest) gemm(*left.rest, right.rest->T(), scores);
}

}  // namespace tegula::ops
