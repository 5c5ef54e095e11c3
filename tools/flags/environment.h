// What the program takes from the environment besides its flags.
#pragma once
#include <filesystem>

namespace longhaul {

// Where downloaded models lie: $HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub.
std::filesystem::path hub_cache();

// LONGHAUL_ISA=baseline|avx2|avx512|avx512_vnni|avx512_bf16|amx forces the instruction set of the
// CPU kernels.
void choose_isa();

}  // namespace longhaul
