// What LLVM's C API lacks. Each function is declared in shim.rs; none throws, none keeps what it is given.

#include "llvm-c/Types.h"
#include "llvm/Demangle/Demangle.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/AutoUpgrade.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/GlobalValue.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"
#include <cstring>
#include <string_view>

using namespace llvm;

// What stands between two objects, or between one object's code for two architectures, although it says nothing about the code.
// Module flags that stop the merge of two objects although they say nothing that a device link must obey:
// - "nvvm-reflect-ftz" (override): consumed by the compile step, which has resolved __nvvm_reflect before bitcode was written. Objects
//   with and without -ffast-math are linked together all the time.
// - "SDK Version": the toolkit's headers; a link of objects from two releases is the ptxas's business.
// - "ThinLTO", "EnableSplitLTOUnit", "UnifiedLTO": how the object meant to be linked; here everything is one full LTO.
extern "C" void warplink_normalize_module(LLVMModuleRef Ref) {
  Module &M = *unwrap(Ref);
  // The compile command has been read; it names the architecture, so that equal code for two of them would look different.
  if (NamedMDNode *CommandLine = M.getNamedMetadata("llvm.commandline"))
    M.eraseNamedMetadata(CommandLine);
  NamedMDNode *Flags = M.getModuleFlagsMetadata();
  if (!Flags)
    return;
  SmallVector<MDNode *, 8> Kept;
  for (MDNode *Flag : Flags->operands()) {
    auto *Key = Flag->getNumOperands() == 3 ? dyn_cast_or_null<MDString>(Flag->getOperand(1)) : nullptr;
    StringRef Name = Key ? Key->getString() : StringRef();
    if (Name == "nvvm-reflect-ftz" || Name == "SDK Version" || Name == "ThinLTO" || Name == "EnableSplitLTOUnit" || Name == "UnifiedLTO")
      continue;
    Kept.push_back(Flag);
  }
  Flags->clearOperands();
  for (MDNode *Flag : Kept)
    Flags->addOperand(Flag);
}

extern "C" void warplink_remove_dead_users(LLVMValueRef Value) {
  cast<Constant>(unwrap(Value))->removeDeadConstantUsers();
}

// LLVM's complaint about its own options, malloc'ed, or null. The C API's function has none: it drops the complaint.
extern "C" char *warplink_parse_options(int Count, const char *const *Arguments) {
  std::string Complaint;
  raw_string_ostream Stream(Complaint);
  if (cl::ParseCommandLineOptions(Count, Arguments, "", &Stream))
    return nullptr;
  // Of a bad value it complains on stderr, whatever stream it is given.
  return strdup(Complaint.empty() ? "LLVM refuses an option, as said above" : Complaint.c_str());
}

// Marks kernels as this LLVM does where LLVM 19 or older wrote the module: by calling convention, not by metadata. The reader does so itself
// only when it reads a module at once.
extern "C" void warplink_upgrade_kernels(LLVMModuleRef Ref) { UpgradeNVVMAnnotations(*unwrap(Ref)); }

// Reduces debug information to what `.loc` directives need. LLVM's own reduction leaves units of the kind LineTablesOnly, for which the NVPTX
// back end writes `.target ..., debug` and DWARF sections, and ptxas then optimises nothing; units for directives only are what clang itself
// makes of `-g -O2`.
extern "C" void warplink_keep_line_tables(LLVMModuleRef Ref) {
  Module &M = *unwrap(Ref);
  stripNonLineTableDebugInfo(M);
  NamedMDNode *List = M.getNamedMetadata("llvm.dbg.cu");
  if (!List)
    return;
  DenseMap<DICompileUnit *, DICompileUnit *> Units;
  for (unsigned I = 0; I != List->getNumOperands(); ++I) {
    auto *Old = dyn_cast<DICompileUnit>(List->getOperand(I));
    if (!Old || Old->getEmissionKind() == DICompileUnit::NoDebug || Old->isDebugDirectivesOnly())
      continue;
    auto *New = DICompileUnit::getDistinct(
        M.getContext(), Old->getSourceLanguage(), Old->getFile(), Old->getProducer(), Old->isOptimized(), Old->getFlags(), Old->getRuntimeVersion(),
        Old->getSplitDebugFilename(), DICompileUnit::DebugDirectivesOnly, Old->getEnumTypes(), Old->getRetainedTypes(), Old->getGlobalVariables(),
        Old->getImportedEntities(), Old->getMacros(), Old->getDWOId(), Old->getSplitDebugInlining(), Old->getDebugInfoForProfiling(),
        Old->getNameTableKind(), Old->getRangesBaseAddress(), Old->getSysRoot(), Old->getSDK());
    Units[Old] = New;
    List->setOperand(I, New);
  }
  DebugInfoFinder Finder;
  Finder.processModule(M);
  for (DISubprogram *Subprogram : Finder.subprograms())
    if (DICompileUnit *New = Units.lookup(Subprogram->getUnit()))
      Subprogram->replaceUnit(New);
}

// Demangles Itanium, Rust, D and Microsoft names; what is none of these comes back as it is. The string is LLVMDisposeMessage's to free.
extern "C" char *warplink_demangle(const char *Name, size_t Length) {
  return strdup(demangle(std::string_view(Name, Length)).c_str());
}
