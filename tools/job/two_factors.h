// Two factors that make predictions right: each step is predicted as a sum of two parts, x + y, and
// took some seconds; sought are a and b with a x + b y near that. Pure.
#pragma once

namespace longhaul {

struct TwoFactors {
  double a = 1;
  double b = 1;
};

class TwoFactorFit {
 public:
  // All in seconds. Steps that took none are left out.
  void add(double x, double y, double seconds);
  // Least squares of relative errors. Where the steps are too alike to tell the parts from each
  // other, or a factor would not be above 0: `alike` for both.
  TwoFactors fit(double alike) const;
  // The same, and then both multiplied so that the predictions of all steps add up to what these
  // took: slow steps, of which a relative error says little, count by their seconds. 1 for a
  // part that no step has.
  TwoFactors fit_to_sum() const;

 private:
  // Sums over the steps; of x and y divided by the step's seconds, and of all three.
  double xx_ = 0, xy_ = 0, yy_ = 0, x_ = 0, y_ = 0;
  double sum_x_ = 0, sum_y_ = 0, sum_seconds_ = 0;
};

}  // namespace longhaul
