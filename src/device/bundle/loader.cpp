// What the functions of a bundle call. No exception leaves it.
#include "loader.hpp"

#include <new>

#include "run_cpu.hpp"
#include "run_cuda.hpp"

namespace bundle {

namespace {

thread_local std::string last_error;

}  // namespace

const char* error() { return last_error.c_str(); }

std::int32_t run(const Kernel& kernel, const tegula_tensor* const* tensors, const Scalar* scalars,
                 void* stream) {
  try {
    Call call = bound(kernel, tensors, scalars);
    if (call.device == tegula_host)
      run_on_cpu(call);
    else
      run_on_cuda(call, stream);
    last_error.clear();
    return tegula_ok;
  } catch (const Failure& failure) {
    last_error = failure.text;
    return failure.status;
  } catch (const std::exception& failure) {
    last_error = failure.what();
    return tegula_no_device;
  }
}

}  // namespace bundle
