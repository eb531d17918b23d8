#include "ops/reference/softmax.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tegula::ops::reference {

Tensor doubles(const TensorRef& tensor) { return Tensor::adopt(tensor, nullptr).to(f64).contiguous(); }

double Softmax::rounded(double value) const { return steps == f64 ? value : round_to(steps, value); }

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

double dot(const Tensor& a, std::int64_t i, const Tensor& b, std::int64_t j) {
  double sum = 0;
  for (std::int64_t d = 0; d < a.size(1); ++d) sum += a.at<double>(i, d) * b.at<double>(j, d);
  return sum;
}

// Scores and weights of one query: weights relative to `shift`, whose sum contains the sink.
struct Row {
  std::vector<double> products, slopes, weights;
  double shift = 0, sum = 0;

  Row(const Softmax& softmax, const Head& head, std::int64_t i) {
    const std::int64_t keys = head.k.size(0);
    double top = softmax.sink;
    for (std::int64_t j = 0; j < keys; ++j) {
      const double times = head.times(i, j);
      products.push_back(times > 0 ? dot(head.q, i, head.k, j) : 0);
      slopes.push_back(0);
      const double score = softmax.score(products.back(), slopes.back());
      weights.push_back(times > 0 ? score + std::log(times) : -infinity);
      top = std::max(top, weights.back());
    }
    shift = top == -infinity ? 0 : top;
    sum = std::exp(softmax.sink - shift);
    for (double& weight : weights) {
      weight = softmax.rounded(std::exp(weight - shift));
      sum += weight;
    }
  }
};

std::vector<double> row_of_out(const Softmax& softmax, const Head& head, const Row& row) {
  std::vector<double> out(static_cast<std::size_t>(head.v.size(1)), 0.0);
  for (std::size_t j = 0; j < row.weights.size(); ++j)
    if (row.weights[j] != 0)
      for (std::size_t d = 0; d < out.size(); ++d)
        out[d] +=
            row.weights[j] * head.v.at<double>(static_cast<std::int64_t>(j), static_cast<std::int64_t>(d));
  for (double& x : out) x = row.sum == 0 ? 0 : softmax.rounded(x / row.sum);
  return out;
}

}  // namespace

void attend(const Softmax& softmax, const Head& head, const TensorRef& out, const TensorRef& lse) {
  for (std::int64_t i = 0; i < head.q.size(0); ++i) {
    const Row row(softmax, head, i);
    const std::vector<double> values = row_of_out(softmax, head, row);
    for (std::size_t d = 0; d < values.size(); ++d)
      out.at<double>(i, static_cast<std::int64_t>(d)) = values[d];
    lse.at<double>(i) = row.sum == 0 ? -infinity : row.shift + std::log(row.sum);
  }
}

void differentiate(const Softmax& softmax, const Head& head, const Tensor& dout, const Tensor& dlse,
                   HeadGradients& gradients) {
  for (std::int64_t i = 0; i < head.q.size(0); ++i) {
    const Row row(softmax, head, i);
    if (row.sum == 0) continue;
    const std::vector<double> out = row_of_out(softmax, head, row);
    double delta = -dlse.at<double>(i);
    for (std::size_t d = 0; d < out.size(); ++d)
      delta += out[d] * dout.at<double>(i, static_cast<std::int64_t>(d));
    gradients.dsink -= std::exp(softmax.sink - row.shift) / row.sum * delta;
    for (std::int64_t j = 0; j < head.k.size(0); ++j) {
      const auto at = static_cast<std::size_t>(j);
      if (row.weights[at] == 0) continue;
      const double weight = softmax.rounded(row.weights[at] / row.sum);
      const double of_score = weight * (softmax.rounded(dot(dout, i, head.v, j)) - delta);
      const double of_product = softmax.rounded(of_score * row.slopes[at]);
      if (gradients.scores) gradients.scores(i, j, of_product * row.products[at]);
      for (std::int64_t d = 0; d < head.v.size(1); ++d)
        gradients.dv.at<double>(j, d) += weight * dout.at<double>(i, d);
      for (std::int64_t d = 0; d < head.q.size(1); ++d) {
        gradients.dq.at<double>(i, d) += of_product * head.k.at<double>(j, d);
        gradients.dk.at<double>(j, d) += of_product * head.q.at<double>(i, d);
      }
    }
  }
}

}  // namespace tegula::ops::reference
