#include "tools/bench/kernel_results.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/eval/number_lists.h"

namespace longhaul::bench {
namespace {

using enum Column::Align;

// In the unit of what bounds the case: billions a second.
std::string rate_text(double rate, Limit limit) {
  return fmt::format("{:.2f} {}", rate / 1e9, limit == Limit::kArithmetic ? "GFLOP/s" : "GB/s");
}

}  // namespace

std::optional<double> FamilySlopes::add(const KernelCase& c, const KernelTime& time) {
  if (c.family.empty()) return std::nullopt;
  auto family = std::ranges::find(families_, c.family, &Family::name);
  if (family == families_.end())
    family = families_.insert(family, {.name = c.family, .points = {}});
  family->points.push_back({static_cast<double>(c.length), time.seconds});
  if (family->points.size() < 2) return std::nullopt;
  return log_slope(family->points);
}

std::string FamilySlopes::text() const {
  std::string out;
  for (const Family& family : families_) {
    if (family.points.size() < 2) continue;
    out += fmt::format("slope of log time over log length, {} from {} to {}: {:.3f}\n", family.name,
                       length_text(static_cast<std::int64_t>(family.points.front().length)),
                       length_text(static_cast<std::int64_t>(family.points.back().length)),
                       log_slope(family.points));
  }
  return out;
}

std::vector<Column> kernel_columns(std::size_t name_width) {
  return {
      {.key = "kernel", .title = "kernel", .width = name_width},
      {.key = "family"},
      {.key = "length"},
      {.key = "seconds", .title = "ms", .align = kRight, .width = 9},
      {.key = "runs"},
      {.key = "flops"},
      {.key = "bytes"},
      {.key = "limit"},
      {.key = "unit"},
      {.key = "achieved", .title = "achieved", .align = kRight, .width = 16, .is_spare = true},
      {.key = "attainable", .title = "attainable", .align = kRight, .width = 16, .is_spare = true},
      {.key = "of_attainable", .title = "ratio", .align = kRight, .width = 6},
      {.key = "slope", .title = "slope", .align = kRight, .width = 6},
      {.key = "cpu_info"},
      {.key = "isa"},
      {.key = "n_threads"},
      {.key = "clock"}};
}

std::vector<Cell> kernel_cells(const KernelCase& c, const KernelTime& time,
                               std::optional<double> slope, const KernelSettings& settings) {
  const Bound bound = bound_of(c.work, time.rates, c.dtype);
  const bool computes = bound.limit == Limit::kArithmetic;
  const double amount = computes ? c.work.operations() : c.work.bytes;
  const double achieved = amount / time.seconds;
  const double attainable = amount / bound.seconds;
  const bool has_family = !c.family.empty();
  return {{c.name, c.name},
          {"", has_family ? Json(c.family) : Json()},
          {"", has_family ? Json(c.length) : Json()},
          {fmt::format("{:.3f}", time.seconds * 1e3), time.seconds},
          {"", time.n_runs},
          {"", c.work.operations()},
          {"", c.work.bytes},
          {"", std::string(name_of(bound.limit))},
          {"", computes ? "GFLOP/s" : "GB/s"},
          {rate_text(achieved, bound.limit), achieved / 1e9},
          {rate_text(attainable, bound.limit), attainable / 1e9},
          {fmt::format("{:.2f}", bound.seconds / time.seconds), bound.seconds / time.seconds},
          {slope ? fmt::format("{:.3f}", *slope) : "", slope ? Json(*slope) : Json()},
          {"", settings.cpu},
          {"", settings.isa},
          {"", settings.n_threads},
          {"", std::string(name_of(settings.clock))}};
}

}  // namespace longhaul::bench
