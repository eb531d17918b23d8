/* Calls kernels of a bundle that is linked: cc linked.c -Ibundle -Lbundle -lsmall. */
#include <stdio.h>

#include "small.h"

/* The upper half of a float. */
static uint16_t bf16_of(float value) {
  union {
    float value;
    uint32_t bits;
  } both = {value};
  return (uint16_t)(both.bits >> 16);
}

static int sums(void) {
  enum { rows = 3, columns = 1000 };
  static float x[rows * columns], y[rows];
  const int64_t x_shape[] = {rows, columns}, y_shape[] = {rows};
  const tegula_tensor X = {x, x_shape, NULL, 2, tegula_f32, tegula_host}, Y = {y, y_shape, NULL, 1, tegula_f32, tegula_host};
  int i;
  for (i = 0; i < rows * columns; ++i) x[i] = (float)(i / columns);
  if (small_scaled_sum(&X, &Y, 0.5f, NULL) != tegula_ok) return printf("%s\n", small_error());
  for (i = 0; i < rows; ++i)
    if (y[i] != 500.0f * (float)i) return printf("sum %d is %g\n", i, y[i]);
  /* What is wrong is said, and nothing runs. */
  if (small_scaled_sum(&X, &Y, -1.0f, NULL) != tegula_wrong_call) return printf("a wrong call was taken\n");
  printf("%s\n", small_error());
  if (small_scaled_sum(&Y, &Y, 1.0f, NULL) != tegula_wrong_call) return printf("a wrong rank was taken\n");
  printf("%s\n", small_error());
  return 0;
}

static int products(void) {
  enum { m = 70, n = 50, k = 33 };
  static uint16_t a[m * k], b[k * n];
  static float c[m * n];
  const int64_t a_shape[] = {m, k}, b_shape[] = {n, k}, b_strides[] = {1, n}, c_shape[] = {m, n};
  const tegula_tensor A = {a, a_shape, NULL, 2, tegula_bf16, tegula_host}, B = {b, b_shape, b_strides, 2, tegula_bf16, tegula_host},
                      C = {c, c_shape, NULL, 2, tegula_f32, tegula_host};
  int i, j;
  for (i = 0; i < m; ++i)
    for (j = 0; j < k; ++j) a[i * k + j] = bf16_of((float)(i % 4));
  for (j = 0; j < k; ++j)
    for (i = 0; i < n; ++i) b[j * n + i] = bf16_of((float)(i % 8));
  if (small_product(&A, &B, &C, NULL) != tegula_ok) return printf("%s\n", small_error());
  for (i = 0; i < m; ++i)
    for (j = 0; j < n; ++j)
      if (c[i * n + j] != (float)(k * (i % 4) * (j % 8))) return printf("product %d, %d is %g\n", i, j, c[i * n + j]);
  return 0;
}

int main(void) {
  const int failed = sums() || products();
  if (!failed) printf("right\n");
  return failed;
}
