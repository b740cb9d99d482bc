#include "data/batches.h"

#include <algorithm>
#include <array>
#include <future>
#include <numeric>
#include <semaphore>
#include <thread>
#include <utility>

#include "core/communicator.h"
#include "core/device/cuda_upload.h"
#include "core/device/memory.h"
#include "core/error.h"
#include "core/numbers.h"
#include "core/parallel.h"
#include "ops/shape/gather_batch.h"
#include "profiler/scope.h"

namespace sinter {
namespace {

// The kernel alone: a batch is no op of the step that it is for. Captures do not see it, profiles
// count it for the data scope that it is fetched in.
// Images and labels go to host memory that is given, or to their own.
Batch gather(const Split& split, const Tensor& index, DType dtype, Normalize normalize,
    std::byte* images = nullptr, std::byte* labels = nullptr) {
  const Tensors in{split.images, split.labels, index};
  const Attrs attrs = GatherBatchAttrs{dtype, normalize == Normalize::mnist};
  Tensors out = kGatherBatchOp.results(in, attrs);
  const auto place = [](const Tensor& meta, std::byte* memory) {
    if (!memory) return Tensor::empty(meta.shape(), meta.dtype(), meta.device());
    auto storage = std::make_shared<Storage>(memory, size_t(bytes_of(meta)), kCpu);
    return Tensor::view_of(std::move(storage), meta.dtype(), meta.shape(), meta.strides(), 0);
  };
  out = {place(out[0], images), place(out[1], labels)};
  const profiler::KernelSpan span(split.images.device() == kCpu);
  kGatherBatchOp.kernel(split.images.device().type)({kGatherBatchOp, in, out, attrs});
  return {out[0], out[1], out[1].numel()};
}

}  // namespace

Batch gather_batch(
    const Split& split, std::span<const int32_t> indices, DType dtype, Normalize normalize) {
  const Tensor index = Tensor::from(std::vector<int64_t>(indices.begin(), indices.end()),
      {int64_t(indices.size())}, split.images.device());
  return gather(split, index, dtype, normalize);
}

// Note [Two batches ahead]
//   While the caller works on batch i, batch i+1 is copied, and one thread gathers batch i+2:
//
//       gathered in slot   i: 0   i+1: 1   i+2: 2   i+3: 0, once the copy of i has read it
//
//   The thread lives as long as the Batches: one for each batch would bring a team of threads of
//   its own each time. It waits for a slot's last copy, so nobody else does, and a caller that is
//   far ahead of the card waits for the thread. Memory of the card for batch i+1 is taken, and the
//   copy ordered behind all work launched by then, before batch i is given away: whatever used that
//   memory before is over, and step i runs beside the copy.
class Batches::Ahead {
 public:
  explicit Ahead(Batches& batches) : batches_(batches), next_(batches.position()) {
    if (batches.options_.device->type == Device::Type::cuda) {
      const auto rows = size_t(batches.own_rows(batches.rows_of({})));
      const size_t labels = rows * sizeof(int32_t);
      for (auto& slot : slots_) slot = std::make_unique<cuda::Upload>(batches.labels_at() + labels);
    }
    thread_ = std::thread([this] { work(); });
  }
  ~Ahead() {
    if (made_.valid()) made_.wait();
    stop_ = true;
    asked_.release();
    thread_.join();
    try {
      arrive();
    } catch (const Error&) {  // the card is lost, and its memory with it
    }
  }

  // The next batch; the two behind it are begun. Of no use any more once it has thrown.
  Batch take() {
    if (!sent_) send();
    const Batch batch = arrive();
    send();
    begin();
    return batch;
  }

 private:
  struct Sent {
    Batch batch;
    cuda::Upload* upload;  // null: it is there
  };

  void begin() {
    slot_ = (slot_ + 1) % std::size(slots_);
    task_ = std::packaged_task<Batch()>([this, at = next_, upload = slots_[slot_].get()] {
      if (!upload) return batches_.make(at);
      upload->wait_on_host();
      return batches_.make(at, static_cast<std::byte*>(upload->memory()));
    });
    next_ = batches_.after(next_);
    made_ = task_.get_future();
    asked_.release();
  }

  void send() {
    if (!made_.valid()) begin();
    const Batch here = made_.get();
    const Device device = *batches_.options_.device;
    cuda::Upload* const upload = slots_[slot_].get();
    if (!upload) {
      sent_ = Sent{{here.images.to(device), here.labels.to(device), here.of}, nullptr};
      return;
    }
    const auto sent_to = [&](const Tensor& from, Tensor& to) -> cuda::Upload::Part {
      to = Tensor::empty(from.shape(), from.dtype(), device);
      return {to.raw(), from.raw(), size_t(bytes_of(from))};
    };
    Batch there{.of = here.of};
    const auto images = sent_to(here.images, there.images),
               labels = sent_to(here.labels, there.labels);
    upload->start({images, labels});
    sent_ = Sent{there, upload};
  }

  // What was sent, for the caller to launch work with, or to drop.
  Batch arrive() {
    if (!sent_) return {};
    const Sent sent = *std::exchange(sent_, std::nullopt);
    if (sent.upload) sent.upload->wait();
    return sent.batch;
  }

  void work() {
    for (asked_.acquire(); !stop_; asked_.acquire()) {
      std::packaged_task<Batch()> task =
          std::move(task_);  // the next one may be asked for before this one has returned
      task();
    }
  }

  Batches& batches_;
  std::array<std::unique_ptr<cuda::Upload>, 3> slots_;  // on cuda
  size_t slot_ = 0;                                     // of what is made
  BatchPosition next_;                                  // of what is begun next
  std::optional<Sent> sent_;
  std::binary_semaphore asked_{0};
  bool stop_ = false;
  std::packaged_task<Batch()> task_;
  std::future<Batch> made_;
  std::thread thread_;
};

Batches::~Batches() = default;

Batches::Batches(Split split, const BatchOptions& options)
    : BatchSource(split.size(), options.size), split_(std::move(split)), options_(options) {
  SINTER_CHECK(options.dtype == DType::f32 || options.dtype == DType::bf16, dtype,
      str("batches: unsupported dtype: ", name_of(options.dtype), "; allowed f32, bf16"));
  SINTER_ASSERT(options.rank >= 0 && options.rank < options.ranks, options.rank);
  options_.size = size();
  if (options_.part == 0) options_.part = options_.size;
  if (!options_.device) options_.device = split_.images.device();
  SINTER_ASSERT(resident() || split_.images.device() == kCpu, options_.device->str());
  order_ = Tensor::empty({split_.size()}, DType::i64, split_.images.device());
  cursor_ = Tensor::empty({1}, DType::i64, split_.images.device());
  split_.images.autograd().name = "images";  // in the text of a captured step
  split_.labels.autograd().name = "labels";
  order_.autograd().name = "order";
  cursor_.autograd().name = "cursor";
  if (!options.shuffle) {
    std::vector<int32_t> order(size_t(split_.size()));
    std::iota(order.begin(), order.end(), 0);
    write_order(order);
  }
}

// Where several processes share a batch, this one's rows come first in it: so they lie together,
// and a batch begins where it does for one process.
void Batches::write_order(std::span<const int32_t> order) {
  std::vector<int64_t> wide(order.begin(), order.end());
  const auto n = int64_t(order.size());
  for (int64_t begin = 0; options_.ranks > 1 && begin < n; begin += options_.size) {
    const int64_t end = std::min(n, begin + options_.size);
    for (int64_t to = begin, at = begin; at < end; at += options_.part) {
      const RowRange own =
          rows_of_rank(std::min(options_.part, end - at), options_.rank, options_.ranks);
      std::copy_n(order.begin() + at + own.begin, own.size(), wide.begin() + to);
      to += own.size();
    }
  }
  copy_to_device(order_.raw(), order_.device(), wide.data(), wide.size() * sizeof wide[0]);
}

void Batches::load_order(int64_t epoch) {
  if (!options_.shuffle || order_epoch_ == epoch) return;
  write_order(epoch_order(split_.size(), options_.seed, epoch));
  order_epoch_ = epoch;
}

Tensors Batches::shape_only(int64_t rows) const {
  const Device device = *options_.device;
  return {Tensor::meta({rows, split_.image().pixels()}, options_.dtype, device),
      Tensor::meta({rows}, DType::i32, device)};
}

std::string Batches::describe() const {
  const auto& [shift, rotate, scale] = options_.augment;
  const bool augments = options_.augment.any();
  std::string out = sizes();
  out += options_.shuffle ? str(", shuffled by seed ", options_.seed) : ", in their order";
  if (augments)
    out +=
        str(", shift ", shift, ", rotate ", rotate, ", scale ", scale, " by seed ", options_.seed);
  return str(out, options_.normalize == Normalize::mnist ? ", normalized" : "", ", ",
      name_of(options_.dtype));
}

uint32_t Batches::crc32() { return split_.crc32 = crc_of(split_); }

int64_t Batches::own_rows(int64_t rows) const {
  int64_t own = 0;
  for (int64_t at = 0; at < rows; at += options_.part)
    own += rows_of_rank(std::min(options_.part, rows - at), options_.rank, options_.ranks).size();
  return own;
}

size_t Batches::labels_at() const {
  const int64_t pixels = split_.images.numel() / split_.size();
  const auto bytes = size_t(own_rows(rows_of({})) * pixels) * size_of(options_.dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void Batches::seek(BatchPosition position) {
  BatchSource::seek(position);
  ahead_.reset();  // what it made is of another position, and nobody wants its thread until then
  placed_ = false;
}

int64_t Batches::begin_step() {
  check_outside_step("begin_step");
  SINTER_ASSERT(resident(), split_.images.describe());
  const BatchPosition at = position();
  load_order(at.epoch);
  if (!placed_) {
    const int64_t cursor = at.batch * options_.size;
    copy_to_device(cursor_.raw(), cursor_.device(), &cursor, sizeof cursor);
  }
  const int64_t rows = rows_of(advance());
  placed_ = own_rows(rows) > 0;  // else nothing is drawn, and the cursor stays behind
  return rows;
}

Fed Batches::feed() {
  if (!resident()) return take();
  return {.of = begin_step(), .drawn_from = this};
}

Tensors Batches::draw(int64_t rows) {
  const int64_t own = own_rows(rows);
  if (own == 0) return {};
  const GatherBatchAttrs attrs{
      options_.dtype, options_.normalize == Normalize::mnist, own, options_.size};
  return apply(
      kGatherBatchOp, {split_.images, split_.labels, order_, cursor_}, attrs, profiler::Role::data);
}

Batch Batches::make(BatchPosition position, std::byte* memory) {
  load_order(position.epoch);
  const int64_t rows = rows_of(position);
  const Tensor index = Tensor::view_of(
      order_.storage(), DType::i64, {own_rows(rows)}, {1}, position.batch * options_.size);
  std::byte* const labels = memory ? memory + labels_at() : nullptr;
  Split split = split_;
  Tensor place = index;
  if (options_.augment.any()) {
    split = augmented(position.epoch, index);
    std::vector<int64_t> all(size_t(index.numel()));
    std::iota(all.begin(), all.end(), 0);
    place = Tensor::from(all, index.shape());
  }
  Batch batch = gather(split, place, options_.dtype, options_.normalize, memory, labels);
  batch.of = rows;
  return batch;
}

// The rows that `index` names, as the epoch sees them.
Split Batches::augmented(int64_t epoch, const Tensor& index) const {
  const ImageShape shape = split_.image();
  const int64_t rows = index.numel(), pixels = shape.pixels();
  const Split out{Tensor::empty({rows, shape.channels, shape.height, shape.width}, DType::u8),
      Tensor::empty({rows}, DType::i32)};
  parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t from = index.data<int64_t>()[row];
      augment_image(options_.augment, options_.seed, epoch, from, shape,
          split_.images.data<uint8_t>() + from * pixels, out.images.data<uint8_t>() + row * pixels);
      out.labels.data<int32_t>()[row] = split_.labels.data<int32_t>()[from];
    }
  });
  return out;
}

Batch Batches::next() {
  Batch batch;
  if (resident()) {
    batch = make(position());
  } else {
    auto ahead = ahead_ ? std::move(ahead_) : std::make_unique<Ahead>(*this);
    batch = ahead->take();  // where that throws, it goes
    ahead_ = std::move(ahead);
  }
  advance();
  placed_ = false;
  return batch;
}

}  // namespace sinter
