// NVRTC as tests use it: found at run time, headers given in memory, the compiler's log returned.
#pragma once
#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "device/embedded.hpp"

namespace tegula::codegen::testing {

struct Compiled {
  bool ok = false;
  std::string log;
};

class Nvrtc {
 public:
  // Nothing if this machine has none.
  static const Nvrtc* find() {
    static const Nvrtc nvrtc;
    return nvrtc.library_ ? &nvrtc : nullptr;
  }

  Compiled compile(const std::string& text, int architecture) const {
    std::vector<const char*> texts, names;
    for (const embedded::File& file : embedded::cuda_headers()) {
      texts.push_back(file.text.data());
      names.push_back(file.name.data());
    }
    void* program = nullptr;
    using Create = int (*)(void**, const char*, const char*, int, const char* const*, const char* const*);
    get<Create>("nvrtcCreateProgram")(&program, text.c_str(), "kernel.cu", static_cast<int>(names.size()),
                                      texts.data(), names.data());
    const std::string arch =
        "--gpu-architecture=sm_" + std::to_string(architecture) + (architecture == 90 ? "a" : "");
    const std::vector<const char*> options{arch.c_str(), "--std=c++17", "--ptxas-options=-v"};
    Compiled result;
    using Compile = int (*)(void*, int, const char* const*);
    result.ok =
        get<Compile>("nvrtcCompileProgram")(program, static_cast<int>(options.size()), options.data()) == 0;
    std::size_t size = 0;
    get<int (*)(void*, std::size_t*)>("nvrtcGetProgramLogSize")(program, &size);
    result.log.resize(size);
    get<int (*)(void*, char*)>("nvrtcGetProgramLog")(program, result.log.data());
    get<int (*)(void**)>("nvrtcDestroyProgram")(&program);
    return result;
  }

 private:
  Nvrtc() {
    std::vector<std::string> names{"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12",
                                   "/usr/local/cuda/lib64/libnvrtc.so", "/usr/local/cuda/lib/libnvrtc.so"};
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
      if (const char* home = std::getenv(variable)) names.push_back(std::string(home) + "/lib64/libnvrtc.so");
    }
    for (const std::string& name : names) {
      if (!library_) library_ = dlopen(name.c_str(), RTLD_NOW);
    }
  }
  template <class F>
  F get(const char* name) const {
    return reinterpret_cast<F>(dlsym(library_, name));
  }

  void* library_ = nullptr;
};

}  // namespace tegula::codegen::testing
