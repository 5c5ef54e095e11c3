#include "cluster/wire/report_codec.h"

#include "cluster/wire/codec.h"

namespace longhaul {
namespace {

template <typename T>
void write(ByteWriter& out, const std::vector<Named<T>>& figures) {
  out.number(static_cast<std::uint64_t>(figures.size()));
  for (const Named<T>& figure : figures) {
    out.text(figure.name);
    out.number(figure.value);
  }
}

template <typename T>
std::vector<Named<T>> read_named(ByteReader& in) {
  std::vector<Named<T>> figures(in.count(sizeof(std::uint64_t) + sizeof(T)));
  for (Named<T>& figure : figures) {
    figure.name = in.text();
    figure.value = in.number<T>();
  }
  return figures;
}

}  // namespace

void write(ByteWriter& out, const RankReport& report) {
  out.number(report.rank.value);
  write(out, report.phase_seconds);
  out.number(report.ring_wait_seconds);
  write(out, report.sent_bytes);
  for (const std::int64_t bytes :
       {report.weight_bytes, report.kv_retrieval_bytes, report.kv_streaming_bytes,
        report.kv_retrieval_peak_bytes, report.kv_streaming_peak_bytes, report.kv_peak_bytes,
        report.buffer_bytes}) {
    out.number(bytes);
  }
}

RankReport read_report(ByteReader& in) {
  RankReport report;
  report.rank = {in.number<std::int64_t>()};
  report.phase_seconds = read_named<double>(in);
  report.ring_wait_seconds = in.number<double>();
  report.sent_bytes = read_named<std::int64_t>(in);
  for (std::int64_t* bytes :
       {&report.weight_bytes, &report.kv_retrieval_bytes, &report.kv_streaming_bytes,
        &report.kv_retrieval_peak_bytes, &report.kv_streaming_peak_bytes, &report.kv_peak_bytes,
        &report.buffer_bytes}) {
    *bytes = in.number<std::int64_t>();
  }
  return report;
}

void write(ByteWriter& out, const PhaseReport& phase) {
  out.number(static_cast<std::uint8_t>(phase.activity));
  for (const std::int64_t value :
       {phase.step, phase.layer.value, phase.hop, phase.peer.value, phase.since_ms}) {
    out.number(value);
  }
}

PhaseReport read_phase(ByteReader& in) {
  PhaseReport phase;
  const auto activity = in.number<std::uint8_t>();
  if (activity > static_cast<std::uint8_t>(Activity::kSaving)) in.fail("unknown activity");
  phase.activity = static_cast<Activity>(activity);
  phase.step = in.number<std::int64_t>();
  phase.layer = {in.number<std::int64_t>()};
  phase.hop = in.number<std::int64_t>();
  phase.peer = {in.number<std::int64_t>()};
  phase.since_ms = in.number<std::int64_t>();
  return phase;
}

std::vector<std::byte> encode(const PhaseReport& phase) {
  ByteWriter out;
  write(out, phase);
  return out.take();
}

PhaseReport decode_phase(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "sign of life");
  const PhaseReport phase = read_phase(in);
  in.finish();
  return phase;
}

std::vector<std::byte> encode(const Heartbeat& heartbeat) {
  ByteWriter out;
  write(out, heartbeat.phase);
  out.number(static_cast<std::uint8_t>(heartbeat.report ? 1 : 0));
  if (heartbeat.report) write(out, *heartbeat.report);
  return out.take();
}

Heartbeat decode_heartbeat(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "heartbeat");
  Heartbeat heartbeat{.phase = read_phase(in)};
  const auto has_report = in.number<std::uint8_t>();
  if (has_report > 1) in.fail("a mark that is neither 0 nor 1");
  if (has_report == 1) heartbeat.report = read_report(in);
  in.finish();
  return heartbeat;
}

}  // namespace longhaul
