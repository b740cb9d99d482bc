#include "core/device/kept_choices.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#include "core/atomic_file.h"
#include "core/cache.h"
#include "core/classic.h"
#include "core/device/cuda_stream.h"
#include "core/error.h"

namespace sinter {
namespace {

constexpr const char* kFormat = "sinter choices 2, ";

struct KeptChoices {
  std::mutex mutex;
  bool on = true, opened = false;
  std::string file;  // "": none
  std::string holds_for, note;
  std::map<std::string, std::string> answers;
};
KeptChoices& kept_choices() {
  static KeptChoices& kept = *new KeptChoices;
  return kept;
}

#if SINTER_HAS_CUDA
// As the kernel's module says it, more exactly than the runtime.
std::string driver_of_module() {
  std::string version;
  std::getline(ClassicStream<std::ifstream>("/sys/module/nvidia/version"), version);
  return version;
}

// "13.0.1", by a library's function that tells a part of it.
template <class Get> std::string version_by(const Get& get) {
  int parts[3] = {};
  for (const libraryPropertyType part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL})
    get(part, &parts[part]);
  return str(parts[0], ".", parts[1], ".", parts[2]);
}

std::string cudnn_version() {
#if SINTER_HAS_CUDNN
  try {
    return version_by([](auto part, int* to) { SINTER_CUDA_CALL(cudnnGetProperty(part, to)); });
  } catch (const Error&) {  // it is not there, and own kernels make its convolutions
  }
#endif
  return "none";
}

void identify_card(KeptChoices& k) {
  static const bool hooked = (cuda::at_reset([] {
    const std::lock_guard lock(kept_choices().mutex);
    kept_choices().opened = false;
  }),
      true);
  static_cast<void>(hooked);
  cuda::thread_state();  // opens the card
  cudaDeviceProp card{};
  SINTER_CUDA_CALL(cudaGetDeviceProperties(&card, cuda::device().index));
  int driver = 0;
  SINTER_CUDA_CALL(cudaDriverGetVersion(&driver));
  const std::string cublaslt =
      version_by([](auto part, int* to) { SINTER_CUDA_CALL(cublasLtGetProperty(part, to)); });
  const auto program = std::filesystem::canonical("/proc/self/exe");
  k.file = cache_file("choices", str(card.name, " ", program.string()));
  k.holds_for = str(kFormat, card.name, ", driver ", driver, " ", driver_of_module(), ", cuBLASLt ",
      cublaslt, ", cuDNN ", cudnn_version(), ", program of ", file_size(program), " bytes, ",
      last_write_time(program).time_since_epoch().count());
}
#else
void identify_card(KeptChoices&) {}
#endif

// False: the file is damaged or somebody else's.
bool read_choices(KeptChoices& k) {
  ClassicStream<std::ifstream> in(k.file);
  std::string line;
  if (!in) return true;
  std::getline(in, line);
  if (line != k.holds_for) return line.starts_with(kFormat);
  std::map<std::string, std::string> answers;
  while (std::getline(in, line)) {
    if (line == str("end ", answers.size())) {
      k.answers = std::move(answers);
      return true;
    }
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) return false;
    answers[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return false;
}

void open_choices(KeptChoices& k) {
  if (std::exchange(k.opened, true)) return;
  k.file.clear();
  k.note.clear();
  k.answers.clear();
  try {
    identify_card(k);
    if (!k.file.empty() && !read_choices(k))
      k.note = str("choices of before are ignored: damaged, or no such file: ", shown(k.file));
  } catch (const std::exception& error) {
    k.note = str("choices are not kept: ", error.what());
  }
}

// A step that is planned writes it dozens of times, and read_choices() sees what a power cut has
// left in pieces: so nothing waits for the disk.
void write_choices(KeptChoices& k) {
  static const FileCalls calls = [] {
    FileCalls c = FileCalls::system();
    c.fsync = [](int) { return 0; };
    return c;
  }();
  std::string text = k.holds_for + "\n";
  for (const auto& [question, answer] : k.answers) text += str(question, "\t", answer, "\n");
  text += str("end ", k.answers.size(), "\n");
  try {
    std::filesystem::create_directories(std::filesystem::path(k.file).parent_path());
    AtomicFile file(k.file, "file", calls);
    file.write(text);
    file.commit();
  } catch (const std::exception& error) {
    k.note = str("choices are not kept: ", error.what());
  }
}

}  // namespace

std::optional<std::string> kept_choice(const std::string& question) {
  KeptChoices& k = kept_choices();
  const std::lock_guard lock(k.mutex);
  if (!k.on) return {};
  open_choices(k);
  const auto found = k.answers.find(question);
  return found == k.answers.end() ? std::nullopt : std::optional(found->second);
}

void keep_choice(const std::string& question, const std::string& answer) {
  KeptChoices& k = kept_choices();
  const std::lock_guard lock(k.mutex);
  if (!k.on) return;
  open_choices(k);
  if (k.file.empty()) return;
  k.answers[question] = answer;
  write_choices(k);
}

std::string kept_choices_note() {
  const std::lock_guard lock(kept_choices().mutex);
  return kept_choices().note;
}

void set_keep_choices(bool on) {
  const std::lock_guard lock(kept_choices().mutex);
  kept_choices().on = on;
}

}  // namespace sinter
