// How a worker and the coordinator prove to each other that they belong to the same job: a random
// secret that was handed out over MPI, HMAC-SHA256 over fresh nonces of both sides, in both
// directions. It authenticates; it does not encrypt.
//
//   worker       -> rank, host, nonce_w
//   coordinator  -> nonce_c, HMAC(secret, "coordinator" nonce_w nonce_c rank)
//   worker       -> HMAC(secret, "worker" nonce_w nonce_c rank)
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace longhaul {

using Secret = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

// From the system's random source.
Secret random_secret();
inline Nonce random_nonce() { return random_secret(); }

enum class Role : std::uint8_t { kCoordinator, kWorker };
Proof make_proof(const Secret& secret, Role role, const Nonce& worker_nonce,
                 const Nonce& coordinator_nonce, std::int64_t rank);
// In constant time.
bool proofs_equal(const Proof& a, const Proof& b);

}  // namespace longhaul
