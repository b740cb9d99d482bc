#include "core/communicator.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace sinter {
namespace {

thread_local Communicator* communicator_of_thread = nullptr;

double seconds_between(auto from, auto to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

}  // namespace

RowRange rows_of_rank(int64_t rows, int64_t rank, int64_t size) {
  const int64_t each = rows / size, more = rows % size;
  const int64_t begin = rank * each + std::min(rank, more);
  return {begin, begin + each + (rank < more)};
}

Communicator* Communicator::current() { return communicator_of_thread; }

CommunicatorScope::CommunicatorScope(Communicator* communicator)
    : before_(std::exchange(communicator_of_thread, communicator)) {}
CommunicatorScope::~CommunicatorScope() { communicator_of_thread = before_; }

void Communicator::start_sum(
    int64_t bucket, std::span<const SumPiece> pieces, DType dtype, Device device) {
  SINTER_CHECK(dtype == DType::f32 || dtype == DType::f64, dtype,
      str("sum over ranks: wrong element type: ", name_of(dtype), "; it must be f32 or f64"));
  SINTER_CHECK(!started_.contains(bucket), state,
      str("sum over ranks: bucket ", bucket, " was started twice; finish it in between"));
  failed_.push_back({std::chrono::steady_clock::now(), {pieces.begin(), pieces.end()}});
  start(bucket, pieces, dtype, device);
  started_.emplace(bucket, std::move(failed_.back()));
  failed_.pop_back();
  ++stats_.sums;
  for (const SumPiece& piece : pieces) stats_.bytes += piece.count * int64_t(size_of(dtype));
}

void Communicator::finish_sum(int64_t bucket) {
  const auto started = started_.find(bucket);
  SINTER_CHECK(started != started_.end(), state,
      str("sum over ranks: bucket ", bucket, " was not started; start it first"));
  const Time asked = std::chrono::steady_clock::now();
  const Time there = finish(bucket);
  stats_.under_way_s += seconds_between(std::max(started->second.at, counted_until_), there);
  counted_until_ = std::max(counted_until_, there);
  stats_.exposed_s += seconds_between(asked, std::chrono::steady_clock::now());
  started_.erase(started);
}

double Communicator::sum(double value) {
  constexpr int64_t kNumber = INT64_MIN;  // no bucket of the caller's
  const SumPiece piece{&value, 1};
  start(kNumber, {&piece, 1}, DType::f64, kCpu);
  finish(kNumber);
  return value;
}

}  // namespace sinter
