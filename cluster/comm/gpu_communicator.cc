#include "cluster/comm/gpu_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "base/log.h"
#include "cluster/comm/copy_engines.h"
#include "cluster/comm/gpu_copies.h"
#include "cluster/comm/gpu_staging.h"
#include "cluster/comm/nccl_transport.h"
#include "cluster/comm/slot_table.h"
#include "cluster/comm/wait_pace.h"

namespace longhaul {
namespace {

// By how much the news of a failure may come later than the failure's effects.
constexpr std::chrono::seconds kNoticeDelay{1};

// What ranks tell each other when they choose how to exchange.
struct Card {
  std::int64_t nccl_version = 0;  // 0: no NCCL, or no GPU
  std::int64_t has_copy_engines = 0;
  cuda::GpuId gpu;
};

// What the communicators split from one another share on one rank.
struct GpuRank {
  explicit GpuRank(cuda::Stream& compute) : staging(compute) {}
  GpuStaging staging;
  std::unique_ptr<NcclTransport> nccl;  // null: everything is staged
  std::vector<Card> cards;              // [job rank], with `nccl` only
  SumRows sum_rows;
  std::thread::id owner = std::this_thread::get_id();  // of all the communicators
  cuda::Buffer rows;                                   // for sums; kept
};

// Thread: that of the host communicator and of the compute stream.
class GpuCommunicator final : public Communicator {
 public:
  // `owned` is null when somebody else owns `host`.
  GpuCommunicator(Communicator& host, std::unique_ptr<Communicator> owned,
                  std::shared_ptr<GpuRank> gpu)
      : Communicator(group_of(host), family_of(host)),
        owned_(std::move(owned)),
        host_(host),
        gpu_(std::move(gpu)),
        all_use_nccl_(find_whether_all_use_nccl()) {}

  ~GpuCommunicator() override {
    if (!owned_) gpu_->staging.compute().set_wait_limits({});  // which look at this one
    if (!gpu_->nccl) return;
    if (broken()) {
      gpu_->nccl->abort();
    } else {
      gpu_->nccl->forget(host_);
    }
  }

  void prepare_exchanges() override {
    if (all_use_nccl_) join();
  }

  void progress() override {
    guarded([&] {
      advance();
      host_.progress();
      return true;
    });
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    finish_sends();  // peers may wait for them before they come here
    std::unique_ptr<Communicator> part = host_.split(color, key);
    if (!part) return nullptr;
    Communicator& host = *part;
    return std::make_unique<GpuCommunicator>(host, std::move(part), gpu_);
  }

 protected:
  int post_send(int to, Tag tag, std::span<const std::byte> data) override {
    if (is_on_gpu(data)) return posted_.add(gpu_->staging.send(host_, to, tag, data));
    if (auto send = gpu_->staging.send_behind(host_, to, tag, data)) return posted_.add(send);
    return posted_.add(std::make_shared<Transfer>(host_.start_send(to, tag, data)));
  }

  int post_receive(int from, Tag tag, std::span<std::byte> buffer) override {
    if (is_on_gpu(buffer)) return posted_.add(gpu_->staging.receive(host_, from, tag, buffer));
    return posted_.add(std::make_shared<Transfer>(host_.start_receive(from, tag, buffer)));
  }

  std::vector<int> post_exchange(Tag tag, std::span<const Incoming> in,
                                 std::span<const Outgoing> out) override {
    if (all_use_nccl_) join();  // also where this rank has no part, for the others' sake
    const bool is_of_gpus = (!in.empty() && is_on_gpu(in.front().buffer)) ||
                            (!out.empty() && is_on_gpu(out.front().data));
    if (!all_use_nccl_ || !is_of_gpus) return Communicator::post_exchange(tag, in, out);
    std::vector<int> tickets;
    guarded([&] {
      const auto transfer = gpu_->nccl->exchange(host_, describe(tag, in, out), in, out);
      for (std::size_t i = 0; i < in.size() + out.size(); ++i)
        tickets.push_back(posted_.add(transfer));
      return true;
    });
    return tickets;
  }

  bool test_ticket(int ticket) override {
    return guarded([&] {
      advance();
      const Posted posted = posted_[ticket];
      if (!is_over(posted)) return false;
      finish(ticket, posted);
      return true;
    });
  }

  bool wait_ticket(int ticket, Deadline deadline) override {
    return guarded([&] {
      WaitPace pace;
      while (!test_ticket(ticket)) {
        const Posted posted = posted_[ticket];
        Transfer* transfer = transfer_of(posted);
        if (transfer != nullptr && is_idle()) {
          transfer->wait(deadline);  // names what it waited for when it gives up
          finish(ticket, posted);
          return true;
        }
        pause(pace);
        if (Clock::now() < deadline) continue;
        end_transport();
        return false;
      }
      return true;
    });
  }

  void drop_ticket(int ticket) noexcept override {
    const Posted& posted = posted_[ticket];
    if (const auto* send = std::get_if<std::shared_ptr<StagedSend>>(&posted)) {
      gpu_->staging.withdraw(*send);
    }
    if (std::holds_alternative<std::shared_ptr<NcclTransfer>>(posted)) end_transport();
    posted_.release(ticket);
  }

  void tell_peers(const Verdict& verdict) noexcept override {
    host_.abort(verdict.code, verdict.message);
    // Memory that is freed from now on would wait for work that waits for ever.
    if (std::this_thread::get_id() == gpu_->owner) end_transport();
  }

  HostCopy host_copy(std::span<const std::byte> data, Use use) override {
    if (!is_on_gpu(data)) return Communicator::host_copy(data, use);
    const std::shared_ptr<PinnedBlock> block = gpu_->staging.pool().take(data.size());
    if (use == Use::kRead) {
      cuda::Stream& compute = gpu_->staging.compute();
      cuda::queue_copy_to_host(compute, block->data(), data.data(), data.size());
      block->copied.record(compute);
      wait_until("the work of its GPU", [&] { return block->copied.is_done(); });
    }
    return {.bytes = {block->data(), data.size()}, .owner = block};
  }

  void put_back(const HostCopy& copy, std::span<std::byte> data) override {
    if (!copy.owner) return;
    const auto block = std::static_pointer_cast<PinnedBlock>(copy.owner);
    cuda::Stream& compute = gpu_->staging.compute();
    cuda::queue_copy_to_gpu(compute, data.data(), block->data(), data.size());
    block->copied.record(compute);
  }

  bool gather_itself(std::span<const std::byte> mine,
                     std::span<const std::span<std::byte>> slices) override {
    if (!all_use_nccl_ || !is_any_on_gpu(slices)) return false;
    join();
    const std::span<std::byte> own = slices[static_cast<std::size_t>(rank())];
    count_trade(Traffic::kAllGather, std::vector<std::span<const std::byte>>(slices.size(), mine));
    return guarded([&] {
      if (are_of_one_size(slices)) {
        gpu_->nccl->gather(host_, mine, slices.front().data());
        return true;
      }
      if (own.data() != mine.data()) {
        cuda::copy_on_device(gpu_->staging.compute(), own.data(), mine.data(), mine.size());
      }
      gpu_->nccl->trade(host_, std::vector<std::span<const std::byte>>(slices.size(), mine),
                        slices);
      return true;
    });
  }

  // Two ways with the same bits, as in collectives.cc.
  bool sum_itself(std::span<float> values, const AddParts* add) override {
    if (!all_use_nccl_ || !gpu_->sum_rows || !is_on_gpu(std::as_bytes(values))) return false;
    join();
    const auto n_ranks = static_cast<std::size_t>(size());
    const bool direct = n_ranks == 2 || values.size_bytes() <= kDirectReduceBytes;
    const auto slice = [&](std::size_t r) {
      if (direct) return values;
      const std::size_t begin = values.size() * r / n_ranks;
      return values.subspan(begin, values.size() * (r + 1) / n_ranks - begin);
    };
    const std::span<float> mine = slice(static_cast<std::size_t>(rank()));
    const std::size_t row_bytes = mine.size_bytes();
    cuda::Stream& compute = gpu_->staging.compute();
    if (gpu_->rows.bytes() < n_ranks * row_bytes) {
      compute.submit();  // noted work may use the old ones
      gpu_->rows = {};
      gpu_->rows = cuda::Buffer(n_ranks * row_bytes);
    }
    std::vector<std::span<const std::byte>> out;
    std::vector<std::span<std::byte>> in;
    for (std::size_t r = 0; r < n_ranks; ++r) {
      out.push_back(std::as_bytes(slice(r)));
      in.emplace_back(gpu_->rows.data() + r * row_bytes, row_bytes);
    }
    count_trade(Traffic::kAllReduce, out);
    return guarded([&] {
      if (direct) {
        gpu_->nccl->gather(host_, std::as_bytes(values), gpu_->rows.data());
        if (add != nullptr) {
          (*add)({reinterpret_cast<const float*>(gpu_->rows.data()), n_ranks * values.size()});
          return true;
        }
      } else {
        cuda::copy_on_device(compute, in[static_cast<std::size_t>(rank())].data(),
                             std::as_bytes(mine).data(), row_bytes);
        gpu_->nccl->trade(host_, out, in);
      }
      gpu_->sum_rows(compute, mine.data(), reinterpret_cast<const float*>(gpu_->rows.data()),
                     size(), static_cast<std::int64_t>(mine.size()));
      if (direct) return true;
      in.clear();
      for (std::size_t r = 0; r < n_ranks; ++r) in.push_back(std::as_writable_bytes(slice(r)));
      const std::vector<std::span<const std::byte>> sums(n_ranks, std::as_bytes(mine));
      count_trade(Traffic::kAllReduce, sums);
      gpu_->nccl->trade(host_, sums, in);
      if (add != nullptr) (*add)(values);
      return true;
    });
  }

 private:
  using Posted = std::variant<std::shared_ptr<Transfer>, std::shared_ptr<StagedSend>,
                              std::shared_ptr<StagedReceive>, std::shared_ptr<NcclTransfer>>;

  static bool is_on_gpu(std::span<const std::byte> data) {
    return !data.empty() && cuda::is_gpu_memory(data.data());
  }
  static bool is_any_on_gpu(std::span<const std::span<std::byte>> spans) {
    for (const auto span : spans) {
      if (!span.empty()) return is_on_gpu(span);
    }
    return false;
  }

  const Card& card_of(int peer) const {
    return gpu_->cards[static_cast<std::size_t>(job_rank_of(peer))];
  }
  static bool are_of_one_size(std::span<const std::span<std::byte>> slices) {
    return std::ranges::all_of(
        slices, [&](const auto& slice) { return slice.size() == slices.front().size(); });
  }

  // All ranks of this communicator, each on a GPU of its own: NCCL refuses others. In a ring every
  // train passes every link, so one that is staged would hold up the others anyway.
  bool find_whether_all_use_nccl() const {
    if (!gpu_->nccl || size() == 1) return false;
    std::set<cuda::GpuId> gpus;
    for (int r = 0; r < size(); ++r) {
      if (card_of(r).nccl_version != gpu_->nccl->version()) return false;
      gpus.insert(card_of(r).gpu);
    }
    return static_cast<int>(gpus.size()) == size();
  }

  bool all_have_copy_engines() const {
    return std::ranges::all_of(group().members, [this](int job_rank) {
      return gpu_->cards[static_cast<std::size_t>(job_rank)].has_copy_engines != 0;
    });
  }

  void advance() {
    gpu_->staging.start_ready();
    if (gpu_->nccl) gpu_->nccl->poll();
  }
  bool is_idle() const {
    return !gpu_->staging.has_waiting_sends() && (!gpu_->nccl || gpu_->nccl->is_idle());
  }

  // Null: it has not started, or is NCCL's.
  static Transfer* transfer_of(const Posted& posted) {
    if (const auto* plain = std::get_if<std::shared_ptr<Transfer>>(&posted)) return plain->get();
    if (const auto* send = std::get_if<std::shared_ptr<StagedSend>>(&posted)) {
      return (*send)->started ? &(*send)->transfer : nullptr;
    }
    const auto* receive = std::get_if<std::shared_ptr<StagedReceive>>(&posted);
    return receive == nullptr ? nullptr : &(*receive)->transfer;
  }
  static bool is_over(const Posted& posted) {
    if (const auto* direct = std::get_if<std::shared_ptr<NcclTransfer>>(&posted)) {
      return NcclTransport::is_done(**direct);
    }
    Transfer* transfer = transfer_of(posted);
    return transfer != nullptr && transfer->test();
  }

  void finish(int ticket, const Posted& posted) {
    if (const auto* receive = std::get_if<std::shared_ptr<StagedReceive>>(&posted)) {
      gpu_->staging.finish(**receive);
    }
    posted_.release(ticket);
  }

  // Whatever fails breaks the communicator, and nothing may go on on the GPU.
  template <typename Work>
  bool guarded(Work work) {
    try {
      return work();
    } catch (const Error& error) {
      if (!family()->broken) family()->broken = error.what();
      end_transport();
      if (error.code() == ErrorCode::kNccl) look_for_verdict();
      throw;
    }
  }
  // A peer that fails ends its NCCL communicators, which may be seen here before its notice, and
  // says less. Throws kPeerFailed when a notice comes.
  void look_for_verdict() {
    const Deadline deadline = deadline_in(kNoticeDelay);
    while (Clock::now() < deadline) {
      try {
        host_.progress();
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kPeerFailed) throw;  // else: that it is broken, as we know
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void end_transport() noexcept {
    if (gpu_->nccl) gpu_->nccl->abort();
  }

  // Between looks at something that takes a while: lets transfers advance, sees aborts.
  void pause(WaitPace& pace) {
    if (!pace.looks_around()) return;
    host_.progress();
    pace.rest();
  }

  // Blocks until done() is true; lets transfers advance.
  template <typename Done>
  void wait_until(std::string_view what, Done done) {
    const Stopwatch watch;
    const Deadline deadline = deadline_in(default_deadline());
    guarded([&] {
      WaitPace pace;
      while (!done()) {
        advance();
        pause(pace);
        if (Clock::now() < deadline) continue;
        throw Error(ErrorCode::kTimeout,
                    fmt::format("rank {}: waited {:.1f} s for {}, then gave up", job_rank(),
                                watch.seconds(), what));
      }
      return true;
    });
  }

  void finish_sends() {
    wait_until("its sends to begin before it splits", [&] {
      advance();
      return !gpu_->staging.has_waiting_sends();
    });
  }

  // Collective over comm. Makes what NCCL needs, if it has not been made.
  void join() {
    if (gpu_->nccl->has(host_)) return;
    std::array<std::byte, NcclTransport::kIdBytes> id{};
    if (rank() == 0) gpu_->nccl->make_id(id);
    broadcast(id, 0);
    guarded([&] {
      gpu_->nccl->join(host_, id);
      return true;
    });
    wait_until("the other ranks to make an NCCL communicator",
               [&] { return gpu_->nccl->is_joined(host_); });
    if (all_have_copy_engines()) gpu_->nccl->copies()->connect(*this, host_);
  }

  // "rank 1: keys (64 bytes) from rank 0, keys (64 bytes) to rank 2"
  std::string describe(Tag tag, std::span<const Incoming> in, std::span<const Outgoing> out) const {
    std::string text = fmt::format("rank {}:", job_rank());
    const auto add = [&](std::size_t n_bytes, std::string_view direction, int peer) {
      text += fmt::format("{} {} ({} bytes) {} rank {}", text.back() == ':' ? "" : ",",
                          name_of(tag.traffic), n_bytes, direction, job_rank_of(peer));
    };
    for (const Incoming& part : in) add(part.buffer.size(), "from", part.from);
    for (const Outgoing& part : out) add(part.data.size(), "to", part.to);
    return text;
  }

  void count_trade(Traffic traffic, std::span<const std::span<const std::byte>> out) {
    for (std::size_t r = 0; r < out.size(); ++r) {
      if (r == static_cast<std::size_t>(rank())) continue;
      ++sent()[traffic].messages;
      sent()[traffic].bytes += static_cast<std::int64_t>(out[r].size());
    }
  }

  std::unique_ptr<Communicator> owned_;
  Communicator& host_;
  std::shared_ptr<GpuRank> gpu_;
  bool all_use_nccl_;
  SlotTable<Posted> posted_;
};

bool use_copy_engines(NcclTransport& nccl, const CopyEngineConfig& config) {
  std::string why;
  auto copies = CopyEngines::open(config, why);
  if (!copies) {
    LONGHAUL_LOG(kWarning, kComm, "event=no_copy_engines reason=\"{}\"", why);
    return false;
  }
  nccl.use(std::move(copies));
  return true;
}

// Collective over host. This rank's NCCL, and what the others have.
void choose_transport(Communicator& host, const GpuCommunicatorConfig& config, GpuRank* gpu) {
  Card mine;
  std::string why = "this rank has no GPU";
  std::unique_ptr<NcclTransport> nccl;
  if (config.stream != nullptr) {
    nccl = NcclTransport::open(*config.stream, config.nccl_library, why);
  }
  if (nccl) {
    mine.nccl_version = nccl->version();
    mine.gpu = cuda::gpu_id(cuda::current_gpu());
    if (config.transport == GpuTransport::kCopyEnginesWherePossible) {
      mine.has_copy_engines = use_copy_engines(*nccl, config.copy_engines) ? 1 : 0;
    }
  }
  std::vector<Card> cards(static_cast<std::size_t>(host.size()));
  host.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(cards)));
  if (!nccl) {
    LONGHAUL_LOG(kInfo, kComm, "event=staged_transfers reason=\"{}\"", why);
    return;
  }
  int highest = 0;
  for (int r = 0; r < host.size(); ++r) highest = std::max(highest, host.job_rank_of(r));
  gpu->cards.resize(static_cast<std::size_t>(highest) + 1);
  for (int r = 0; r < host.size(); ++r) {
    gpu->cards[static_cast<std::size_t>(host.job_rank_of(r))] = cards[static_cast<std::size_t>(r)];
  }
  gpu->nccl = std::move(nccl);
}

}  // namespace

std::unique_ptr<Communicator> make_gpu_communicator(Communicator& host,
                                                    const GpuCommunicatorConfig& config) {
  std::shared_ptr<GpuRank> gpu;
  if (config.stream != nullptr) {
    gpu = std::make_shared<GpuRank>(*config.stream);
    gpu->sum_rows = config.sum_rows;
  }
  switch (config.transport) {
    case GpuTransport::kStaged:
      break;
    case GpuTransport::kNcclWherePossible:
    case GpuTransport::kCopyEnginesWherePossible:
      choose_transport(host, config, gpu.get());
      break;
  }
  if (!gpu) return nullptr;
  cuda::Stream& compute = gpu->staging.compute();
  auto comm = std::make_unique<GpuCommunicator>(host, nullptr, std::move(gpu));
  compute.set_wait_limits(
      {.most = comm->default_deadline(), .meanwhile = [&comm = *comm] { comm.progress(); }});
  return comm;
}

}  // namespace longhaul
