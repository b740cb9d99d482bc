#include "core/device/simt_worker.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace sinter::simt {
namespace {

constexpr uintptr_t kSector = 32, kBanks = 32, kWord = 4;

std::mutex mutex;
Counters totals;
std::vector<uintptr_t>
    kernel_sectors[2];  // blocks of a kernel touch the same ones: distinct per kernel

void add_parts(std::vector<uintptr_t>& parts, uintptr_t address, size_t bytes, uintptr_t part) {
  for (uintptr_t p = address / part; p * part < address + bytes; ++p) parts.push_back(p);
}

void make_distinct(std::vector<uintptr_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

void WorkerCounts::access(
    Space space, const Thread& thread, const void* address, size_t bytes, const Where& where) {
  const Unseen unseen;
  const int place = places_
                        .try_emplace({space, where.file_name(), where.line(), where.column()},
                            int(places_.size()))
                        .first->second;
  if (size_t(place) >= visits_.size()) visits_.resize(size_t(place) + 1);
  std::vector<uint32_t>& visits = visits_[size_t(place)];
  visits.resize(std::max(visits.size(), size_t(thread.threads)));
  const uint32_t visit = visits[size_t(thread.index)]++;
  accesses_.push_back({thread.warp, place, visit, thread.lane, reinterpret_cast<uintptr_t>(address),
      uint32_t(bytes), space});
  if (space == Space::device_read) sum.bytes_read += int64_t(bytes);
  if (space == Space::device_write) sum.bytes_written += int64_t(bytes);
}

int64_t& WorkerCounts::warp_wide(Operation operation) {
  switch (operation) {
    case Operation::mma_bf16_m16n8k16:
    case Operation::mma_tf32_m16n8k8: return sum.mma;
    case Operation::ldmatrix_x4:
    case Operation::ldmatrix_x4_trans: return sum.ldmatrix;
    case Operation::warp_sync: return uncounted_;
    default: return sum.shuffles;
  }
}

// Turns beyond the first that 32 banks need. 16 bytes a lane are served for a quarter of the warp
// at a time, 8 for a half.
int64_t WorkerCounts::conflicts(const Access* begin, const Access* end) {
  const int lanes = begin->bytes >= 16 ? 8 : begin->bytes >= 8 ? 16 : 32;
  int64_t extra = 0;
  std::vector<uintptr_t> words;
  while (begin < end) {
    words.clear();
    for (const int part = begin->lane / lanes; begin < end && begin->lane / lanes == part; ++begin)
      add_parts(words, begin->address, begin->bytes, kWord);
    make_distinct(words);
    int64_t turns[kBanks] = {};
    for (const uintptr_t word : words) ++turns[word % kBanks];
    extra += *std::max_element(turns, turns + kBanks) - 1;
  }
  return extra;
}

void WorkerCounts::block_ended(int threads) {
  ++sum.blocks;
  sum.threads += threads;
  if (accesses_.empty()) return;
  std::sort(accesses_.begin(), accesses_.end(),
      [](const Access& a, const Access& b) { return a.key() < b.key(); });
  std::vector<uintptr_t> sectors;
  const Access* const end = accesses_.data() + accesses_.size();
  for (const Access *request = accesses_.data(), *next; request < end; request = next) {
    for (next = request; next < end && next->request() == request->request();) ++next;
    if (request->space == Space::shared) {
      ++sum.shared_accesses;
      sum.bank_conflicts += conflicts(request, next);
    } else {
      sectors.clear();
      for (const Access* a = request; a < next; ++a)
        add_parts(sectors, a->address, a->bytes, kSector);
      make_distinct(sectors);
      ++sum.requests;
      sum.request_sectors += int64_t(sectors.size());
      auto& all = sectors_[request->space == Space::device_write];
      all.insert(all.end(), sectors.begin(), sectors.end());
    }
  }
  for (auto& all : sectors_) make_distinct(all);
  accesses_.clear();
  for (auto& visits : visits_) std::fill(visits.begin(), visits.end(), 0u);
}

void WorkerCounts::merge() {
  const std::lock_guard lock(mutex);
  for (int64_t Counters::*field : {&Counters::blocks, &Counters::threads, &Counters::barriers,
           &Counters::shuffles, &Counters::mma, &Counters::ldmatrix, &Counters::cp_async,
           &Counters::bytes_read, &Counters::bytes_written, &Counters::requests,
           &Counters::request_sectors, &Counters::shared_accesses, &Counters::bank_conflicts}) {
    totals.*field += sum.*field;
  }
  for (int write = 0; write < 2; ++write) {
    kernel_sectors[write].insert(
        kernel_sectors[write].end(), sectors_[write].begin(), sectors_[write].end());
    sectors_[write].clear();
  }
  sum = {};
}

void finish_kernel_counts() {
  const std::lock_guard lock(mutex);
  for (auto& sectors : kernel_sectors) make_distinct(sectors);
  totals.sectors_read += int64_t(kernel_sectors[0].size());
  totals.sectors_written += int64_t(kernel_sectors[1].size());
  for (auto& sectors : kernel_sectors) sectors.clear();
}

Counters take_counters() {
  synchronize();
  const std::lock_guard lock(mutex);
  return std::exchange(totals, {});
}

}  // namespace sinter::simt
