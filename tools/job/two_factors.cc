#include "tools/job/two_factors.h"

namespace longhaul {

void TwoFactorFit::add(double x, double y, double seconds) {
  if (seconds <= 0) return;
  sum_x_ += x;
  sum_y_ += y;
  sum_seconds_ += seconds;
  x /= seconds;
  y /= seconds;
  xx_ += x * x;
  xy_ += x * y;
  yy_ += y * y;
  x_ += x;
  y_ += y;
}

TwoFactors TwoFactorFit::fit(double alike) const {
  const TwoFactors same{.a = alike, .b = alike};
  const double determinant = xx_ * yy_ - xy_ * xy_;
  if (determinant <= 1e-4 * xx_ * yy_) return same;
  const TwoFactors found{.a = (x_ * yy_ - y_ * xy_) / determinant,
                         .b = (y_ * xx_ - x_ * xy_) / determinant};
  return found.a > 0 && found.b > 0 ? found : same;
}

TwoFactors TwoFactorFit::fit_to_sum() const {
  TwoFactors found = fit(/*alike=*/1);
  const double predicted = found.a * sum_x_ + found.b * sum_y_;
  if (predicted <= 0) return {};
  const double scale = sum_seconds_ / predicted;
  return {.a = sum_x_ > 0 ? found.a * scale : 1, .b = sum_y_ > 0 ? found.b * scale : 1};
}

}  // namespace longhaul
