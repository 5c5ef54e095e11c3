// The newest tokens of a head whose cache type quantises groups of tokens: they lie in an open
// block of f32 (worker/kv/sequence_cache.h), and in files as rows of floats, apart from the closed
// blocks' codes. They are always a sequence's last tokens, behind its last whole block. Private to
// this folder.
#pragma once
#include <string>

#include "kernels/kv_block.h"
#include "worker/snapshot/hdf5_file.h"
#include "worker/snapshot/head_loader.h"
#include "worker/snapshot/head_to_fill.h"

namespace longhaul {

// `path` is open_path(), `shape` that of closed blocks. Callers hold an Hdf5Lock.
void write_open_rows(const Hdf5File& file, const std::string& path, const KvBlockShape& shape,
                     const KvBlockRef& open);

// Into the open block of an empty cache, where there are such tokens and it is at home here; the
// cache says then that it has the tokens before n_tokens. Nothing where no blocks are open. Throws
// kCorruptData where the loader's parts lack some of them, kOutOfMemory.
void load_open_rows(HeadLoader& loader, const HeadToFillArgs& args);

}  // namespace longhaul
