// demo: denoises a photograph by dense and by block-sparse attention, and compares them.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "call.hpp"
#include "commands.hpp"
#include "demo_denoise.hpp"
#include "image/picture.hpp"
#include "image/png.hpp"
#include "runtime/execution/executable.hpp"
#include "runtime/machine/thread_pool.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

namespace {

using Clock = std::chrono::steady_clock;

// The goals of the sparse way against the dense one, and of the seconds that everything takes.
constexpr double most_loss = 0.2, most_density = 0.1, most_time = 0.2, most_seconds = 60;
constexpr std::int64_t most_tokens = std::int64_t{1} << 20, largest_mask = 1024;
constexpr std::int64_t usual_size = 256, size_of_slow = 64;

struct Demo {
  std::string input = TEGULA_DATA "/astronaut.png", out = "tegula-demo", target = "auto";
  double sigma = 0.1;
  std::uint64_t seed = 1;
  std::int64_t topk = 0, size = 0;
  bool no_dense = false, check = false;
};

struct Results {
  Tensor original, noisy, dense, sparse, mask;
  Denoised of_dense, of_sparse;
  double density = 0;
};

Tensor load(const Demo& demo, Target target) {
  target = resolve(target);
  const bool slow =
      target == Target::interpreter() || target == Target::emulated() || target == Target::emulated_sm90();
  const std::int64_t size = demo.size > 0 ? demo.size : slow ? size_of_slow : usual_size;
  const Tensor bytes = image::read_png(demo.input);
  const Tensor picture = image::reduce(image::to_picture(bytes), size);
  const std::int64_t height = picture.size(0), width = picture.size(1);
  if (std::min(height, width) < image::tile) {
    throw ArgumentError(fmt::format("{}: {} x {} pixels, but both sides need {}; choose a larger picture{}",
                                    demo.input, width, height, image::tile,
                                    bytes.shape() == picture.shape() ? "" : " or a larger --size"));
  }
  if (height * width > most_tokens) {
    throw ArgumentError(
        fmt::format("{}: {} x {} pixels, but at most {} can be tokens; choose a smaller --size", demo.input,
                    width, height, most_tokens));
  }
  fmt::print("{}: {} x {} {}, used at {} x {}{}\n", demo.input, bytes.size(1), bytes.size(0),
             bytes.size(2) == 3 ? "RGB" : "gray", width, height,
             slow && demo.size == 0 ? fmt::format(", for the target '{}' is slow", target.name()) : "");
  return picture;
}

// Which key blocks each block of queries sees: 1 for those.
Tensor mask_picture(const Tensor& indices, std::int64_t blocks) {
  Tensor mask = Tensor::zeros({blocks, blocks, 1}, f32);
  float* to = mask.data_as<float>();
  std::int64_t at = 0;
  for (std::int32_t index : indices.values<std::int32_t>()) {
    const std::int64_t row = at++ / indices.size(1);
    if (index >= 0) to[row * blocks + index] = 1;
  }
  return mask;
}

double mean(const Tensor& picture) {
  double sum = 0;
  for (float value : picture.values<float>()) sum += value;
  return sum / static_cast<double>(picture.nelements());
}

// The mask at the size of the pictures beside it. Its shares count as light, of which a pixel's value is
// about the root; otherwise a sparse mask is dark.
Tensor small_mask(const Tensor& mask, std::int64_t height) {
  const std::int64_t pixels = std::min(height, mask.size(0));
  Tensor result = Tensor::full({height, pixels, 1}, f32, 1);
  const Tensor shares = image::reduce(mask, pixels), top = result.slice(0, 0, pixels);
  float* to = top.data_as<float>();
  for (float share : shares.values<float>()) *to++ = std::sqrt(share);
  return result;
}

void print_way(const char* name, double decibel, const Denoised& way, double density) {
  fmt::print("{:<8} {:6.2f} dB  {:7.4f} s  {:6.2f} %\n", name, decibel, way.seconds, 100 * density);
}

bool goal(bool reached, const std::string& text) {
  fmt::print("{:<7} {}\n", reached ? "yes" : "NO", text);
  return reached;
}

// Whether all goals are reached.
bool report(const Demo& demo, const Results& r, double seconds) {
  fmt::print("\n{:<8} {:>9}  {:>9}  {:>8}\n", "", "PSNR", "time", "density");
  fmt::print("{:<8} {:6.2f} dB\n", "noisy", image::psnr(r.noisy, r.original));
  const double sparse = image::psnr(r.sparse, r.original);
  if (!demo.no_dense) print_way("dense", image::psnr(r.dense, r.original), r.of_dense, 1);
  print_way("sparse", sparse, r.of_sparse, r.density);
  fmt::print("{:.4f} s of the sparse way choose its blocks\n\n", r.of_sparse.selection);
  bool all = goal(r.density < most_density, fmt::format("density below {:.0f} %", 100 * most_density));
  if (!demo.no_dense) {
    const double gain = sparse - image::psnr(r.dense, r.original);
    const double share = r.of_sparse.seconds / r.of_dense.seconds;
    all &= goal(gain >= -most_loss, fmt::format("at most {} dB below dense: {:+.2f} dB", most_loss, gain));
    all &= goal(share < most_time, fmt::format("in less than {} x its time: {:.3f} x", most_time, share));
  }
  all &= goal(seconds < most_seconds, fmt::format("everything in less than {} s: {:.1f} s on {} threads",
                                                  most_seconds, seconds, thread_pool().size()));
  return all;
}

void write(const Demo& demo, const Results& r) {
  std::string names;
  auto put = [&](const char* name, const Tensor& picture) {
    image::write_png((std::filesystem::path(demo.out) / name).string(), image::to_bytes(picture));
    names += (names.empty() ? "" : ", ") + std::string(name);
  };
  std::vector<Tensor> row{r.noisy};
  put("noisy.png", r.noisy);
  if (!demo.no_dense) put("dense.png", r.dense), row.push_back(r.dense);
  put("sparse.png", r.sparse), row.push_back(r.sparse);
  put("mask.png", image::reduce(r.mask, largest_mask)), row.push_back(small_mask(r.mask, r.noisy.size(0)));
  put("comparison.png", image::side_by_side(row, 4));
  fmt::print("\nwritten to {}: {}\n", demo.out, names);
}

void make_output_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw ArgumentError(fmt::format("--out {}: cannot be made: {}; choose another", path, error.message()));
}

void run(const Demo& demo, int& exit_code) {
  const Clock::time_point begin = Clock::now();
  const Target target = target_named(demo.target);
  Results r;
  r.original = load(demo, target);
  make_output_folder(demo.out);
  r.noisy = image::add_noise(r.original, demo.sigma, demo.seed);
  const std::int64_t height = r.original.size(0), width = r.original.size(1);
  const image::NonLocalMeans means = where_it_runs(image::non_local_means(r.noisy, demo.sigma), target);
  const std::int64_t tokens = means.k.size(1), blocks = tokens / image::block;
  const std::int64_t topk = demo.topk > 0 ? std::min(demo.topk, blocks) : (blocks + 15) / 16;
  fmt::print("{} tokens in {} blocks, of which every block of queries sees {}; noise of sigma {}, seed {}\n",
             tokens, blocks, topk, demo.sigma, demo.seed);
  std::fflush(stdout);
  compile_attention(means, topk, !demo.no_dense, target);
  r.of_sparse = denoise_sparse(means, topk, target);
  r.sparse = image::from_tokens(r.of_sparse.tokens, height, width);
  if (!demo.no_dense) {
    r.of_dense = denoise_dense(means, target);
    r.dense = image::from_tokens(r.of_dense.tokens, height, width);
  }
  r.mask = mask_picture(r.of_sparse.indices, blocks), r.density = mean(r.mask);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (!report(demo, r, seconds) && demo.check) exit_code = 1;
  write(demo, r);
}

void add_options(cli::Command& command, Demo& demo) {
  command.add_option("--input", demo.input, "PNG file; gray or colour, of at least 8 x 8 pixels")
      ->capture_default_str();
  command.add_option("--out", demo.out, "Folder for the pictures")->capture_default_str();
  command.add_option("--sigma", demo.sigma, "Standard deviation of the added noise; white is 1")
      ->check(cli::Range(0.005, 1.0))
      ->check([](const std::string& given) -> std::string {
        return std::isnan(std::strtod(given.c_str(), nullptr)) ? given + " is no number" : "";
      })
      ->capture_default_str();
  command.add_option("--seed", demo.seed, "Seed of the noise")->capture_default_str();
  command.add_option("--topk", demo.topk, "Key blocks that a block of queries sees; 0: one in 16")
      ->check(cli::Range(std::int64_t{0}, most_tokens))
      ->capture_default_str();
  command
      .add_option(
          "--size", demo.size,
          fmt::format(
              "Longest side, to which larger pictures are reduced; 0: {}, {} where the target is slow",
              usual_size, size_of_slow))
      ->check(cli::Range(std::int64_t{0}, most_tokens))
      ->capture_default_str();
  command.add_flag("--no-dense", demo.no_dense, "Skip dense attention, whose time grows as size^4");
  command.add_flag("--check", demo.check, "Fails unless all goals are reached");
  add_target_option(command, demo.target);
}

}  // namespace

void add_demo(cli::App& app, int& exit_code) {
  auto* command = app.add_subcommand("demo", "Denoises a photograph by dense and by block-sparse attention");
  auto demo = std::make_shared<Demo>();
  add_options(*command, *demo);
  command->callback([demo, &exit_code] { run(*demo, exit_code); });
}

}  // namespace tegula::tool
