// The greedy continuation of an empty prompt (BOS only) that the authors of stories260K, a model of
// 260 thousand parameters trained on TinyStories (karpathy/tinyllamas, MIT licence), publish.
#pragma once
#include <string_view>

namespace longhaul::test {

inline constexpr int kStoriesTokens = 256;
inline constexpr std::string_view kStoriesText =
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high.\n"
    "Lily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't know what to do. She "
    "said, \"I want to play with your ball, but I can't find it.\"\n"
    "Lily was sad and didn't know what to do. She said, \"I'm sorry, Lily. I didn't know what to "
    "do.\"\n"
    "Lily didn't want to help her mom, so she said, \"I'm sorry, mom. I didn't know what to do.\" "
    "Her mom said, \"Don't worry, Lily. We can help you.";

}  // namespace longhaul::test
