// The device headers compiled for one instruction set, as tables of plain functions, so that tests and
// measurements compiled without special flags can call every set that the machine has.
#pragma once

namespace tegula_cpu_testing {

struct Unary {  // n is a multiple of the width
  const char* name;
  void (*vector)(const float* x, float* y, long n);
  float (*scalar)(float x);
};
struct Binary {
  const char* name;
  void (*vector)(const float* a, const float* b, float* y);
  float (*scalar)(float a, float b);
};
// Integers travel as bits; the name tells the sign.
struct IntegerBinary {
  const char* name;
  void (*vector)(const unsigned* a, const unsigned* b, unsigned* y);
  unsigned (*scalar)(unsigned a, unsigned b);
};
struct FloatToInteger {
  const char* name;
  void (*vector)(const float* x, double* y);
  double (*scalar)(float x);
};
struct Reduction {
  const char* name;
  float (*of)(const float* x);
};
// One element type in memory. Lanes are handed over as doubles, which hold all of them exactly.
struct Storage {
  const char* name;
  int bytes;
  void (*load)(const void* p, double* lanes);
  void (*load_n)(const void* p, long n, double* lanes);
  void (*load_strided)(const void* p, long stride, long n, double* lanes);
  double (*load1)(const void* p);
  void (*store)(void* p, const double* lanes);
  void (*store_n)(void* p, const double* lanes, long n);
  void (*store_strided)(void* p, long stride, const double* lanes, long n);
  void (*store1)(void* p, double value);
};
template <class T>
struct Product {
  int m, n;
  void (*multiply)(long k, const T* a, long row_stride, long k_stride, const T* b, T* c, long ldc,
                   bool accumulate);
};
// A product of bf16 values, with the tile registers or without.
struct ProductOfBf16 {
  int m, n;
  void (*multiply)(int has_tiles, long k, const float* a, long row_stride, long k_stride, const float* b,
                   float* c, long ldc, bool accumulate);
};
struct Bounds {
  long k_begin, k_end, n_begin, n_end;
};
// A product of parts of two matrices of bf16 that copies narrow before, where there are tile registers; what
// is outside of the parts counts as zeros.
struct NarrowProduct {
  int m, n;
  void (*multiply)(int has_tiles, long k, const unsigned short* a, long a_row, long a_k,
                   const unsigned short* b, long b_k, long b_n, Bounds left, Bounds right, float* c,
                   long ldc);
  // The same added to c, whose rows of A may stay where they are; whether the sums have gone to `out`, whose
  // rows have room for whole vectors.
  bool (*leave)(int has_tiles, long k, const unsigned short* a, long a_row, long a_k, const unsigned short* b,
                long b_k, long b_n, Bounds left, Bounds right, float* c, long ldc, unsigned short* out);
};
// Packing into panels of float (or int32_t or double, behind void*) from one element type.
struct Packing {
  const char* name;
  char kind;  // of the panels: 'f', 'i' or 'd'
  int bytes;  // of a source element
  double (*load1)(const void* p);
  void (*rows)(const void* source, long stride, long k, long n, Bounds inside, double fill, void* panels);
  void (*columns)(const void* source, long stride, long k, long n, Bounds inside, double fill, void* panels);
  void (*copied_rows)(const void* source, long source_stride, long rows, long columns, Bounds inside,
                      double fill, void* tile, long stride);
  void (*gathered_rows)(const void* source, long stride, long rows, const int* index, long k, long n,
                        void* panels);
  void (*gathered_columns)(const void* source, long stride, long rows, const int* index, long k, long n,
                           void* panels);
};
// B comes from memory: `rows` lets the product fill the panels, `panels` fills them before.
struct ProductOfRows {
  const char* name;
  int m, n, bytes;  // of a source element
  using Multiply = void (*)(long k, const float* a, long row_stride, long k_stride, const void* source,
                            long source_stride, long step, Bounds inside, float* panels, float* c, long ldc,
                            bool accumulate, bool fetch);
  Multiply rows, panels;
};
template <class T>
struct List {
  const T* first;
  int count;
  const T* begin() const { return first; }
  const T* end() const { return first + count; }
};

struct Functions {
  const char* name;
  int width, panel;
  bool (*supported)();
  List<Unary> math, rounding;
  List<Binary> binary;
  List<IntegerBinary> integer;
  List<FloatToInteger> to_integer;
  List<Reduction> reductions;
  List<Storage> storage;
  List<Product<float>> products;
  List<Product<int>> integer_products;
  List<Product<double>> double_products;
  List<Packing> packings;
  List<ProductOfBf16> bf16_products;
  List<NarrowProduct> narrow_products;
  List<ProductOfRows> products_of_rows;
  // -7 and the products of the bytes of W words, unsigned ones of `a` with signed ones of `b`.
  void (*sum_of_bytes)(const unsigned* a, const unsigned* b, unsigned* y);
  long (*panel_size)(long k, long n);
  long (*panel_index)(long k, long n, long p, long j);
  // Rows of scores: max, exp2(x * scale - max * scale) in place, sum; the pass between attention's two
  // products.
  void (*softmax_rows)(float* scores, long rows, long columns, float scale, float* row_sums);
  // f16 conversion without the instructions.
  void (*f16_generic)(const float* x, float* y, unsigned short* bits, long n);
  // f64(i32(x)) and f64(i64(x)) of one number.
  void (*through_integers)(const double* x, double* of_i32, double* of_i64);
};

extern const Functions functions_avx512, functions_avx2, functions_portable;

}  // namespace tegula_cpu_testing
