// Which answer a request to the status server gets, and who gets one.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "tools/status/http_message.h"
#include "tools/status/job_status.h"

namespace longhaul {

// / (the page), /status.json, /metrics and /status.txt?columns=80. Used by one thread.
class StatusRoutes {
 public:
  // With a token every request must have it: "Authorization: Bearer TOKEN", or ?token=TOKEN.
  // Without, requests must name this host as `localhost` or a loopback address: a page of somebody
  // else's, whose name was made to lead here, does not read along.
  StatusRoutes(std::function<JobStatus()> read, std::string token)
      : read_(std::move(read)), token_(std::move(token)) {}

  HttpResponse answer(const HttpRequest& request);

 private:
  std::optional<HttpResponse> refusal(const HttpRequest& request) const;
  const JobStatus& status();

  std::function<JobStatus()> read_;
  std::string token_;
  std::optional<JobStatus> status_;
  Clock::time_point read_at_;
};

// Takes as long whatever differs.
bool equal_tokens(const std::string& a, const std::string& b);
// 64 hexadecimal digits from the system's random source.
std::string random_token();

}  // namespace longhaul
