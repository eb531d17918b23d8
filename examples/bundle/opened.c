/* Opens a bundle while it runs: opened bundle/libsmall.so. */
#include <dlfcn.h>
#include <stdio.h>

#include "small.h"

int main(int count, char** arguments) {
  typedef int32_t scaled_sum(const tegula_tensor*, const tegula_tensor*, float, void*);
  float x[4] = {1, 2, 3, 4}, y[2] = {0, 0};
  const int64_t x_shape[] = {2, 2}, y_shape[] = {2};
  const tegula_tensor X = {x, x_shape, NULL, 2, tegula_f32, tegula_host}, Y = {y, y_shape, NULL, 1, tegula_f32, tegula_host};
  void* library = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  scaled_sum* call = NULL;
  if (library) *(void**)&call = dlsym(library, "small_scaled_sum");
  if (!call) return printf("opened LIBRARY: %s\n", library ? dlerror() : "no library");
  if (call(&X, &Y, 2.0f, NULL) != tegula_ok || y[0] != 6 || y[1] != 14) return printf("wrong: %g %g\n", y[0], y[1]);
  printf("right\n");
  return 0;
}
