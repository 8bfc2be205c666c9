// Optimisation remarks, for remarks.rs: LLVM's C API can neither choose which are made nor write them down.

#include "llvm-c/Types.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LLVMRemarkStreamer.h"
#include "llvm/Support/CBindingWrapping.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>
#include <memory>
#include <optional>
#include <string>

using namespace llvm;

namespace {

// Lets through the remarks of passes whose name matches, and everything that is no remark; hands them to the callback of the handler
// whose place it takes.
struct RemarkHandler final : DiagnosticHandler {
  std::optional<Regex> Passed, Missed, Analysis;

  static bool matches(const std::optional<Regex> &Pattern, StringRef Pass) { return Pattern && Pattern->match(Pass); }
  bool isAnalysisRemarkEnabled(StringRef Pass) const override { return matches(Analysis, Pass); }
  bool isMissedOptRemarkEnabled(StringRef Pass) const override { return matches(Missed, Pass); }
  bool isPassedOptRemarkEnabled(StringRef Pass) const override { return matches(Passed, Pass); }
  bool isAnyRemarkEnabled() const override { return Passed || Missed || Analysis; }
};

struct Recording {
  std::string Text;
  raw_string_ostream Stream{Text};
};

char *complaint(Error E) { return strdup(toString(std::move(E)).c_str()); }

} // namespace

// Makes the context report the remarks that match. Null patterns match nothing. A complaint about a pattern, malloc'ed, or null.
extern "C" char *warplink_report_remarks(LLVMContextRef Ref, const char *Passed, const char *Missed, const char *Analysis) {
  LLVMContext &Context = *unwrap(Ref);
  auto Handler = std::make_unique<RemarkHandler>();
  std::string Wrong;
  auto Compile = [&](const char *Pattern, std::optional<Regex> &To) {
    if (!Pattern)
      return;
    To.emplace(Pattern);
    std::string Why;
    if (Wrong.empty() && !To->isValid(Why))
      Wrong = std::string("'") + Pattern + "': " + Why;
  };
  Compile(Passed, Handler->Passed);
  Compile(Missed, Handler->Missed);
  Compile(Analysis, Handler->Analysis);
  if (!Wrong.empty())
    return strdup(Wrong.c_str());
  const DiagnosticHandler *Before = Context.getDiagHandlerPtr();
  Handler->DiagHandlerCallback = Before->DiagHandlerCallback;
  Handler->DiagnosticContext = Before->DiagnosticContext;
  Context.setDiagnosticHandler(std::move(Handler), /*RespectFilters=*/true);
  return nullptr;
}

// Begins to write the context's remarks as YAML. The result is warplink_finish_recording's; null with a complaint, malloc'ed, in `Complaint`.
extern "C" void *warplink_record_remarks(LLVMContextRef Ref, const char *Passes, char **Complaint) {
  auto Result = std::make_unique<Recording>();
  if (Error E = setupLLVMOptimizationRemarks(*unwrap(Ref), Result->Stream, Passes ? Passes : "", "yaml", /*RemarksWithHotness=*/false)) {
    *Complaint = complaint(std::move(E));
    return nullptr;
  }
  return Result.release();
}

// Ends the recording, which is gone afterwards. The text is malloc'ed.
extern "C" char *warplink_finish_recording(LLVMContextRef Ref, void *Handle) {
  std::unique_ptr<Recording> Result(static_cast<Recording *>(Handle));
  finalizeLLVMOptimizationRemarks(*unwrap(Ref));
  return strdup(Result->Text.c_str());
}

// The option that switches a remark on, `-Rpass=inline`, malloc'ed; null for what is no remark.
extern "C" char *warplink_remark_option(LLVMDiagnosticInfoRef Ref) {
  const auto &Info = *reinterpret_cast<const DiagnosticInfo *>(Ref);
  const auto *Remark = dyn_cast<DiagnosticInfoOptimizationBase>(&Info);
  if (!Remark)
    return nullptr;
  const char *Kind = Remark->isPassed() ? "-Rpass=" : Remark->isMissed() ? "-Rpass-missed=" : "-Rpass-analysis=";
  return strdup((Kind + Remark->getPassName().str()).c_str());
}
