#include "tools/flags/other_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace longhaul {
namespace {

constexpr auto kNamesHere = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"-ctk", "--ctk"},
    {"-ctv", "--ctv"},
    {"-md", "--draft-model"},
    {"-np", "--parallel"},
    {"-pg", "--pg"},
    {"-sys", "--sys"},
});

// Their values may be any text.
constexpr auto kTexts =
    std::to_array<std::string_view>({"-p", "--prompt", "--sys", "--system-prompt", "--stop"});

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
constexpr std::string_view kThreads = "-t gives the threads of all work: leave it out";
constexpr std::string_view kSideBySide =
    "requests are always answered side by side: leave it out, --parallel says how many";
constexpr std::string_view kHub =
    "-m org/name takes a model that `hf download org/name` has fetched";
constexpr std::string_view kCacheTypes = "the types of caches are --ctk and --ctv";
constexpr std::string_view kWeights = "--weights int8 quantises when the model is loaded";

constexpr auto kFlags = std::to_array<ForeignFlag>({
    // llama.cpp
    {"-ngl", kGpus},
    {"--n-gpu-layers", kGpus},
    {"--gpu-layers", kGpus},
    {"-ngld", kGpus},
    {"-mg", kGpus},
    {"--main-gpu", kGpus},
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
    {"-tb", kThreads},
    {"--threads-batch", kThreads},
    {"-td", kThreads},
    {"-tbd", kThreads},
    {"-cd", "the tokens that a draft model reads are --draft-context"},
    {"-cb", kSideBySide},
    {"--cont-batching", kSideBySide},
    {"-nkvo", "caches lie where their rank computes: leave it out"},
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

void spell_as_here(std::vector<std::string>& arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  for (auto word = arguments.begin(); word != end; ++word) {
    if (const auto other = std::find_if(kNamesHere.begin(), kNamesHere.end(),
                                        [&](const auto& o) { return o.first == *word; });
        other != kNamesHere.end())
      *word = other->second;
    const std::string_view name = std::string_view(*word).substr(0, word->find('='));
    const auto flag =
        std::find_if(kFlags.begin(), kFlags.end(), [&](const auto& f) { return f.name == name; });
    if (flag != kFlags.end())
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", name, flag->advice));
    if (std::find(kTexts.begin(), kTexts.end(), *word) != kTexts.end() && word + 1 != end) ++word;
  }
}

}  // namespace longhaul
