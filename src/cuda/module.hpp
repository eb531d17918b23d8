// Machine code loaded on one GPU, ready to be launched.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "codegen/cuda_program.hpp"
#include "cuda/gpu.hpp"
#include "cuda/reports.hpp"

namespace tegula::cuda {

class Module {
 public:
  // A DeviceError if a function needs what the GPU does not have.
  Module(const Gpu& gpu, const codegen::CudaProgram& program, const std::string& name,
         const std::string& cubin);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Queues a grid; `words` is its parameter. `follows`: the grid before it in the call was queued right
  // before.
  void launch(std::size_t grid, std::int64_t tiles, void* words, StreamHandle stream, bool follows) const;
  // Where kernels report; 0 if they have no assertions.
  DeviceAddress report() const { return report_ ? report_->address() : 0; }

 private:
  struct Function {
    FunctionHandle handle = nullptr;
    int threads = 0;
    unsigned shared_bytes = 0;
    std::int64_t most_blocks = 0;
    bool is_even = false;
    int cluster = 1, ctas = 1;
    bool waits = false;  // by itself for the grid before
  };
  Function load(const codegen::CudaProgram::Kernel& kernel, const std::string& name) const;

  const Gpu& gpu_;
  ModuleHandle module_ = nullptr;
  std::vector<Function> functions_;
  std::shared_ptr<const Report> report_;
};

}  // namespace tegula::cuda
