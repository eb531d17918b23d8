// Maps of an operator: calls between and around its examples, each compared with its neighbours. Calls are
// measured if they can run; for a GPU on a machine without one, their plans are compared.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ops/schema/table.hpp"
#include "tegula/analyze.hpp"

namespace tegula::tool {

struct MapPoint {
  std::string refusal;  // why there is no such call; then nothing else is known
  double seconds = 0;   // of a measured call
  double tflops = 0;
  // Between 0 and 1: of a measured call the time that it would take at the best rates of the whole map, of
  // its type of products and of memory, or at the machine's rate of special functions, behind a launch, by
  // its own; of a plan 1 for products of warp groups in blocks with roles, less for every slower way.
  double use = 0;
  std::string way;                 // of a plan: the slowest instruction of its products, roles, spills
  std::vector<std::string> notes;  // on what falls back to a slower way
};

struct Map {
  std::string op;
  const ops::CallMap* calls = nullptr;
  bool measured = false;
  std::vector<MapPoint> points;  // row by row

  const MapPoint& at(std::size_t row, std::size_t column) const {
    return points[row * calls->columns.size() + column];
  }
  // Numbers of the points that use less than half of what a neighbour does, and of which no note says why.
  std::vector<std::size_t> cliffs() const;
  // Of a measured map also those that use less than half of the best rates.
  std::vector<std::size_t> low() const;
};

// Every `every`-th call of a map from the call `from` on; the others have a refusal that says so. Of a GPU's
// calls, code is made too, where there is NVRTC, unless that is left out.
struct MapSample {
  int every = 1, from = 0;
  bool makes_code = true;
};
Map plan_map(const ops::OperatorSchema& schema, const ops::CallMap& calls, Target target, MapSample sample);
Map measure_map(const ops::OperatorSchema& schema, const ops::CallMap& calls, Target target,
                MapSample sample);

// What a call has to do: arithmetic of the kind of its products, bytes, and special functions.
struct PointWork {
  double flops = 0, bytes = 0, special = 0;
  std::string kind = {};
};

// The best of a map; products of different types have rates of their own. What the shortest call takes beside
// its bytes, at most a launch of the machine, others take before and after their bytes, not beside them. The
// caches of a CPU hold the bytes of short calls: its rates of bytes are those of calls that move about as
// many, or more.
struct Rates {
  struct Moved {
    double bytes = 0, seconds = 0;
    double rate() const { return bytes / seconds; }
  };
  std::map<std::string, double> flops;
  std::vector<Moved> moved;
  double least_seconds = 1e30, least_bytes = 0;

  void add(const PointWork& work, double seconds);
  double seconds_of(const PointWork& work, const Machine& machine) const;

 private:
  Moved fastest_from(double bytes) const;
};

// A heat map, and the same with all numbers and notes.
std::string picture_of(const Map& map);
std::string json_of(const Map& map);

struct MapSelection {
  std::string only = {};  // the map of this name; empty: all
  MapSample sample = {};
};
// Writes both of each map of the operator to the folder and prints a line for each. Calls of a GPU on a
// machine without one are planned, all others measured. False if a call is a cliff.
bool draw_maps(const ops::OperatorSchema& schema, Target target, const std::string& folder,
               const MapSelection& selection);

}  // namespace tegula::tool
