/* The C interface of kernels that were compiled ahead of time. Nothing throws: functions return a status, and
 * BUNDLE_error() has the text of the calling thread's last failure. */
#ifndef TEGULA_BUNDLE_H
#define TEGULA_BUNDLE_H
#include <stdint.h>

/* Element types. */
enum tegula_type {
  tegula_bool,
  tegula_i8,
  tegula_i16,
  tegula_i32,
  tegula_i64,
  tegula_u8,
  tegula_u32,
  tegula_e4m3,
  tegula_e5m2,
  tegula_f16,
  tegula_bf16,
  tegula_f32,
  tegula_f64
};

enum tegula_status {
  tegula_ok = 0,
  tegula_wrong_call = 1, /* shapes, types, strides, devices */
  tegula_no_device = 2,  /* the device, its driver or the memory failed, or the bundle has nothing for it */
  tegula_assertion = 3   /* of the kernel */
};

enum { tegula_host = -1 };

/* Memory stays the caller's. Strides count elements; null stands for rows one after the other. `device` is tegula_host or
 * the number of a CUDA device; all tensors of a call lie on one. */
typedef struct tegula_tensor {
  void* data;
  const int64_t* shape;
  const int64_t* strides;
  int32_t rank;
  int32_t type; /* enum tegula_type */
  int32_t device;
} tegula_tensor;

#endif
