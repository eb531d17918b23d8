#include "ops/reference/softmax.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tegula/error.hpp"

namespace tegula::ops::reference {

Tensor doubles(const TensorRef& tensor) { return Tensor::adopt(tensor, nullptr).to(f64).contiguous(); }

double Softmax::rounded(double value) const { return steps == f64 ? value : round_to(steps, value); }

double Softmax::weight(double value) const {
  return weights == f64 ? value : round_to(weights, value * 0x1p8) * 0x1p-8;
}

double Softmax::score(double product, double& slope) const {
  const double scaled = rounded(rounded(product) * scale);
  if (softcap <= 0) {
    slope = scale;
    return scaled;
  }
  const double capped = std::tanh(scaled / softcap);
  slope = scale * (1 - capped * capped);
  return softcap * capped;
}

namespace {

// A matrix by its rows: elements that are checked one by one would be most of the time of the tests.
struct Rows {
  double* data;
  std::int64_t stride;
  std::size_t width;

  explicit Rows(const TensorRef& t)
      : data(t.data_as<double>()), stride(t.stride(0)), width(static_cast<std::size_t>(t.size(1))) {
    internal_assert(width <= 1 || t.stride(1) == 1, "features of references are contiguous");
  }
  double* operator[](std::size_t i) const { return data + static_cast<std::int64_t>(i) * stride; }
};

double dot(const double* a, const double* b, std::size_t size) {
  double sum = 0;
  for (std::size_t d = 0; d < size; ++d) sum += a[d] * b[d];
  return sum;
}

void add_times(double* to, double factor, const double* from, std::size_t size) {
  for (std::size_t d = 0; d < size; ++d) to[d] += factor * from[d];
}

// Scores and weights of one query: weights relative to `shift`, whose sum contains the sink.
struct Row {
  std::vector<double> products, slopes, weights;
  double shift = 0, sum = 0;

  Row(const Softmax& softmax, const Head& head, const Rows& q, const Rows& k, std::size_t i) {
    const auto keys = static_cast<std::size_t>(head.k.size(0));
    products.assign(keys, 0), slopes.assign(keys, 0), weights.assign(keys, 0);
    head.times(static_cast<std::int64_t>(i), weights);
    shift = softmax.sink;
    for (std::size_t j = 0; j < keys; ++j) {
      const double times = weights[j];
      weights[j] = -infinity;
      if (times <= 0) continue;
      products[j] = dot(q[i], k[j], q.width);
      weights[j] = softmax.score(products[j], slopes[j]) + std::log(times);
      shift = std::max(shift, weights[j]);
    }
    if (shift == -infinity) shift = 0;
    sum = softmax.sink == infinity ? 1 : std::exp(softmax.sink - shift);
    for (double& weight : weights) {
      weight = weight == -infinity ? 0 : softmax.rounded(std::exp(weight - shift));
      sum += weight;
    }
  }
};

std::vector<double> row_of_out(const Softmax& softmax, const Rows& v, const Row& row) {
  std::vector<double> out(v.width, 0.0);
  for (std::size_t j = 0; j < row.weights.size(); ++j)
    if (row.weights[j] != 0) add_times(out.data(), softmax.weight(row.weights[j]), v[j], v.width);
  for (double& x : out) x = row.sum == 0 ? 0 : softmax.rounded(x / row.sum);
  return out;
}

}  // namespace

void attend(const Softmax& softmax, const Head& head, const TensorRef& out, const TensorRef& lse) {
  const Rows q(head.q), k(head.k), v(head.v), results(out);
  for (std::int64_t i = 0; i < head.q.size(0); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Row row(softmax, head, q, k, at);
    const std::vector<double> values = row_of_out(softmax, v, row);
    std::copy(values.begin(), values.end(), results[at]);
    lse.at<double>(i) = row.sum == 0 ? -infinity : row.shift + std::log(row.sum);
  }
}

void differentiate(const Softmax& softmax, const Head& head, const Tensor& dout, const Tensor& dlse,
                   HeadGradients& gradients) {
  const Rows q(head.q), k(head.k), v(head.v), of_out(dout);
  const Rows dq(gradients.dq), dk(gradients.dk), dv(gradients.dv);
  for (std::int64_t query = 0; query < head.q.size(0); ++query) {
    const auto i = static_cast<std::size_t>(query);
    const Row row(softmax, head, q, k, i);
    if (row.sum == 0) continue;
    const std::vector<double> out = row_of_out(softmax, v, row);
    const double delta = dot(out.data(), of_out[i], v.width) - dlse.at<double>(query);
    gradients.dsink -= (softmax.sink == infinity ? 1 : std::exp(softmax.sink - row.shift) / row.sum) * delta;
    for (std::size_t j = 0; j < row.weights.size(); ++j) {
      if (row.weights[j] == 0) continue;
      const double weight = softmax.rounded(row.weights[j] / row.sum);
      const double of_score = weight * (softmax.rounded(dot(of_out[i], v[j], v.width)) - delta);
      const double of_product = softmax.rounded(of_score * row.slopes[j]);
      if (gradients.scores)
        gradients.scores(query, static_cast<std::int64_t>(j), of_product * row.products[j]);
      add_times(dv[j], weight, of_out[i], v.width);
      add_times(dq[i], of_product, k[j], q.width);
      add_times(dk[j], of_product, q[i], q.width);
    }
  }
}

}  // namespace tegula::ops::reference
