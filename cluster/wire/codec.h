// Messages of the control plane as bytes. A frame is a fixed header and a payload:
//
//   magic "LHW1" | version u16 | type u16 | sequence number u64 | payload bytes u32 | CRC-32C of
//   the payload u32 | payload
//
// Numbers are little-endian. Frames are bounded; what does not decode exactly is refused with
// kCorruptData.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cluster/wire/phase.h"
#include "cluster/wire/step.h"

namespace longhaul {

// Numbered because they travel; never renumber.
enum class MessageType : std::uint16_t {
  kHello = 1,      // worker -> coordinator: rank, host, nonce
  kChallenge = 2,  // coordinator -> worker: nonce, proof of knowing the secret
  kProof = 3,      // worker -> coordinator: proof of knowing the secret
  kWelcome = 4,
  kCommand = 10,
  kResult = 11,
  kHeartbeat = 12,
  kAbort = 13,  // coordinator -> worker: leave at once
  kAlive = 14,  // coordinator -> worker: it is there, and what it is doing
  kStop = 15,   // worker -> coordinator: somebody asked this rank to stop the job
  kMayGo = 16,  // coordinator -> worker: the job is over; that the connection ends is no loss
};

// What a rank tells with kHeartbeat.
struct Heartbeat {
  PhaseReport phase;
  std::optional<RankReport> report = {};  // the newest; none before its first step
};

inline constexpr std::size_t kFrameHeaderBytes = 24;
inline constexpr std::size_t kMaxPayloadBytes = std::size_t{256} << 20;
inline constexpr std::size_t kMaxPayloadBytesBeforeWelcome = 4096;

struct FrameHeader {
  MessageType type = MessageType::kHello;
  std::uint64_t sequence = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t checksum = 0;
};

// A whole frame: header and payload. Throws kInvalidArgument for a payload of more than
// kMaxPayloadBytes.
std::vector<std::byte> encode_frame(MessageType type, std::uint64_t sequence,
                                    std::span<const std::byte> payload);
// Checks magic, version, type and size before a byte of the payload is read or memory taken for it;
// throws kCorruptData saying which is wrong.
FrameHeader decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes,
                                std::size_t max_payload_bytes);
// Throws kCorruptData when the payload is not the one that was sent.
void check_payload(const FrameHeader& header, std::span<const std::byte> payload);

// Payloads. What was encoded decodes to the same value. The decoders take bytes from strangers:
// what is cut short, too long or no such message is refused with kCorruptData, and nothing that a
// length in it announces is allocated before as many bytes are there.
std::vector<std::byte> encode(const StepCommand& command);
std::vector<std::byte> encode(const StepResult& result);
std::vector<std::byte> encode(const PhaseReport& phase);
std::vector<std::byte> encode(const Heartbeat& heartbeat);
StepCommand decode_command(std::span<const std::byte> bytes);
StepResult decode_result(std::span<const std::byte> bytes);
PhaseReport decode_phase(std::span<const std::byte> bytes);
Heartbeat decode_heartbeat(std::span<const std::byte> bytes);

}  // namespace longhaul
