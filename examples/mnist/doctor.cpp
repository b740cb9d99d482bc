// mnist doctor: what this build is, what this machine has, and whether each device computes what it
// should. With a FILE: is the checkpoint whole, and what is in it.
#include <fmt/format.h>

#include "core/device/cpu_gemm.h"
#include "core/device/cuda_api.h"
#include "core/json.h"
#include "core/parallel.h"
#include "data/verify.h"
#include "distributed/mpi.h"
#include "distributed/nccl.h"
#include "examples/cli/process.h"
#include "examples/mnist/model.h"
#include "measure/blame.h"
#include "measure/calibrate.h"
#include "nn/safetensors.h"
#include "nn/state_dict.h"
#include "profiler/grid.h"

namespace sinter::mnist {
namespace {

// The report: a line per check.
class Doctor {
 public:
  explicit Doctor(Output& out) : out_(out) {}

  void line(const char* verdict, const std::string& what, const std::string& text) {
    out_.result(verdict, "{:<9} {}", what, text);
    checks_.push_back({{"verdict", verdict}, {"check", what}, {"text", text}});
  }
  void ok_or_note(bool ok, const std::string& what, const std::string& text) {
    line(ok ? "ok" : "note", what, text);
  }
  // `f` gives the text of an ok line; what it throws is a FAIL, or a note where it says that this
  // build leaves something out.
  bool check(const std::string& what, const std::function<std::string()>& f) {
    try {
      line("ok", what, f());
      return true;
    } catch (const Error& error) {
      if (error.kind() == Error::Kind::not_built) {
        line("note", what, cat(error.message(), "; ", error.hint()));
        return false;
      }
      line("FAIL", what, error.message());
      if (first_.empty())
        first_ = cat(what, ": ", error.hint().empty() ? error.message() : with_flags(error.hint()));
      return false;
    }
  }
  int finish(const std::vector<std::string>& devices) {
    const bool good = first_.empty();
    out_.result_text(
        good ? fmt::format("ready: {}\n", join(devices)) : fmt::format("fix first: {}\n", first_));
    out_.json("sinter.doctor/1", {{"ready", good}, {"devices", devices}, {"checks", checks_}});
    return good ? 0 : exit_code(Error::Kind::check);
  }

 private:
  Output& out_;
  Json checks_ = Json::array();
  std::string first_;  // what to fix
};

void look_at_build(Doctor& doctor, std::string_view git_id) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const char* slow = ", with sanitizers: times mean little";
#elif !defined(NDEBUG)
  const char* slow = ": made to find errors, times mean little";
#else
  const char* slow = "";
#endif
  doctor.line("ok", "version",
      fmt::format("sinter {}, {}", kVersion, git_id.empty() ? "not from git" : git_id));
  doctor.ok_or_note(!*slow, "build", cat(SINTER_COMPILER, ", ", SINTER_BUILD_TYPE, slow));
  // Measured: it is not the processor's flags alone that make bf16 fast.
  const profiler::Roofs roofs = measure::calibrated(kCpu);
  const char* isa = cpu_has("amx_bf16")      ? "AMX"
                    : cpu_has("avx512_bf16") ? "AVX512-BF16"
                                             : "no instructions for it";
  doctor.ok_or_note(!roofs.loaded, "bf16",
      roofs.loaded ? fmt::format("{}; not measured: other programs kept {:.1f} cores busy", isa,
                         roofs.others_cores)
                   : fmt::format("{}: products run at {:.1f} times the rate of f32", isa,
                         roofs.bf16_gflops / roofs.f32_gflops));
  doctor.ok_or_note(has_onednn(), "products",
      cat(gemm_backend_name(),
          has_onednn()
              ? ""
              : "; oneDNN is not in this build (libdnnl-dev), matrix products are slower"));
}

// What training in several processes has, and a sum over all ranks: of one, or of those of mpirun.
std::string try_ranks() {
  const std::unique_ptr<Communicator> ranks = distributed::make_mpi_communicator();
  std::vector<float> ones(1000, 1);
  const SumPiece piece{ones.data(), int64_t(ones.size())};
  ranks->start_sum(0, {&piece, 1}, DType::f32, kCpu);
  ranks->finish_sum(0);
  const auto wanted = float(ranks->size());
  SINTER_CHECK(std::ranges::count(ones, wanted) == std::ssize(ones), check,
      fmt::format("{}: a sum of ones over {} gives {}", ranks->describe(),
          count_of(ranks->size(), "rank"), ones[0]));
  return fmt::format("{}: a sum over {} is right; mpirun -np 4 mnist train uses it",
      ranks->describe(), count_of(ranks->size(), "rank"));
}

void look_at_ranks(Doctor& doctor) {
  std::string why;
  if (distributed::mpi_version(&why).empty()) {
    doctor.line("note", "ranks",
        cat("training is one process, MPI is not in this build (libopenmpi-dev, openmpi-bin): ",
            why));
  } else {
    doctor.check("ranks", try_ranks);
  }
  const std::string nccl = distributed::nccl_version(&why);
  doctor.ok_or_note(!nccl.empty(), "nccl",
      nccl.empty() ? cat("none, for sums between cards: ", why)
                   : nccl + ", for sums between cards");
}

TrainFlags job(CommonFlags& common, const std::vector<int64_t>& hidden, const char* mode) {
  TrainFlags flags;
  flags.common = &common;
  flags.model.hidden = hidden;
  flags.optimizer.lr = 0.002;
  flags.optimizer.warmup = "0";
  flags.mode.mode = mode;
  return flags;
}

// The same synthetic digits for every trial.
Batch first_batch(int64_t size, Device device) {
  Dataset data = load_dataset({.what = "synthetic", .val = 0, .limit = size});
  data.to(device);
  return Batches(data.train, {.size = size}).next();
}

// Is there a card; and what it is, or why not.
bool look_at_cuda(Doctor& doctor) {
  try {
    Device::parse("cuda");
  } catch (const Error& error) {
    doctor.line("note", "cuda", error.message());
    return false;
  }
#if SINTER_HAS_CUDA
  return doctor.check("cuda", [] {
    int driver = 0, count = 0, major = 0, minor = 0;
    size_t free = 0, total = 0;
    SINTER_CUDA_CALL(cudaDriverGetVersion(&driver));
    SINTER_CUDA_CALL(cudaGetDeviceCount(&count));
    SINTER_CUDA_CALL(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    SINTER_CUDA_CALL(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    SINTER_CUDA_CALL(cudaMemGetInfo(&free, &total));
    const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
    return fmt::format(
        "driver for CUDA {}, runtime {}, code for {}; {} card(s), first sm_{}{}, {} of {} free",
        version(driver), version(CUDART_VERSION), SINTER_CUDA_CODE, count, major, minor,
        cli::bytes(int64_t(free)), cli::bytes(int64_t(total)));
  });
#else
  return true;
#endif
}

std::string data_text() {
  const Dataset data = load_dataset({.val = 0});
  if (data.files.empty()) return data.description + "; scripts/download_mnist fetches MNIST";
  std::vector<std::string> sums;
  for (size_t i = 0; i < data.files.size(); ++i)
    sums.push_back(data.files.size() == 4 ? check_published(data.files[i], i) : "not checked");
  return cat(data.description, "; crc32 ", join(sums));
}

// Every op of a training step, eager and fused, held against f64; and do 20 such steps learn?
std::string self_test(Device device, CommonFlags& common) {
  constexpr int kSteps = 20;
  const Batch batch = first_batch(32, device);
  const TrainFlags flags = job(common, {24, 16}, "fused");
  const auto trainer = make_trainer(flags, make_model(flags.model, 1, device), kSteps);
  for (int i = 0; i < 2; ++i) trainer->step(batch);  // recorded
  const measure::Blame blame = measure::blame(trainer->captured_step()->captured()->recorded,
      {batch.images, batch.labels}, {.devices = {device}});
  SINTER_CHECK(!blame.first && !blame.first_nan, check, cat(device.str(), ": ", blame.verdict()));
  const double first = trainer->state().last_loss;
  for (int i = 2; i < kSteps; ++i) trainer->step(batch);
  const double last = trainer->state().last_loss;
  SINTER_CHECK(last < first, check,
      fmt::format("{}: {} steps on one batch do not lower the loss: {:.4f}, then {:.4f}",
          device.str(), kSteps, first, last));
  return fmt::format("against f64 {}; {} steps take the loss from {:.2f} to {:.2f}",
      blame.verdict(), kSteps, first, last);
}

int look_at_file(const std::string& path, Output& out) {
  const nn::SafetensorsFile file = nn::read_safetensors(path);
  Json object = {{"file", path}};
  nn::NamedTensors weights;
  int64_t bytes = 0;
  profiler::Grid grid({"<tensor", "<type"});
  for (const auto& [name, tensor] : file.tensors) {
    const int64_t size = tensor.numel() * int64_t(size_of(tensor.dtype()));
    bytes += size;
    if (!name.starts_with("sinter.")) weights.push_back({name, tensor});
    grid.add({escaped(name), cat(name_of(tensor.dtype()), tensor.shape().str())});
    object["tensors"].push_back({{"name", name}, {"dtype", tensor.dtype()},
        {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())}});
  }
  out.result("ok", "{}: {} tensors, {}, crc32 {}", escaped(path), file.tensors.size(),
      cli::bytes(bytes), file.crc_checked ? "agrees" : "is not in the file");
  out.result("model", nn::architecture(weights));
  for (const std::string& note : file.notes) out.result("note", note);
  for (const auto& [key, value] : file.metadata)
    out.result("holds", "{}, {} characters", escaped(key), value.size());
  out.result_text(grid.text());
  object["bytes"] = bytes;
  object["crc_checked"] = file.crc_checked;
  object["model"] = nn::architecture(weights);
  out.json("sinter.doctor-file/1", object);
  return 0;
}

}  // namespace

void add_doctor(App& app, Command& command) {
  static std::vector<std::string> files;
  command.many_processes = true;
  command.inputs = &files;
  command.inputs_name = "[FILE]";
  command.check = [] {
    SINTER_CHECK(files.size() <= 1, usage,
        cat("usage: doctor takes one file, given ", files.size(), ": ", escaped(join(files))));
  };
  command.run = [&app](Output& out) {
    if (!files.empty()) return look_at_file(files[0], out);
    Doctor doctor(out);
    look_at_build(doctor, app.git_id());
    const TrainFlags trial = job(app.common(), {256, 128}, "eager");
    doctor.line("ok", "threads",
        fmt::format("{} cores; {}", available_cores(),
            choose_threads(trial, first_batch(trial.optimizer.batch, kCpu))));
    std::vector<std::string> devices{"cpu", "simt"};
    if (look_at_cuda(doctor)) devices.push_back("cuda");
    look_at_ranks(doctor);
    doctor.check("data", data_text);
    std::erase_if(devices, [&](const std::string& name) {
      return !doctor.check(name, [&] { return self_test(Device::parse(name), app.common()); });
    });
    return doctor.finish(devices);
  };
}

}  // namespace sinter::mnist
