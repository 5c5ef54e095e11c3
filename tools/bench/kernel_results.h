// What `longhaul bench kernels` found, as rows of a table. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/work_clock.h"
#include "tools/bench/kernel_cases.h"
#include "tools/bench/statistics.h"
#include "tools/bench/table.h"

namespace longhaul::bench {

struct KernelTime {
  double seconds = 0;  // of the fastest run
  int n_runs = 0;
  Rates rates = {};  // attainable right before or after it, the better
};

// The same for all rows.
struct KernelSettings {
  std::string cpu;
  std::string isa;
  int n_threads = 1;
  WorkClock clock = WorkClock::kWall;
};

// Slopes of time over length, family by family, while results come in.
class FamilySlopes {
 public:
  // Of the case's family up to this case; nullopt for its first length and for cases without one.
  std::optional<double> add(const KernelCase& c, const KernelTime& time);
  // A line for each family of two lengths or more.
  std::string text() const;

 private:
  struct Family {
    std::string name;
    std::vector<TimeAtLength> points;
  };
  std::vector<Family> families_;
};

// `name_width`: of the longest kernel's name. The rates are spare: their ratio is beside them.
std::vector<Column> kernel_columns(std::size_t name_width);
std::vector<Cell> kernel_cells(const KernelCase& c, const KernelTime& time,
                               std::optional<double> slope, const KernelSettings& settings);

}  // namespace longhaul::bench
