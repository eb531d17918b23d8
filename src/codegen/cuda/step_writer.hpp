// Builds the tree of steps line by line.
#pragma once
#include "codegen/cuda/steps.hpp"
#include "tegula/error.hpp"

namespace tegula::codegen {

// The user's line with the folder of the file: `attention/kernel.cpp:41`.
std::string location_in_folder(const Loc& at);

class StepWriter {
 public:
  // A new piece of code; lines go there until the next one.
  void code();
  void touch(const MemoryTouch& touch);
  void brings() { here().back().brings = true; }
  void leaves() { here().back().leaves = true; }
  void barrier(const std::string& text);
  // A fence by which tensor cores see what the thread wrote, and a barrier.
  void publish(const std::string& fence, const std::string& barrier);
  // Whether that happened in the code that is open, and nothing was written there or arrived since.
  bool is_published(const Memory& memory) const;
  // The halves of memory that begins there alternate in the loop that is open.
  void alternate(std::int64_t begin) { loops_.back()->alternating.push_back(begin); }
  // Steps of the loop that is open touch places of their own of the tensor.
  void keep_apart(int tensor) { loops_.back()->apart.push_back(tensor); }

  void line(const std::string& text);
  void line(const std::string& text, const Loc& at);
  // A constant without effects, which the text does without where nothing uses it.
  void define(std::string_view type, const std::string& name, const std::string& value);
  // Braces within a piece of code.
  void open(const std::string& text);
  void close(const std::string& behind = "");
  void reopen(const std::string& text);  // `} else {`

  // A loop or branch that steps can stand in.
  void open_step(StepKind kind, const std::string& text, const std::string& barrier = "");
  void close_step();

  std::vector<Step> finish() { return std::move(root_); }

 private:
  std::vector<Step>& here() { return open_.empty() ? root_ : *open_.back(); }
  const std::vector<Step>& here() const { return open_.empty() ? root_ : *open_.back(); }

  std::vector<Step> root_;
  std::vector<std::vector<Step>*> open_;
  std::vector<Step*> loops_;  // for each that is open, the innermost loop
  bool in_code_ = false;
  int depth_ = 0;
};

}  // namespace tegula::codegen
