#include "tools/flags/other_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace longhaul {
namespace {

struct ForeignFlag {
  std::string_view name;
  std::string_view advice;
};

constexpr std::string_view kRanks =
    "the plan spreads layers and heads over the ranks by itself: start more ranks, with mpirun -n "
    "N, "
    "srun or --ranks N";
constexpr std::string_view kGpus =
    "the plan spreads layers and heads by itself; --device cuda runs ranks on GPUs";
constexpr std::string_view kQuestion =
    "-p asks one question and ends; --no-chat gives the model the text as it is";
constexpr std::string_view kMapping =
    "weights are mapped where they can be, without a flag; --no-mmap copies them";
constexpr std::string_view kTiles = "attention is always computed in tiles: leave it out";
constexpr std::string_view kHub =
    "-m org/name takes a model that `hf download org/name` has fetched";
constexpr std::string_view kCacheTypes = "the types of caches are --ctk and --ctv";
constexpr std::string_view kWeights = "--weights int8 quantises when the model is loaded";

constexpr auto kFlags = std::to_array<ForeignFlag>({
    // llama.cpp
    {"-ngl", kGpus},
    {"--n-gpu-layers", kGpus},
    {"--gpu-layers", kGpus},
    {"-sm", kRanks},
    {"--split-mode", kRanks},
    {"-ts", kRanks},
    {"--tensor-split", kRanks},
    {"-cnv", kQuestion},
    {"--conversation", kQuestion},
    {"-no-cnv", kQuestion},
    {"--no-conversation", kQuestion},
    {"--mmap", kMapping},
    {"--mlock", kMapping},
    {"-fa", kTiles},
    {"--flash-attn", kTiles},
    {"-hf", kHub},
    {"--hf-repo", kHub},
    {"-ub", "the tokens of a step are --chunk-len"},
    {"--ubatch-size", "the tokens of a step are --chunk-len"},
    // vLLM
    {"-tp", kRanks},
    {"--tensor-parallel-size", kRanks},
    {"-pp", kRanks},
    {"--pipeline-parallel-size", kRanks},
    {"-dp", "copies of the model that answer side by side are --replicas"},
    {"--data-parallel-size", "copies of the model that answer side by side are --replicas"},
    {"--kv-cache-dtype", kCacheTypes},
    {"--quantization", kWeights},
    {"--dtype", "the type of weights is --weights"},
    {"--gpu-memory-utilization", "the memory of KV caches is limited by --kv-limit"},
    {"--max-num-seqs", "how many requests are answered at the same time is --parallel"},
    {"--max-num-batched-tokens", "the tokens of a step are --chunk-len"},
    {"--enable-prefix-caching", "documents that requests share are always read once: leave it out"},
    {"--enable-chunked-prefill", "documents are always read in chunks: leave it out"},
    {"--served-model-name", "results name the model as -m does"},
});

}  // namespace

std::string advice_on_foreign_flag(std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  const auto flag =
      std::find_if(kFlags.begin(), kFlags.end(), [&](const auto& f) { return f.name == name; });
  return flag == kFlags.end() ? "" : fmt::format("{}: {}", name, flag->advice);
}

}  // namespace longhaul
