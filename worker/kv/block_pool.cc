#include "worker/kv/block_pool.h"

#include <algorithm>
#include <cerrno>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "kernels/kv_close.h"

namespace longhaul {
namespace {

constexpr std::size_t kSlabBytes = kHugePageBytes;
// Taking memory from a GPU waits for its work: seldom.
constexpr std::size_t kGpuSlabBytes = std::size_t{64} << 20;
constexpr std::size_t kGpuOpenSlabBytes = std::size_t{16} << 20;

// What a mapping of so many bytes takes: up to the end of a huge page where that is near, since a
// page that is cut is none.
std::size_t whole_huge_pages(std::size_t bytes) {
  const std::size_t whole = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  return whole - bytes <= whole / 64 ? whole : bytes;
}

}  // namespace

// Blocks of one mapping, or of one piece of a GPU's memory. Those from n_touched on were never
// used: in a mapping they are zero.
struct BlockPool::Slab {
  // Null base where there is no room.
  Slab(std::int64_t n, std::size_t block_bytes, Device device)
      : n_blocks(n), counts(static_cast<std::size_t>(n)), uses(static_cast<std::size_t>(n)) {
    const std::size_t bytes = static_cast<std::size_t>(n) * block_bytes;
    if (device == Device::kCuda) {
      take_from_gpu(bytes);
    } else {
      map(bytes);
    }
  }
  ~Slab() {
    if (mapped_bytes > 0) unmap_pages(base, mapped_bytes);
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  void map(std::size_t bytes) {
    mapped_bytes = whole_huge_pages(bytes);
    base = map_pages(mapped_bytes);
  }
  void take_from_gpu(std::size_t bytes) {
    try {
      on_gpu = cuda::Buffer(bytes);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
    }
    base = on_gpu.data();
  }

  std::byte* base = nullptr;
  std::size_t mapped_bytes = 0;
  cuda::Buffer on_gpu;
  std::int64_t n_blocks;
  std::int64_t n_in_use = 0;
  std::int64_t n_touched = 0;
  std::vector<std::uint32_t> counts;  // owners of each block
  std::vector<BlockUse> uses;
  std::vector<std::int64_t> freed;  // used before; the latest, still in the CPU's cache, goes first
};

BlockPool::BlockPool(const KvBlockShape& shape, std::optional<std::size_t> limit_bytes,
                     StreamRef stream)
    : shape_(shape), bytes_(shape.bytes()), limit_bytes_(limit_bytes), stream_(stream) {
  require(shape.block_size > 0 && shape.head_dim > 0 && bytes_ > 0,
          "BlockPool: block_size and head_dim must be positive");
  const bool is_on_gpu = stream.device() == Device::kCuda;
  set_slab_bytes(is_on_gpu ? kGpuSlabBytes : kSlabBytes);
  if (!shape.quantises_groups()) return;
  open_ = std::make_unique<BlockPool>(open_block_shape(shape), std::nullopt, stream);
  open_->has_tables_ = false;
  if (is_on_gpu) open_->set_slab_bytes(kGpuOpenSlabBytes);
}

void BlockPool::set_slab_bytes(std::size_t bytes) {
  blocks_per_slab_ = static_cast<std::int64_t>(std::max<std::size_t>(1, bytes / bytes_));
}

BlockPool::~BlockPool() = default;

std::unique_ptr<DeviceTable> BlockPool::new_table() {
  if (stream_.device() == Device::kCpu || !has_tables_) return nullptr;
  return std::make_unique<DeviceTable>(tables_, stream_, shape_.block_size);
}

std::shared_ptr<const SeenSlots> BlockPool::new_seen_slots(std::vector<SeenBy> of_slots) {
  return std::make_shared<const SeenSlots>(std::move(of_slots), tables_, stream_);
}

std::shared_ptr<PoolFloats> BlockPool::new_floats(std::int64_t n) {
  return std::make_shared<PoolFloats>(n, tables_, stream_);
}

BlockPool::Slab& BlockPool::slab_of(BlockId id) const {
  return *slabs_[static_cast<std::size_t>(id.value / blocks_per_slab_)];
}

std::byte* BlockPool::data(BlockId id) const {
  return slab_of(id).base + static_cast<std::size_t>(slot_of(id)) * bytes_;
}

std::size_t BlockPool::bytes_in_use() const {
  const std::size_t open = open_ == nullptr ? 0 : open_->bytes_in_use();
  return static_cast<std::size_t>(n_blocks_in_use_) * bytes_ + open;
}

std::optional<BlockId> BlockPool::take(BlockUse use, BlockContent content) {
  if (slabs_with_room_.empty() && !add_slab()) return std::nullopt;
  const std::int64_t index = *slabs_with_room_.begin();
  Slab& slab = *slabs_[static_cast<std::size_t>(index)];
  if (index == empty_slab_) empty_slab_ = -1;
  std::int64_t slot = 0;
  bool is_zero = false;
  if (!slab.freed.empty()) {
    slot = slab.freed.back();
    slab.freed.pop_back();
  } else {
    slot = slab.n_touched++;
    is_zero = slab.mapped_bytes > 0;
  }
  if (content == BlockContent::kZeros && !is_zero) {
    set_to_zero(stream_, slab.base + static_cast<std::size_t>(slot) * bytes_, bytes_);
  }
  slab.counts[static_cast<std::size_t>(slot)] = 1;
  slab.uses[static_cast<std::size_t>(slot)] = use;
  ++n_in_use_by_use_[static_cast<std::size_t>(use)];
  if (++slab.n_in_use == slab.n_blocks) slabs_with_room_.erase(index);
  ++n_blocks_in_use_;
  return BlockId{index * blocks_per_slab_ + slot};
}

void BlockPool::copy(BlockId to, BlockId from) const {
  copy_bytes(stream_, data(to), data(from), bytes_);
}

void BlockPool::copy_slots(std::span<const KvCopyItem> items) const {
  kv_copy(stream_, {.shape = shape_, .items = items});
}

void BlockPool::share(BlockId id) { ++slab_of(id).counts[static_cast<std::size_t>(slot_of(id))]; }

bool BlockPool::is_shared(BlockId id) const {
  return slab_of(id).counts[static_cast<std::size_t>(slot_of(id))] > 1;
}

void BlockPool::release(BlockId id) {
  Slab& slab = slab_of(id);
  const std::int64_t slot = slot_of(id);
  std::uint32_t& count = slab.counts[static_cast<std::size_t>(slot)];
  LONGHAUL_ASSERT(count > 0);
  if (--count > 0) return;
  --n_in_use_by_use_[static_cast<std::size_t>(slab.uses[static_cast<std::size_t>(slot)])];
  const std::int64_t index = id.value / blocks_per_slab_;
  slab.freed.push_back(slot);
  slabs_with_room_.insert(index);
  --n_blocks_in_use_;
  if (--slab.n_in_use > 0) return;
  if (empty_slab_ >= 0) {
    free_slab(index);
  } else {
    empty_slab_ = index;
  }
  if (n_blocks_in_use_ == 0 && empty_slab_ >= 0) {
    free_slab(empty_slab_);
    empty_slab_ = -1;
  }
}

bool BlockPool::add_slab() {
  std::int64_t n_blocks = blocks_per_slab_;
  if (limit_bytes_) {
    const auto room = static_cast<std::int64_t>(*limit_bytes_ / bytes_) - n_blocks_reserved_;
    n_blocks = std::min(n_blocks, room);
    if (n_blocks <= 0) return false;
  }
  auto slab = new_slab(n_blocks);
  if (slab == nullptr) return false;
  n_blocks = slab->n_blocks;
  std::int64_t index = static_cast<std::int64_t>(slabs_.size());
  if (free_slab_indices_.empty()) {
    slabs_.push_back(std::move(slab));
  } else {
    index = free_slab_indices_.back();
    free_slab_indices_.pop_back();
    slabs_[static_cast<std::size_t>(index)] = std::move(slab);
  }
  slabs_with_room_.insert(index);
  n_blocks_reserved_ += n_blocks;
  return true;
}

// Null when there is no memory. A GPU's last memory may be less than a whole slab.
std::unique_ptr<BlockPool::Slab> BlockPool::new_slab(std::int64_t n_blocks) const {
  const Device device = stream_.device();
  for (; n_blocks > 0; n_blocks /= 2) {
    auto slab = std::make_unique<Slab>(n_blocks, bytes_, device);
    if (slab->base != nullptr) return slab;
    if (device == Device::kCpu) break;
  }
  return nullptr;
}

void BlockPool::free_slab(std::int64_t index) {
  submit_noted(stream_);  // it may read these blocks
  n_blocks_reserved_ -= slabs_[static_cast<std::size_t>(index)]->n_blocks;
  slabs_with_room_.erase(index);
  slabs_[static_cast<std::size_t>(index)].reset();
  free_slab_indices_.push_back(index);
}

}  // namespace longhaul
