#include "worker/ring/trace.h"

#include <fmt/format.h>

#include <string>

#include "base/file.h"

namespace longhaul {
namespace {

const char* name_of(TraceLane lane) {
  switch (lane) {
    case TraceLane::kCompute:
      return "compute";
    case TraceLane::kTransfer:
      return "transfer";
    case TraceLane::kWait:
      return "wait";
  }
  return "unknown";
}

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

void Trace::write(const std::filesystem::path& path, Rank rank) const {
  std::string text =
      "[\n" +
      fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"rank {}"}}}})",
                  rank.value, rank.value);
  for (const TraceLane lane : {TraceLane::kCompute, TraceLane::kTransfer, TraceLane::kWait}) {
    text += fmt::format(
        ",\n"
        R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
        rank.value, static_cast<int>(lane), name_of(lane));
  }
  for (const Span& span : spans_) {
    text += fmt::format(
        ",\n"
        R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.1f},"dur":{:.1f},)"
        R"("args":{{"layer":{},"hop":{}}}}})",
        span.name, rank.value, static_cast<int>(span.lane),
        microseconds(span.begin.time_since_epoch()), microseconds(span.end - span.begin),
        span.layer.value, span.hop);
  }
  replace_file(path, text + "\n]\n");
}

}  // namespace longhaul
