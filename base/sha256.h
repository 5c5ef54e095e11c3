// SHA-256 as lower-case hexadecimal text, of whole texts, of files and of
// data that arrives in parts.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace longhaul {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void add(std::string_view bytes);
  std::string finish();        // 64 hexadecimal digits; call once, last
  std::string so_far() const;  // the same of what was added by now; more may be added

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_of(std::string_view bytes);
std::string file_sha256(const std::filesystem::path& path);  // throws kIo

}  // namespace longhaul
