// Which bytes of a file one read takes: each chunk is in one stretch, and of a whole file each byte
// that is in no chunk is between chunks once.
#include "worker/snapshot/file_stretches.h"

#include <gtest/gtest.h>

#include <vector>

namespace longhaul {
namespace {

std::vector<SavedChunk> chunks_at(const std::vector<Extent>& places) {
  std::vector<SavedChunk> chunks;
  for (const Extent& place : places) {
    chunks.emplace_back();
    chunks.back().offset = place.begin;
    chunks.back().n_bytes = place.size();
  }
  return chunks;
}

std::vector<const SavedChunk*> pointers(const std::vector<SavedChunk>& chunks) {
  std::vector<const SavedChunk*> all;
  for (const SavedChunk& chunk : chunks) all.insert(all.begin(), &chunk);
  return all;
}

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
const std::vector<Extent> kPlaces = {
    {100, kMiB},           {kMiB, kMiB + 1000},         {kMiB + 2000, 2 * kMiB},
    {3 * kMiB, 8 * kMiB},  {13 * kMiB, 13 * kMiB + 10}, {13 * kMiB + 10, 13 * kMiB + 11},
    {14 * kMiB, 15 * kMiB}};

TEST(FileStretches, OfAWholeFileEachByteIsInAChunkOrBetweenThem) {
  const std::vector<SavedChunk> chunks = chunks_at(kPlaces);
  for (const std::int64_t n_bytes : {15 * kMiB, 21 * kMiB + 5}) {
    std::int64_t at = 0;
    std::size_t n_chunks = 0;
    for (const FileStretch& stretch : file_stretches(pointers(chunks), n_bytes)) {
      EXPECT_EQ(stretch.bytes.begin, at);
      auto gap = stretch.between.begin();
      auto chunk = stretch.chunks.begin();
      while (at < stretch.bytes.end) {
        if (gap != stretch.between.end() && gap->begin == at) {
          at = (gap++)->end;
        } else {
          ASSERT_TRUE(chunk != stretch.chunks.end() && (*chunk)->offset == at) << at;
          at += (*chunk++)->n_bytes;
          ++n_chunks;
        }
      }
      EXPECT_EQ(at, stretch.bytes.end);
      EXPECT_TRUE(stretch.chunks.size() == 1 || stretch.bytes.size() <= kStretchBytes);
    }
    EXPECT_EQ(at, n_bytes);
    EXPECT_EQ(n_chunks, kPlaces.size());
  }
}

TEST(FileStretches, OfSomeChunksLittleElseIsRead) {
  const std::vector<SavedChunk> chunks = chunks_at(kPlaces);
  std::int64_t n_read = 0;
  std::size_t n_chunks = 0;
  for (const FileStretch& stretch : file_stretches(pointers(chunks), std::nullopt)) {
    n_read += stretch.bytes.size();
    EXPECT_TRUE(stretch.between.empty());
    for (const SavedChunk* chunk : stretch.chunks) {
      ++n_chunks;
      EXPECT_GE(chunk->offset, stretch.bytes.begin);
      EXPECT_LE(chunk->offset + chunk->n_bytes, stretch.bytes.end);
    }
  }
  EXPECT_EQ(n_chunks, kPlaces.size());
  EXPECT_LT(n_read, 8 * kMiB + 100'000);
}

TEST(FileStretches, NothingIsNothing) {
  EXPECT_TRUE(file_stretches({}, std::nullopt).empty());
  EXPECT_EQ(file_stretches({}, 10).size(), 1U);
}

}  // namespace
}  // namespace longhaul
