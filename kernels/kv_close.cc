#include "kernels/kv_close.h"

#include "base/error.h"
#include "kernels/kv_block_check.h"
#include "kernels/operators.h"

namespace longhaul {

void kv_close(StreamRef stream, const KvCloseArgs& args) {
  check_kv_block_shape("kv_close", args.shape);
  for (const KvCloseItem& item : args.items) {
    require(item.open != nullptr && item.closed != nullptr &&
                (item.entry == nullptr || stream.device() == Device::kCuda),
            "kv_close: a block that is missing, or a table of blocks on a CPU");
  }
  run_on(stream, cpu::kv_close, cuda::kv_close, args);
}

}  // namespace longhaul
