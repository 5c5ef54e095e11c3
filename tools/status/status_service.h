// `--status`: the status server of a job, where one was asked for.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "tools/status/http_server.h"
#include "tools/status/job_status.h"

namespace longhaul {

struct StatusConfig {
  std::string address;               // "[ADDRESS:]PORT"; empty: no server
  std::filesystem::path token_file;  // its first line; empty: a random one, where one is needed
};

// The first line of a file that holds a token. Throws kIo, and kInvalidArgument for one that is too
// short to be a secret.
std::string token_from(const std::filesystem::path& file);

// Serves what the board says for as long as it lives; says on stderr where.
class StatusService {
 public:
  // The board must outlive it. Throws kInvalidArgument and kIo.
  StatusService(const StatusConfig& config, StatusBoard& board);

 private:
  std::unique_ptr<HttpServer> server_;
};

}  // namespace longhaul
