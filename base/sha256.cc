#include "base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <iterator>

#include "base/error.h"
#include "base/file.h"

namespace longhaul {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

namespace {

void check_sha256(bool ok) {
  if (!ok) throw Error(ErrorCode::kInternal, "OpenSSL cannot compute SHA-256");
}

}  // namespace

Sha256::Sha256() : state_(std::make_unique<State>()) {
  check_sha256(state_->context != nullptr &&
               EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::add(std::string_view bytes) {
  check_sha256(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::finish() {
  std::array<unsigned char, 32> digest{};
  check_sha256(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) == 1);
  std::string text;
  for (const unsigned char byte : digest) fmt::format_to(std::back_inserter(text), "{:02x}", byte);
  return text;
}

std::string Sha256::so_far() const {
  Sha256 copy;
  check_sha256(EVP_MD_CTX_copy_ex(copy.state_->context, state_->context) == 1);
  return copy.finish();
}

std::string sha256_of(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

std::string file_sha256(const std::filesystem::path& path) {
  return sha256_of(MappedFile(path).text());
}

}  // namespace longhaul
