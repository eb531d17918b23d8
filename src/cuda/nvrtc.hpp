// NVRTC, the compiler of CUDA as a library: found at run time, text in, machine code out.
#pragma once
#include <string>
#include <vector>

#include "cuda/library.hpp"

namespace tegula::cuda {

class Nvrtc {
 public:
  // A DeviceError if a function is missing or it is too old.
  explicit Nvrtc(Library library);

  struct Header {
    std::string name;  // as the text includes it
    std::string text;
  };
  struct Source {
    std::string text;
    std::vector<Header> headers;
    std::vector<std::string> options;
  };
  struct Output {
    std::string cubin;
    std::string log;  // what the compiler and the assembler say
  };
  // A DeviceError with the compiler's first lines, and where the text was kept, if it does not compile.
  Output compile(const Source& source) const;

  int version() const { return version_; }
  // What tells builds apart: the version and the size of the library.
  const std::string& identity() const { return identity_; }
  const std::string& path() const { return library_.path(); }

 private:
  class Program;
  Library library_;
  int version_ = 0;
  std::string identity_;

  template <class... Args>
  using F = Function<Args...>;
  F<int*, int*> Version{library_, "nvrtcVersion"};
  F<void**, const char*, const char*, int, const char* const*, const char* const*> CreateProgram{
      library_, "nvrtcCreateProgram"};
  F<void**> DestroyProgram{library_, "nvrtcDestroyProgram"};
  F<void*, int, const char* const*> CompileProgram{library_, "nvrtcCompileProgram"};
  F<void*, std::size_t*> GetProgramLogSize{library_, "nvrtcGetProgramLogSize"};
  F<void*, char*> GetProgramLog{library_, "nvrtcGetProgramLog"};
  F<void*, std::size_t*> GetCUBINSize{library_, "nvrtcGetCUBINSize"};
  F<void*, char*> GetCUBIN{library_, "nvrtcGetCUBIN"};
};

// Where NVRTC may be. A driver takes no code of a newer major version, so with `driver_version` given (0: no
// driver) that one comes first.
std::vector<std::string> nvrtc_paths(int driver_version);
Nvrtc load_nvrtc(const std::vector<std::string>& paths);
// NVRTC of the process, looked for once; a DeviceError if there is none.
const Nvrtc& nvrtc();
// Null instead of that error.
const Nvrtc* find_nvrtc();

}  // namespace tegula::cuda
