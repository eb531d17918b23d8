// For tests: compiles the printed text of a kernel where NVRTC is found, and judges what the assembler says.
#pragma once
#include <gtest/gtest.h>

#include <iostream>

#include "codegen/cuda_program.hpp"
#include "codegen/testing/compare.hpp"
#include "cuda/compile.hpp"
#include "tegula/lang.hpp"

namespace tegula::codegen {

// The most shared memory of a block.
constexpr std::size_t shared_limit(int architecture) { return architecture == 90 ? 227 * 1024 : 163 * 1024; }

// What the assembler remarks on. Where the registers of a function do not suffice, sums move between
// products, and it adds fences: of such functions their spills are the news, and fences are left out.
inline std::vector<std::string> remarks_in(const std::string& log) {
  std::vector<std::string> remarks = cuda::read_remarks(log);
  for (const cuda::Resources& r : cuda::read_resources(log)) {
    if (r.spill_store_bytes == 0) continue;
    std::erase_if(remarks, [&](const std::string& remark) {
      return remark.find("(C7519)") != std::string::npos &&
             remark.find("'" + r.function + "'") != std::string::npos;
    });
  }
  return remarks;
}

// The same text twice, no warnings, and no remarks on serialised instructions.
inline std::vector<cuda::Resources> expect_clean_code(const lang::Kernel& kernel, int architecture) {
  const Signature signature(kernel.ir());
  const CudaProgram program = print_cuda(signature, {architecture});
  EXPECT_EQ(program.kernels.size(), kernel.ir()->grids.size());
  EXPECT_EQ(program.text, print_cuda(signature, {architecture}).text);
  for (const auto& each : program.kernels) EXPECT_LE(each.shared_bytes, shared_limit(architecture));
  const cuda::Nvrtc* nvrtc = cuda::find_nvrtc();
  if (!nvrtc) {
    std::cout << "NVRTC was not found: the text of " << kernel.name() << " was printed, not compiled\n";
    return {};
  }
  const cuda::MachineCode code =
      cuda::compile_code(*nvrtc, program.text, cuda::device_headers(), architecture, kernel_cache());
  EXPECT_EQ(remarks_in(code.log), std::vector<std::string>{}) << kernel.name();
  return cuda::read_resources(code.log);
}

// And nothing in local memory.
inline void expect_good_code(const lang::Kernel& kernel, int architecture) {
  for (const cuda::Resources& r : expect_clean_code(kernel, architecture)) {
    std::cout << cuda::architecture_name(architecture) << " " << r.function << ": " << r.registers
              << " registers, " << r.stack_bytes << " bytes of stack, " << r.spill_store_bytes
              << " bytes spilled\n";
    EXPECT_EQ(r.stack_bytes + r.spill_store_bytes + r.spill_load_bytes, 0) << kernel.name();
  }
}

// The cases, emulated; and their text compiled.
inline void expect_agreement_on_cuda(std::span<const Case> cases) {
  std::vector<Case> served;
  for (const Case& one : cases) {
    const Comparison comparison(std::span(&one, 1));
    try {
      print_cuda(Signature(comparison.kernel().ir()), {});
      served.push_back(one);
    } catch (const ProgramError& refusal) {
      // The one thing that has to be refused.
      EXPECT_NE(std::string(refusal.what()).find("`accumulate` needs consecutive orders"), std::string::npos)
          << one.name << ": " << refusal.what();
    }
  }
  expect_agreement(served, tegula::Target::emulated());
  expect_clean_code(Comparison(served).kernel(), 80);
}

}  // namespace tegula::codegen
