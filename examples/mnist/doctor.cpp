// mnist doctor: what this build is and what it finds here, and whether one training step of each
// device is right. With a FILE: is the checkpoint whole, and what is in it.
#include <fmt/format.h>

#include "cli/process.h"
#include "core/device/cpu_gemm.h"
#include "core/device/cuda.h"
#include "core/json.h"
#include "core/parallel.h"
#include "core/text_grid.h"
#include "distributed/mpi.h"
#include "distributed/nccl.h"
#include "examples/mnist/job.h"
#include "measure/blame.h"
#include "measure/calibrate.h"
#include "nn/safetensors.h"
#include "nn/state_dict.h"

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
      const bool left_out = error.kind() == Error::Kind::not_built;
      const std::string &said = error.message(), &hint = error.hint();
      line(left_out ? "note" : "FAIL", what, left_out ? str(said, "; ", hint) : said);
      if (!left_out && first_.empty())
        first_ = str(what, ": ", hint.empty() ? said : with_flags(hint));
      return false;
    }
  }
  int finish(const std::vector<std::string>& devices) {
    const bool good = first_.empty();
    out_.result_text(str(good ? "ready: " + join(devices) : "fix first: " + first_, "\n"));
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
  doctor.ok_or_note(!*slow, "build", str(SINTER_COMPILER, ", ", SINTER_BUILD_TYPE, slow));
  doctor.ok_or_note(has_onednn(), "products",
      str(gemm_backend_name(),
          has_onednn()
              ? ""
              : "; oneDNN is not in this build (libdnnl-dev), matrix products are slower"));
  std::string why;
  const auto library = [&](const char* what, const std::string& version, const char* use,
                           const char* none) {
    doctor.ok_or_note(!version.empty(), what, version.empty() ? none + why : version + use);
  };
  library("ranks", distributed::mpi_version(&why), "; mpirun -np 4 mnist train uses it",
      "training is one process, MPI is not in this build (libopenmpi-dev, openmpi-bin): ");
  library("nccl", distributed::nccl_version(&why), ", for sums between cards",
      "none, for sums between cards: ");
}

void look_at_roofs(Doctor& doctor) {
  const profiler::Roofs roofs = measure::calibrated(kCpu);
  std::string text = fmt::format("cpu, {}: f32 {:.0f} GFLOP/s, bf16 {:.0f}, copies {:.1f} GB/s",
      count_of(available_cores(), "core"), roofs.f32_gflops, roofs.bf16_gflops, roofs.dram_gbs);
  if (roofs.bf16_gflops <= roofs.f32_gflops) text += "; bf16 gains nothing here";
  if (roofs.loaded)
    text += fmt::format(", while other programs kept {:.1f} cores busy", roofs.others_cores);
  doctor.ok_or_note(!roofs.loaded, "roofs", text);
}

// Is there a card; and what it is, or why not.
bool look_at_cuda(Doctor& doctor) {
  try {
    Device::parse("cuda");
    doctor.line("ok", "cuda",
        str(count_of(cuda::device_count(), "card"), ", the first: ", cuda::card_facts().text));
    return true;
  } catch (const Error& error) {
    doctor.line("note", "cuda", error.message());
    return false;
  }
}

// Every op of a training step of synthetic digits, eager and fused, held against f64.
std::string step_text(Device device, CommonFlags& common) {
  DigitsJob job(common);
  job.recipe.model.hidden = {24, 16};
  job.flags.optimizer.lr = 0.002;
  job.flags.optimizer.warmup = "0";
  job.flags.mode.mode = "fused";
  Dataset data = load_dataset({.what = "synthetic", .val = 0, .limit = 32});
  data.to(device);
  const Batch batch = Batches(data.train, {.size = 32}).next();
  const auto trainer = job.make_trainer(job.flags, device, 2);
  while (!trainer->captured_step() || !trainer->captured_step()->captured()) trainer->step(batch);
  const measure::Blame blame = measure::blame(trainer->captured_step()->captured()->recorded,
      {batch.images, batch.labels}, {.devices = {device}});
  SINTER_CHECK(!blame.first && !blame.first_nan, check, str(device.str(), ": ", blame.verdict()));
  return "one step, against f64 " + blame.verdict();
}

int look_at_file(const std::string& path, Output& out) {
  const nn::SafetensorsFile file = nn::read_safetensors(path);
  Json object = {{"file", path}};
  nn::NamedTensors weights;
  int64_t bytes = 0;
  TextGrid grid({"<tensor", "<type"});
  for (const auto& [name, tensor] : file.tensors) {
    const int64_t size = tensor.numel() * int64_t(size_of(tensor.dtype()));
    bytes += size;
    if (!name.starts_with("sinter.")) weights.push_back({name, tensor});
    grid.add({escaped(name), str(name_of(tensor.dtype()), tensor.shape().str())});
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
        str("usage: doctor takes one file, given ", files.size(), ": ", escaped(join(files))));
  };
  command.run = [&app](Output& out) {
    if (!files.empty()) return look_at_file(files[0], out);
    Doctor doctor(out);
    look_at_build(doctor, app.git_id());
    look_at_roofs(doctor);
    std::vector<std::string> devices{"cpu", "simt"};
    if (look_at_cuda(doctor)) devices.push_back("cuda");
    std::erase_if(devices, [&](const std::string& name) {
      return !doctor.check(name, [&] { return step_text(Device::parse(name), app.common()); });
    });
    return doctor.finish(devices);
  };
}

}  // namespace sinter::mnist
