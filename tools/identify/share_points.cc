#include "tools/identify/share_points.h"

#include "base/file.h"
#include "coordinator/fingerprint.h"

namespace longhaul {
namespace {

constexpr std::size_t kMaxShareBytes = std::size_t{64} << 20;
constexpr std::int64_t kMostHeads = std::int64_t{1} << 31;

}  // namespace

SharePoints::SharePoints(std::filesystem::path path, Json made_by)
    : path_(std::move(path)), made_by_(std::move(made_by)) {
  std::error_code ignored;
  if (!path_.empty() && std::filesystem::exists(path_, ignored)) read();
}

void SharePoints::read() {
  const Json json = parse_json(read_file(path_, kMaxShareBytes), path_.string());
  const JsonField root(json, path_.string());
  root.at("version").as_integer(1, 1);
  differences_ = longhaul::differences(root.at("made_by").json(), made_by_);
  if (!differences_.empty()) return;
  const JsonField tried = root.at("tried");
  for (std::size_t i = 0; i < tried.size(); ++i) {
    const JsonField point = tried.at(i);
    points_.push_back({.n_heads = point.at("heads").as_integer(0, kMostHeads),
                       .right = point.at("right").as_number(),
                       .distance = point.at("distance").as_number()});
  }
}

std::optional<TriedShare> SharePoints::find(std::int64_t n_heads) const {
  for (const TriedShare& point : points_) {
    if (point.n_heads == n_heads) return point;
  }
  return std::nullopt;
}

void SharePoints::add(const TriedShare& point) {
  points_.push_back(point);
  if (path_.empty()) return;
  JsonArray tried;
  for (const TriedShare& p : points_)
    tried.emplace_back(
        JsonObject{{"heads", p.n_heads}, {"right", p.right}, {"distance", p.distance}});
  replace_file(path_, to_text(JsonObject{
                          {"version", 1}, {"made_by", made_by_}, {"tried", std::move(tried)}}) +
                          "\n");
}

}  // namespace longhaul
