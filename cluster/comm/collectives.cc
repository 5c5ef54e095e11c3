// The collectives, over point-to-point transfers. Most are one pairwise exchange: at distance d,
// every rank sends to rank + d and receives from rank - d.
//
//   4 ranks, distance 1:  0 -> 1 -> 2 -> 3 -> 0      distance 2:  0 <-> 2, 1 <-> 3      ...
//
// That is one round of latency for small data, spreads large data evenly over the links, and a
// rank that is missing is the very one that the others name when their deadline passes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "cluster/comm/communicator.h"

namespace longhaul {
namespace {

// Pairs in flight at once: enough to hide latency, few enough not to flood one receiver.
constexpr int kPairsInFlight = 16;

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};

struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b || b != b ? b : a;  // b != b: NaN wins
  }
};

void copy_bytes(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
std::span<std::byte> writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Cuts [size * part] into spans of `part` bytes.
std::vector<std::span<std::byte>> equal_slices(std::span<std::byte> all, int size,
                                               std::size_t part) {
  std::vector<std::span<std::byte>> slices;
  for (int r = 0; r < size; ++r) {
    slices.push_back(all.subspan(static_cast<std::size_t>(r) * part, part));
  }
  return slices;
}

}  // namespace

void Communicator::exchange(Traffic traffic, std::span<const std::span<const std::byte>> out,
                            std::span<const std::span<std::byte>> in) {
  throw_if_broken();
  const Deadline deadline = default_deadline_from_now();
  const std::size_t self = static_cast<std::size_t>(rank());
  copy_bytes(out[self], in[self]);
  std::vector<RingTransfer> pairs;
  for (int first = 1; first < size(); first += kPairsInFlight) {
    const int end = std::min(size(), first + kPairsInFlight);
    pairs.clear();
    for (int d = first; d < end; ++d) {
      const int from = (rank() + size() - d) % size();
      const int to = (rank() + d) % size();
      RingTransfer& pair = pairs.emplace_back();
      pair.receive = start_receive(from, {traffic}, in[static_cast<std::size_t>(from)]);
      pair.send = start_send(to, {traffic}, out[static_cast<std::size_t>(to)]);
    }
    for (RingTransfer& pair : pairs) pair.receive.wait(deadline);
    for (RingTransfer& pair : pairs) pair.send.wait(deadline);
  }
}

void Communicator::gather_slices(Traffic traffic, std::span<const std::byte> mine,
                                 std::span<const std::span<std::byte>> slices) {
  const std::vector<std::span<const std::byte>> out(static_cast<std::size_t>(size()), mine);
  exchange(traffic, out, slices);
}

void Communicator::barrier() {
  const std::vector<std::span<std::byte>> nothing(static_cast<std::size_t>(size()));
  gather_slices(Traffic::kBarrier, {}, nothing);
}

// Seen from the root as rank 0, rank v receives from v without its lowest set bit, and then sends
// to v + every lower power of two:   0 -> 4, 2, 1    4 -> 6, 5    6 -> 7    2 -> 3
void Communicator::broadcast_as(Traffic traffic, std::span<std::byte> data, int root) {
  require(root >= 0 && root < size(), "broadcast: the root is not a rank of the communicator");
  throw_if_broken();
  const Deadline deadline = default_deadline_from_now();
  const int virtual_rank = (rank() + size() - root) % size();
  int bit = 1;
  while (bit < size() && (virtual_rank & bit) == 0) bit <<= 1;
  if (virtual_rank != 0) {
    start_receive((virtual_rank - bit + root) % size(), {traffic}, data).wait(deadline);
  }
  std::vector<Transfer> sends;
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (virtual_rank + bit >= size()) continue;
    sends.push_back(start_send((virtual_rank + bit + root) % size(), {traffic}, data));
  }
  for (Transfer& send : sends) send.wait(deadline);
}

void Communicator::broadcast(std::span<std::byte> data, int root) {
  const HostCopy host = host_copy(data, rank() == root ? Use::kRead : Use::kWrite);
  broadcast_as(Traffic::kBroadcast, host.bytes, root);
  if (rank() != root) put_back(host, data);
}

std::string Communicator::broadcast_text(std::string text, int root) {
  std::int64_t n_bytes = static_cast<std::int64_t>(text.size());
  broadcast(writable_bytes_of(n_bytes), root);
  text.resize(static_cast<std::size_t>(n_bytes));
  if (n_bytes > 0) broadcast(std::as_writable_bytes(std::span(text)), root);
  return text;
}

void Communicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  require(all.size() == mine.size() * static_cast<std::size_t>(size()),
          "all_gather: `all` must hold one part for each rank");
  throw_if_broken();
  if (gather_itself(mine, equal_slices(all, size(), mine.size()))) return;
  const HostCopy in = host_copy(mine, Use::kRead);
  const HostCopy out = host_copy(all, Use::kWrite);
  gather_slices(Traffic::kAllGather, in.bytes, equal_slices(out.bytes, size(), mine.size()));
  put_back(out, all);
}

void Communicator::all_gather(std::span<const std::byte> mine, std::span<const std::size_t> sizes,
                              std::span<std::byte> all) {
  require(sizes.size() == static_cast<std::size_t>(size()), "all_gather: one size for each rank");
  require(mine.size() == sizes[static_cast<std::size_t>(rank())],
          "all_gather: this rank's data differs from its entry in `sizes`");
  const auto slices_of = [&](std::span<std::byte> bytes) {
    std::vector<std::span<std::byte>> slices;
    std::size_t offset = 0;
    for (const std::size_t n : sizes) {
      require(n <= all.size() - offset, "all_gather: `all` is smaller than the sum of `sizes`");
      slices.push_back(bytes.subspan(offset, n));
      offset += n;
    }
    require(offset == all.size(), "all_gather: `all` is larger than the sum of `sizes`");
    return slices;
  };
  throw_if_broken();
  if (gather_itself(mine, slices_of(all))) return;
  const HostCopy in = host_copy(mine, Use::kRead);
  const HostCopy out = host_copy(all, Use::kWrite);
  gather_slices(Traffic::kAllGather, in.bytes, slices_of(out.bytes));
  put_back(out, all);
}

// The first round says how long each rank's data is, and brings what fits beside that.
std::vector<std::vector<std::byte>> Communicator::all_gather_varying(
    std::span<const std::byte> mine) {
  struct Beginning {
    std::uint64_t n_bytes;
    std::array<std::byte, kVaryingFirstBytes> first;
  };
  const auto n_first = [](std::size_t n) { return std::min(n, kVaryingFirstBytes); };
  const HostCopy host = host_copy(mine, Use::kRead);
  Beginning own{.n_bytes = mine.size(), .first = {}};
  std::copy_n(host.bytes.begin(), n_first(mine.size()), own.first.begin());
  std::vector<Beginning> beginnings(static_cast<std::size_t>(size()));
  all_gather(bytes_of(own), std::as_writable_bytes(std::span(beginnings)));

  std::vector<std::vector<std::byte>> all;
  std::vector<std::span<std::byte>> rest;
  bool any_rest = false;
  for (const Beginning& begin : beginnings) {
    const std::size_t n = begin.n_bytes;
    std::vector<std::byte>& data = all.emplace_back(n);
    std::copy_n(begin.first.begin(), n_first(n), data.begin());
    rest.push_back(std::span(data).subspan(n_first(n)));
    any_rest = any_rest || !rest.back().empty();
  }
  if (any_rest) gather_slices(Traffic::kAllGather, host.bytes.subspan(n_first(mine.size())), rest);
  return all;
}

// rows: [size, values.size()]; combines them by rank, whatever rank this is.
template <typename T, typename Combine>
void Communicator::reduce_rows(std::span<T> values, std::span<const T> rows, Combine combine) {
  const std::size_t n = values.size();
  std::copy_n(rows.begin(), n, values.begin());
  for (std::size_t r = 1; r < static_cast<std::size_t>(size()); ++r) {
    const T* row = rows.data() + r * n;
    T* result = values.data();
    for (std::size_t i = 0; i < n; ++i) result[i] = combine(result[i], row[i]);
  }
}

// Two ways with the same bits. Small: all values to all ranks, each reduces them (one round).
// Large: rank r reduces the r-th slice, then the slices are gathered.
template <typename T, typename Combine>
void Communicator::all_reduce_on_host(std::span<T> values, Combine combine) {
  const std::size_t n_ranks = static_cast<std::size_t>(size());
  const std::size_t self = static_cast<std::size_t>(rank());
  const bool direct = n_ranks == 2 || values.size_bytes() <= kDirectReduceBytes;
  const auto slice = [&](std::size_t r) {
    if (direct) return values;
    const std::size_t begin = values.size() * r / n_ranks;
    return values.subspan(begin, values.size() * (r + 1) / n_ranks - begin);
  };
  const std::span<T> mine = slice(self);
  const std::size_t needed = n_ranks * mine.size_bytes();
  if (scratch_.size() < needed) scratch_.resize(needed);
  // operator new aligns for every T here, and all rows are whole numbers of T.
  const std::span<T> rows(reinterpret_cast<T*>(scratch_.data()), n_ranks * mine.size());

  std::vector<std::span<const std::byte>> out;
  for (std::size_t r = 0; r < n_ranks; ++r) out.push_back(std::as_bytes(slice(r)));
  exchange(Traffic::kAllReduce, out,
           equal_slices(std::as_writable_bytes(rows), size(), mine.size_bytes()));
  reduce_rows<T>(mine, rows, combine);
  if (direct) return;

  std::vector<std::span<std::byte>> slices;
  for (std::size_t r = 0; r < n_ranks; ++r) slices.push_back(std::as_writable_bytes(slice(r)));
  gather_slices(Traffic::kAllReduce, std::as_bytes(mine), slices);
}

template <typename T, typename Combine>
void Communicator::all_reduce(std::span<T> values, Combine combine) {
  throw_if_broken();
  if (size() == 1 || values.empty()) return;
  const std::span<std::byte> bytes = std::as_writable_bytes(values);
  const HostCopy host = host_copy(bytes, Use::kRead);
  all_reduce_on_host(std::span(reinterpret_cast<T*>(host.bytes.data()), values.size()), combine);
  put_back(host, bytes);
}

void Communicator::all_reduce_sum(std::span<float> values) {
  throw_if_broken();
  if (size() == 1 || values.empty() || sum_itself(values, nullptr)) return;
  all_reduce(values, Sum{});
}
void Communicator::all_reduce_sum(std::span<float> values, const AddParts& add) {
  throw_if_broken();
  if (size() > 1 && !values.empty()) {
    if (sum_itself(values, &add)) return;
    all_reduce(values, Sum{});
  }
  add(values);
}
void Communicator::all_reduce_sum(std::span<double> values) { all_reduce(values, Sum{}); }
void Communicator::all_reduce_sum(std::span<std::int64_t> values) { all_reduce(values, Sum{}); }
void Communicator::all_reduce_max(std::span<float> values) { all_reduce(values, Max{}); }
void Communicator::all_reduce_max(std::span<double> values) { all_reduce(values, Max{}); }
void Communicator::all_reduce_max(std::span<std::int64_t> values) { all_reduce(values, Max{}); }

Verdict Communicator::agree(const Verdict& mine) {
  struct Header {
    std::int32_t ok;
    std::int32_t rank;
    std::int32_t code;
    std::int32_t n_bytes;
  };
  constexpr std::size_t kLongestMessage = 64 * 1024;
  std::string message = mine.message.substr(0, kLongestMessage);
  const Header header{.ok = mine.ok ? 1 : 0,
                      .rank = mine.rank,
                      .code = static_cast<std::int32_t>(mine.code),
                      .n_bytes = static_cast<std::int32_t>(message.size())};
  std::vector<Header> all(static_cast<std::size_t>(size()));
  gather_slices(Traffic::kAgree, bytes_of(header),
                equal_slices(std::as_writable_bytes(std::span(all)), size(), sizeof(Header)));
  const auto first =
      std::find_if(all.begin(), all.end(), [](const Header& h) { return h.ok == 0; });
  if (first == all.end()) return {};
  message.resize(static_cast<std::size_t>(first->n_bytes));
  broadcast_as(Traffic::kAgree, std::as_writable_bytes(std::span(message)),
               static_cast<int>(first - all.begin()));
  return failed(first->rank, error_code_from_wire(first->code), message);
}

std::optional<Group> Communicator::split_group(int color, int key) {
  struct Entry {
    std::int32_t color;
    std::int32_t key;
    std::int32_t next_context;
  };
  const Entry mine{.color = color, .key = key, .next_context = family_->next_context};
  std::vector<Entry> all(static_cast<std::size_t>(size()));
  gather_slices(Traffic::kSplit, bytes_of(mine),
                equal_slices(std::as_writable_bytes(std::span(all)), size(), sizeof(Entry)));
  // A context that none of these ranks has used; groups of one split do not share ranks, so they
  // may share it.
  Group group;
  for (const Entry& entry : all) group.context = std::max(group.context, entry.next_context);
  family_->next_context = group.context + 1;
  if (color < 0) return std::nullopt;
  std::vector<int> chosen;
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<std::size_t>(r)].color == color) chosen.push_back(r);
  }
  std::stable_sort(chosen.begin(), chosen.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  for (const int r : chosen) {
    if (r == rank()) group.rank = static_cast<int>(group.members.size());
    group.members.push_back(job_rank_of(r));
  }
  return group;
}

}  // namespace longhaul
