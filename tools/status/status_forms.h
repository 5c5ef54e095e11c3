// A job's status in its forms: JSON for scripts, metrics in Prometheus' text form, text for a
// terminal, HTML for the page. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tools/status/job_status.h"

namespace longhaul {

Json status_json(const JobStatus& status);

// Version 0.0.4 of the text form. Names and meanings: docs/operators.md.
std::string status_metrics(const JobStatus& status);

// Lines of at most `width` columns (at least 60), without control characters.
std::string status_text(const JobStatus& status, std::size_t width);

// What changes on the page; `status_page` is the whole of it. Scripts and styles carry `nonce`.
std::string status_html(const JobStatus& status);
std::string status_page(const JobStatus& status, std::string_view nonce);
// What terminals may show: control characters become '?'.
std::string without_controls(std::string_view text);

// Tokens in a second; 0 while nothing was measured.
double prefill_rate(const RunFigures& run);
double decode_rate(const RunFigures& run);
// Part of the plan's memory for caches that this rank uses; negative: not known.
double kv_usage(const RankNow& rank);
// "step 12, layer 3: computing since 4 s"
std::string doing(const RankNow& rank);

}  // namespace longhaul
