// The parts of docs/performance.md; each prints itself as Markdown.
#pragma once

namespace tegula::bench {

void gemm_section();
void attention_section();
void sparse_section();
void memory_section();
void calls_section();
void compile_section();

// In a process of its own: prints the peak of the resident memory less that of inputs and outputs, in MiB.
void memory_of_attention(int tokens);
// In a process of its own: prints the milliseconds that compiling kernel `which` takes.
void time_to_compile(int which);
// In a process of its own: prints the milliseconds that the first call of `attention` takes.
void time_to_call();

}  // namespace tegula::bench
