#include "tools/job/file_wait_rules.h"

#include "tools/job/stop_signal.h"

namespace longhaul {

FileWaitRules file_wait_rules(const JobConfig& config, JobEnd& end) {
  FileWaitRules rules;
  rules.limit = config.step_timeout;
  rules.limit_name = "--step-timeout";
  rules.stop_requested = stop_requested;
  rules.end = [&end](std::exception_ptr why) { end.fail(why); };
  return rules;
}

FileWaitRules file_wait_rules_of_follower() {
  FileWaitRules rules;
  rules.speaks = false;
  return rules;
}

}  // namespace longhaul
