// Cache methods in words: read, written, and refused with what may have been meant.
#include "tools/flags/cache_method_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longhaul {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal_of(std::string_view text) {
  try {
    parse_cache_method(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CacheMethodWords, WhatIsNotSaidIsPreset) {
  EXPECT_EQ(parse_cache_method("dense"), CacheMethod(DenseMethod{}));
  EXPECT_EQ(parse_cache_method("streaming"), CacheMethod(StreamingMethod{}));
  EXPECT_EQ(parse_cache_method("streamingllm:window=1K,sink=8"),
            CacheMethod(StreamingMethod{.sink = 8, .window = 1024}));
  EXPECT_EQ(
      parse_cache_method("infinite:cap=512,slide=64,positions=text"),
      CacheMethod(SlideMethod{.cap = 512, .slide = 64, .positions = SinkPositions::kAbsolute}));
}

TEST(CacheMethodWords, ReadsBackWhatItWrites) {
  for (const char* text :
       {"dense", "streaming:sink=3,window=99,positions=cache", "window:window=7",
        "infinite:sink=4,cap=100,slide=10,positions=text",
        "snapkv:capacity=9,ratio=0.5,window=3,kernel=7,pool=max,group=max,"
        "after=prompt",
        "snapkv:capacity=9,ratio=0,window=3,kernel=5,pool=avg,group=each,after=document",
        "adakv:capacity=9,ratio=0,window=3,kernel=7,pool=none,group=mean,"
        "after=document,floor=0.25",
        "pyramidkv:capacity=9,ratio=0,window=3,kernel=5,pool=avg,group=mean,after=prompt,beta=7",
        "tova:capacity=9,ratio=0.125,after=document", "tova:capacity=9,ratio=0,after=token",
        "h2o:capacity=9,recent=4", "quest:budget=128,page=32,dense=0", "razor:sink=2,window=100",
        "fastgen:threshold=0.9,frequent=0.25,local=0.5,sink=4,after=token", "dmc",
        "keydiff:capacity=9,ratio=0.5,sink=2,recent=3,after=prompt"}) {
    EXPECT_EQ(to_text(parse_cache_method(text)), text);
  }
}

TEST(CacheMethodWords, RefusesWithASuggestion) {
  EXPECT_THAT(refusal_of("streamng"), AllOf(HasSubstr("'streamng'"), HasSubstr("streaming?")));
  EXPECT_THAT(refusal_of("magic"), HasSubstr("infinite"));
  EXPECT_THAT(refusal_of("window:windw=3"), HasSubstr("did you mean window?"));
  EXPECT_THAT(refusal_of("window:window=x"), HasSubstr("window=x: expected a whole number"));
  EXPECT_THAT(refusal_of("streaming:positions=here"), HasSubstr("cache or text"));
  EXPECT_THAT(refusal_of("dense:sink=3"), HasSubstr("it has none"));
  EXPECT_THAT(refusal_of("dmc:window=12"), HasSubstr("it has none"));
  EXPECT_THAT(refusal_of("window:window"), HasSubstr("key=value"));
  EXPECT_THAT(refusal_of("streaming:sink=4,window=64,sink=8"),
              HasSubstr("'sink=4,window=64,sink=8': sink is there twice"));
  EXPECT_THAT(refusal_of("snapkv:ratio=half"), HasSubstr("ratio=half: expected a number"));
}

}  // namespace
}  // namespace longhaul
