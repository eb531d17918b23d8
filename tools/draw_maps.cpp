// bench --map: the maps of an operator as files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "map.hpp"
#include "show/folders.hpp"
#include "tegula/error.hpp"
#include "tegula/stream.hpp"

namespace tegula::tool {

namespace {

void print_summary(const Map& map, const std::string& file) {
  std::size_t known = 0, left_out = 0;
  for (const MapPoint& point : map.points)
    known += point.refusal.empty(), left_out += point.refusal == "left out";
  const std::vector<std::size_t> cliffs = map.cliffs(), low = map.low();
  // Plans have ways, but no rates.
  const std::string rates =
      map.measured ? fmt::format("{} below half of the best rates", low.size()) : std::string("not measured");
  fmt::print("{}, {}: {} calls {}, {} refused, {} cliff{}, {}: {}\n", map.op, map.calls->name, known,
             map.measured ? "measured" : "planned", map.points.size() - known - left_out, cliffs.size(),
             cliffs.size() == 1 ? "" : "s", rates, file);
  std::set<std::size_t> listed(cliffs.begin(), cliffs.end());
  listed.insert(low.begin(), low.end());
  const std::size_t width = map.calls->columns.size();
  for (const std::size_t i : listed)
    fmt::print("  {} {}: {:.2f} of the {}, {}\n", map.calls->columns[i % width], map.calls->rows[i / width],
               map.points[i].use, map.measured ? "best" : "fastest way", map.points[i].way);
  std::fflush(stdout);
}

void check_name(const ops::OperatorSchema& schema, const std::string& name) {
  std::vector<std::string> names;
  for (const ops::CallMap& calls : schema.maps) names.emplace_back(calls.name);
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
    throw ArgumentError(
        fmt::format("bench --only: {} has no map {}, but {}", schema.name, name, fmt::join(names, ", ")));
}

}  // namespace

bool draw_maps(const ops::OperatorSchema& schema, Target target, const std::string& folder,
               const MapSelection& selection) {
  if (schema.maps.empty())
    throw ArgumentError(fmt::format(
        "bench --map: the table of {} has no maps; measure its cases without --map", schema.name));
  check_name(schema, selection.only);
  shown::prepare_folder("bench: --map", folder);
  const bool measures = target.device() == DeviceKind::cpu || cuda_device_count() > 0;
  bool is_smooth = true;
  for (const ops::CallMap& calls : schema.maps) {
    if (!selection.only.empty() && calls.name != selection.only) continue;
    const Map map = measures ? measure_map(schema, calls, target, selection.sample)
                             : plan_map(schema, calls, target, selection.sample);
    const std::string stem = schema.name + "_" + calls.name;
    shown::write_complete(folder, stem + ".json", json_of(map));
    print_summary(map, shown::write_complete(folder, stem + ".svg", picture_of(map)));
    is_smooth &= map.cliffs().empty();
  }
  return is_smooth;
}

}  // namespace tegula::tool
