#include "cluster/wire/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <string_view>
#include <vector>

#include "base/error.h"

namespace longhaul {
namespace {

template <typename T>
void append(std::vector<unsigned char>& out, const T& bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  out.insert(out.end(), data, data + bytes.size());
}

}  // namespace

Secret random_secret() {
  Secret secret;
  if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    throw_errno("cannot read", "the system's random source");
  }
  return secret;
}

Proof make_proof(const Secret& secret, Role role, const Nonce& worker_nonce,
                 const Nonce& coordinator_nonce, std::int64_t rank) {
  std::vector<unsigned char> text;
  append(text,
         role == Role::kCoordinator ? std::string_view("coordinator") : std::string_view("worker"));
  append(text, worker_nonce);
  append(text, coordinator_nonce);
  const auto* rank_bytes = reinterpret_cast<const unsigned char*>(&rank);
  text.insert(text.end(), rank_bytes, rank_bytes + sizeof rank);
  Proof proof;
  unsigned int n = 0;
  const auto* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), text.data(),
                          text.size(), reinterpret_cast<unsigned char*>(proof.data()), &n);
  if (done == nullptr || n != proof.size()) throw Error(ErrorCode::kInternal, "HMAC-SHA256 failed");
  return proof;
}

bool proofs_equal(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace longhaul
