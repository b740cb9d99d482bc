// `resume-check`: silent of a run that goes on to the bit, and a checkpoint with one changed bit is
// told by its tensor.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "core/crc32.h"
#include "tests/examples/program.h"

namespace sinter {
namespace {

using namespace test;

const Words kTrain{"train", "--limit", "320", "--batch", "32", "--hidden", "16", "--dropout", "0.2",
    "--threads", "1", "--augment", "shift=2", "--schedule", "onecycle", "--epochs", "3", "--out",
    "r"};

// Of a safetensors file: the first byte of a tensor's data, and the CRC over all of them put right.
void change(const std::filesystem::path& file, const std::string& tensor) {
  std::string text = text_of(file);
  uint64_t header = 0;
  std::memcpy(&header, text.data(), 8);
  std::string head = text.substr(8, header), data = text.substr(8 + header);
  const nlohmann::json json = nlohmann::json::parse(head);
  data[json[tensor]["data_offsets"][0].get<size_t>()] ^= 1;
  const std::string old = json["__metadata__"]["sinter.crc32"];
  char crc[16];
  std::snprintf(crc, sizeof crc, "%08x", crc32(data.data(), data.size()));
  head.replace(head.find(old), old.size(), crc);
  std::ofstream(file, std::ios::binary) << text.substr(0, 8) << head << data;
}

TEST(ResumeCheck, ProvesARunThatWasStoppedAnywhere) {
  for (const char* mode : {"eager", "fused"}) {
    const StoppingProgram stopped;
    Program mnist;
    Words words = kTrain + Words{"--mode", mode};
    for (const char* step : {"7", "9", "18"}) {  // within an epoch, at its end, in the second
      stopped.run(130, words + Words{"--stop-after", step});
      words = {"train", "--resume"};
      expect_facts(mnist.run(0, {"resume-check", (stopped.folder() / "r").string()}).out,
          {str("resumes to the bit: steps 1 to ", step, " done again come to its checkpoint")});
    }
    stopped.run(0, words);
    EXPECT_EQ(json_of(mnist, {"resume-check", (stopped.folder() / "r").string()})["resumes"], true);
  }
}

TEST(ResumeCheck, TellsTheTensorThatIsNotWhatTheRunCameTo) {
  const Program program;
  program.run(0, kTrain);
  const std::filesystem::path file = program.folder() / "r/last.safetensors";
  const std::string whole = text_of(file);
  for (const char* tensor : {"0.weight", "sinter.optim/exp_avg/0.bias"}) {
    change(file, tensor);
    const Result r = program.run(7, {"resume-check", "r"});
    expect_facts(
        r.err, {"resume-check: does not resume to the bit: ", str(tensor, ", element 0 of "),
                   " of the steps done again: ", " there, ", " here"});
    std::ofstream(file, std::ios::binary) << whole;
  }
  program.run(0, {"resume-check", "r"});
}

TEST(ResumeCheck, RefusesWhatIsNoRun) {
  const Program program;
  expect_facts(program.run(2, {"resume-check"}).err, {"usage: resume-check takes a run, given 0"});
  program.run(4, {"resume-check", "nowhere"});
}

}  // namespace
}  // namespace sinter
