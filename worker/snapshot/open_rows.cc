#include "worker/snapshot/open_rows.h"

#include <fmt/format.h>

#include <vector>

#include "base/device/device_memory.h"
#include "base/error.h"
#include "kernels/kv_close.h"
#include "worker/snapshot/block_rows.h"
#include "worker/snapshot/file_layout.h"

namespace longhaul {

void write_open_rows(const Hdf5File& file, const std::string& path, const KvBlockShape& shape,
                     const KvBlockRef& open) {
  const KvBlockShape floats = open_block_shape(shape);
  file.make_group(path);
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    std::vector<float> rows(static_cast<std::size_t>(open.n_tokens * floats.head_dim));
    copy_block_rows({.shape = floats,
                     .side = side,
                     .block = open.data,
                     .slots = {0, open.n_tokens},
                     .to = reinterpret_cast<std::byte*>(rows.data())});
    const Hdf5Id dataset =
        file.make_rows({.name = path + "/" + dataset_name(side, RowPart::kValues),
                        .type = H5T_IEEE_F32LE,
                        .n_rows = open.n_tokens,
                        .n_columns = floats.head_dim,
                        .chunk_rows = open.n_tokens});
    describe_rows(file, dataset, floats, side, RowPart::kValues);
    file.write_rows(dataset, {0, open.n_tokens}, rows.data());
  }
}

void load_open_rows(HeadLoader& loader, const HeadToFillArgs& args) {
  HeadCache* const open = args.cache.open(args.layer, args.kv_head);
  if (open == nullptr) return;
  const KvBlockShape& closed = args.cache.layout().shape();
  const Extent newest{n_closed_tokens(closed, args.n_tokens), args.n_tokens};
  if (!newest.empty() && args.is_home(newest.begin / closed.block_size)) {
    const OpenRows rows = loader.open_rows(args.layer, args.kv_head);
    if (rows.positions.begin != newest.begin || rows.positions.end < newest.end) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("layer {}, KV head {}: the newest tokens, at positions [{}, {}), are "
                              "missing",
                              args.layer.value, args.kv_head.value, newest.begin, newest.end));
    }
    const auto place = open->store(newest);
    if (!place) throw_no_block(args, newest.begin);
    const KvBlockShape floats = open_block_shape(closed);
    std::vector<std::byte> block(floats.bytes());
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const std::vector<float>& from = side == KvSide::kKeys ? rows.k : rows.v;
      fill_block_rows({.shape = floats,
                       .side = side,
                       .rows = reinterpret_cast<const std::byte*>(from.data()),
                       .slots = {0, newest.size()},
                       .block = block.data()});
    }
    copy_from_host(args.stream, place->block, block);
  }
  open->advance_to({args.n_tokens});
}

}  // namespace longhaul
