#include "partition/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "base/sizes.h"
#include "model/heads/kept_blocks.h"
#include "partition/cost_model.h"
#include "partition/memory_model.h"
#include "partition/plan_json.h"
#include "partition/ring_bytes.h"

namespace longhaul {
namespace {

constexpr std::size_t kMostRows = 48;

using Text = fmt::memory_buffer;

template <typename... Args>
void line(Text& text, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
  text.push_back('\n');
}

std::string plural(std::int64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string duration(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string range(std::int64_t first, std::int64_t last) {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

// "41.7M": K, M, G are powers of 1024 here as on the command line.
std::string short_size(std::int64_t bytes) {
  std::string text = format_byte_size(bytes);
  for (const std::string_view unit : {" B", "iB", " "}) {
    if (const std::size_t at = text.find(unit); at != std::string::npos)
      text.erase(at, unit.size());
  }
  return text;
}

using Cells = std::vector<std::string>;

// One line of the table of ranks; equal ones of a stage in a row become one.
struct Row {
  Rank first;
  Rank last;
  Cells cells;
};

// Columns are as wide as what is in them. Words stand left, numbers right.
void print_line(Text& text, const Cells& cells, const std::vector<std::size_t>& widths,
                std::size_t n_words) {
  std::string out = " ";
  for (std::size_t c = 0; c < cells.size(); ++c)
    out += c < n_words ? fmt::format(" {:<{}}", cells[c], widths[c])
                       : fmt::format(" {:>{}}", cells[c], widths[c]);
  line(text, "{}", out);
}

// The first `n_words` columns hold words; that of the ranks comes before the cells.
void print_table(Text& text, Cells header, std::vector<Row> rows, std::size_t n_words) {
  const std::size_t n_more = rows.size() > kMostRows + 1 ? rows.size() - kMostRows : 0;
  rows.erase(rows.end() - static_cast<std::ptrdiff_t>(n_more), rows.end());
  header.insert(header.begin(), "rank");
  for (Row& row : rows) row.cells.insert(row.cells.begin(), range(row.first.value, row.last.value));
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < header.size(); ++c) {
    widths.push_back(header[c].size());
    for (const Row& row : rows) widths[c] = std::max(widths[c], row.cells[c].size());
  }
  print_line(text, header, widths, n_words + 1);
  for (const Row& row : rows) print_line(text, row.cells, widths, n_words + 1);
  if (n_more > 0) line(text, "  ... {} more lines; --json has all", n_more);
}

void add_row(std::vector<Row>& rows, Rank rank, Cells cells) {
  if (!rows.empty() && rows.back().last.value + 1 == rank.value && rows.back().cells == cells) {
    rows.back().last = rank;
  } else {
    rows.push_back({rank, rank, std::move(cells)});
  }
}

const Cells kByteColumns = {"weights", "KV retr.", "KV strm.", "activ.", "ring", "free"};

void add_bytes(Cells& cells, const RankBytes& bytes) {
  for (const std::int64_t n :
       {bytes.weights, bytes.kv_retrieval, bytes.kv_streaming, bytes.activations,
        bytes.ring_buffers + bytes.transfers, bytes.free()})
    cells.push_back(short_size(n));
}

void explain_ranks(Text& text, const Plan& plan, const ClusterSpec& cluster,
                   const IndexedVector<Rank, RankBytes>& bytes,
                   const IndexedVector<Rank, double>& bytes_read) {
  line(text, "Ranks: what is in memory, and what a token step of decoding reads from it");
  const bool has_stages = plan.replicas.size() > 1 || plan.replicas.front().stages.size() > 1;
  const bool has_gpus = cluster.has_gpus();
  Cells header;
  if (has_gpus) header.emplace_back("device");
  if (has_stages) header.emplace_back("stage");
  header.emplace_back("layers");
  const std::size_t n_words = header.size();
  header.emplace_back("tokens");
  header.insert(header.end(), kByteColumns.begin(), kByteColumns.end());
  header.emplace_back("decode");
  std::vector<Row> rows;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    for (std::size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
      const Stage& stage = plan.replicas[r].stages[s];
      for (const RingPos i : stage.ring.ids()) {
        const Rank rank = stage.ring[i];
        const double share = 100 * static_cast<double>(stage.token_share[i]) /
                             static_cast<double>(Stage::kTokenShareTotal);
        Cells cells;
        if (has_gpus) cells.push_back(device_name(cluster.rank(rank)));
        if (has_stages)
          cells.push_back(plan.replicas.size() == 1 ? std::to_string(s)
                                                    : fmt::format("{}.{}", r, s));
        cells.push_back(range(stage.layers.begin, stage.layers.end - 1));
        cells.push_back(fmt::format("{:.3g}%", share));
        add_bytes(cells, bytes[rank]);
        cells.push_back(short_size(static_cast<std::int64_t>(bytes_read[rank])));
        add_row(rows, rank, std::move(cells));
      }
    }
  }
  print_table(text, std::move(header), std::move(rows), n_words);
}

Extent last_chunk(const Plan& plan, const Workload& workload) {
  const std::int64_t begin =
      (std::max<std::int64_t>(1, workload.document_tokens) - 1) / plan.chunk_len * plan.chunk_len;
  return {begin, begin + plan.chunk_len};
}

// Of the slowest stage.
double last_chunk_seconds(const Plan& plan, const ModelSpec& spec, const ClusterSpec& cluster,
                          const Workload& workload) {
  double seconds = 0;
  for (const Stage& stage : plan.replicas.front().stages) {
    const StageCost cost(plan, stage, spec, cluster);
    Extent tokens = last_chunk(plan, workload);
    tokens.end = std::max(tokens.begin, std::min(tokens.end, workload.document_tokens));
    seconds = std::max(seconds, cost.prefill(tokens).total_s());
  }
  return seconds;
}

void explain_times(Text& text, const Plan& plan, const ModelSpec& spec, const ClusterSpec& cluster,
                   const Workload& workload, const DocumentCost& document,
                   const DecodeCost& decode) {
  line(text, "Predicted times, of one replica{}",
       cluster.speeds_known ? "" : " (speeds are assumed: compare, do not trust)");
  ChunkCost sum;
  for (const ChunkCost& stage : document.stages) sum += stage;
  if (document.n_chunks > 0) {
    const double all = std::max(1e-30, sum.total_s());
    line(text, "  reading {:<22} {:>10}  in {}", plural(workload.document_tokens, "token"),
         duration(document.seconds), plural(document.n_chunks, "chunk"));
    const double least = arithmetic_seconds(plan.heads, plan.replicas.front(), spec, cluster,
                                            workload.document_tokens);
    line(text, "    no plan takes less than {:<6} {:>8}  arithmetic shared perfectly: {:.0f}%", "",
         duration(least), 100 * least / std::max(1e-30, document.seconds));
    line(text, "    of the work: {:.0f}% matrices, {:.0f}% streaming heads,",
         100 * sum.linear_s / all, 100 * sum.streaming_s / all);
    line(text, "    {:.0f}% retrieval heads in the chunk, {:.0f}% over the history, where keys",
         100 * sum.chunk_s / all, 100 * sum.history_s / all);
    line(text, "    travel in {} and queries in {} of the layers' chunks", sum.n_layers_keys_travel,
         sum.n_layers_queries_travel);
    if (sum.choosing_s > 0)
      line(text, "    {:.0f}% scores of keys, which tokens are chosen by",
           100 * sum.choosing_s / all);
  }
  line(text, "  one token for {:<16} {:>10}  memory {}, network {}",
       plural(workload.n_sequences, "request"), duration(decode.seconds), duration(decode.read_s),
       duration(decode.wire_s));
  constexpr double kLongChunk = 60;
  if (const double last = last_chunk_seconds(plan, spec, cluster, workload); last > kLongChunk) {
    line(text, "  last chunk {}: stops and checkpoints come between chunks (--chunk-len)",
         duration(last));
  }
  if (workload.document_tokens + workload.tail_tokens > spec.max_seq_len) {
    line(text, "  note: the model's own limit is {} tokens (max_position_embeddings)",
         spec.max_seq_len);
  }
  if (plan.replicas.size() > 1) {
    line(text, "  {} replicas read as many documents at a time", plan.replicas.size());
  }
}

void explain_traffic(Text& text, const Plan& plan, const ModelSpec& spec,
                     const ClusterSpec& cluster, const Workload& workload) {
  line(text, "Bytes on the wire, per rank: the longest document's last chunk, one decode step");
  const Extent tokens = last_chunk(plan, workload);
  const auto& stages = plan.replicas.front().stages;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    const auto n_ranks = static_cast<std::int64_t>(stage.ring.size());
    const StageCost cost(plan, stage, spec, cluster);
    ChunkTraffic sum;
    std::int64_t history = 0;
    std::int64_t decode = 0;
    for (const LayerId layer : stage.layer_ids()) {
      const ChunkTraffic traffic = chunk_traffic(plan, stage, spec, layer, tokens);
      sum.chunk_keys += traffic.chunk_keys;
      sum.windows += traffic.windows;
      sum.open_blocks += traffic.open_blocks;
      history += cost.history(layer, tokens).cheaper() == HistoryMode::kKeysTravel
                     ? traffic.history_keys
                     : traffic.history_queries;
      decode +=
          decode_traffic(stage, spec, layer, workload.n_sequences, workload.weights(spec)).total;
    }
    const std::string open = plan.kv.has_open_blocks()
                                 ? fmt::format(", open {}", short_size(sum.open_blocks / n_ranks))
                                 : "";
    line(text, "  stage {:<3} own keys {}, history {}, windows {}{}; decode {}", s,
         short_size(sum.chunk_keys / n_ranks), short_size(history / n_ranks),
         short_size(sum.windows / n_ranks), open, short_size(decode / n_ranks));
  }
}

// ", the others 4 + 1020 tokens"; nothing where all heads keep everything.
std::string windows_of(const HeadTable& heads) {
  std::string text;
  for (const KeyWindow& window : heads.windows()) {
    text += fmt::format("{} {} + {}", text.empty() ? ", the others" : " or", window.sink,
                        window.recent);
  }
  return text.empty() ? text : text + " tokens";
}

}  // namespace

std::string explain_links(const ClusterSpec& cluster) {
  const auto host = [](const RankSpec& rank) { return rank.host; };
  const auto& ranks = cluster.ranks;
  if (std::all_of(ranks.begin(), ranks.end(),
                  [&](const RankSpec& rank) { return host(rank) == host(ranks.front()); })) {
    return "";
  }
  const auto figures = [](double gb_per_s, double latency_us) {
    return fmt::format("{:.3g} GB/s, {:.3g} ms", gb_per_s, latency_us / 1e3);
  };
  Text text;
  const LinkSpec& link = cluster.link;
  line(text, "  links between hosts {}",
       figures(link.between_hosts_gb_per_s, link.between_hosts_latency_us));
  const auto slowest = std::min_element(
      cluster.host_links.begin(), cluster.host_links.end(),
      [](const HostLink& a, const HostLink& b) { return a.gb_per_s < b.gb_per_s; });
  if (slowest != cluster.host_links.end() && slowest->gb_per_s < link.between_hosts_gb_per_s) {
    line(text, "  the slowest of others, {} - {}: {}", slowest->host_a, slowest->host_b,
         figures(slowest->gb_per_s, slowest->latency_us));
  }
  return fmt::to_string(text);
}

std::string explain(const Plan& plan, const ModelSpec& spec, const ClusterSpec& cluster,
                    const Workload& workload) {
  Text text;
  line(text, "Plan {}: {}, {} each, {} in all", plan_hash(plan),
       plural(static_cast<std::int64_t>(plan.replicas.size()), "replica"),
       plural(static_cast<std::int64_t>(plan.replicas.front().stages.size()), "stage"),
       plural(cluster.n_ranks(), "rank"));
  line(text, "  model: {}, {} layers", spec.model_type, spec.n_layers);
  line(text, "  {} of {} KV heads keep everything{}", plan.heads.count(HeadKind::kRetrieval),
       plan.heads.n_layers() * plan.heads.n_kv_heads(), windows_of(plan.heads));
  line(text, "  documents of {} tokens, {} of {} in flight, chunks of {}", workload.document_tokens,
       plural(workload.n_sequences, "request"), workload.tail_tokens, plan.chunk_len);
  line(text, "  weights {}, K {}, V {}, blocks of {} tokens, {:.3g}% of memory left alone",
       name_of(workload.weights(spec)), name_of(plan.kv.k_type), name_of(plan.kv.v_type),
       plan.kv.block_size, 100 * cluster.headroom);
  const std::string links = explain_links(cluster);
  text.append(links.data(), links.data() + links.size());
  IndexedVector<Rank, double> bytes_read(cluster.ranks.size(), 0.0);
  DecodeCost first;
  const std::int64_t n_tokens = workload.document_tokens + workload.tail_tokens;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    DecodeCost cost = decode_step(plan, plan.replicas[r], spec, cluster, workload,
                                  workload.n_sequences, n_tokens);
    for (const Rank rank : bytes_read.ids()) bytes_read[rank] += cost.bytes_read[rank];
    if (r == 0) first = std::move(cost);
  }
  explain_ranks(text, plan, cluster, memory_of(plan, spec, cluster, workload), bytes_read);
  explain_times(
      text, plan, spec, cluster, workload,
      prefill_document(plan, plan.replicas.front(), spec, cluster, workload.document_tokens),
      first);
  explain_traffic(text, plan, spec, cluster, workload);
  return fmt::to_string(text);
}

std::string explain(const NotFitting& refusal, const ClusterSpec& cluster) {
  Text text;
  if (refusal.missing_bytes > 0) {
    line(text, "It does not fit: {} are missing over all ranks, at the least.",
         format_byte_size(refusal.missing_bytes));
  } else {
    line(text, "It does not fit: the room left is in pieces too small for what remains.");
  }
  const bool has_gpus = cluster.has_gpus();
  Cells header;
  if (has_gpus) header.emplace_back("device");
  const std::size_t n_words = header.size();
  header.emplace_back("memory");
  header.insert(header.end(), kByteColumns.begin(), kByteColumns.end());
  std::vector<Row> rows;
  for (const Rank rank : refusal.bytes.ids()) {
    Cells cells;
    if (has_gpus) cells.push_back(device_name(cluster.rank(rank)));
    cells.push_back(short_size(refusal.bytes[rank].limit));
    add_bytes(cells, refusal.bytes[rank]);
    add_row(rows, rank, std::move(cells));
  }
  print_table(text, std::move(header), std::move(rows), n_words);
  line(text, "  {:.3g}% of each memory is left alone (headroom)", 100 * cluster.headroom);
  if (refusal.changes.empty()) {
    line(text, "No single change makes it fit.");
  } else {
    line(text, "Any one of these makes it fit:");
    for (const std::string& change : refusal.changes) line(text, "  - {}", change);
  }
  return fmt::to_string(text);
}

}  // namespace longhaul
