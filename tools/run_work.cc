#include "tools/run_work.h"

#include <string>
#include <string_view>

#include "tools/job/stop_signal.h"
#include "tools/job/time_limit.h"

namespace longhaul {

RunWork work_as_asked(const RunOptions& options, ProgressDisplay& display) {
  RunWork work;
  work.config = &options.job;
  work.callbacks.on_note = [&](const std::string& text) { display.note(text); };
  work.callbacks.on_warning = [&](const std::string& text) { display.warn(text); };
  work.callbacks.on_progress = [&](const Progress& now) { display.update(now); };
  work.callbacks.stop_requested = stop_requested;
  work.report = options.report;
  work.kv_methods = kv_methods(options);
  work.save_cluster = options.save_cluster;
  work.end = end_of_job(options.end_time);
  work.explains_plan = options.verbose;
  work.tell = [&](std::string_view lines) { display.tell(lines); };
  return work;
}

}  // namespace longhaul
