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
#include "llvm/IR/TypeFinder.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/ErrorHandling.h"
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

// Turns a definition into a declaration of the same name. False for what must stay one: an alias, and what an alias stands for.
extern "C" int warplink_make_declaration(LLVMValueRef Ref) {
  Value *V = unwrap(Ref);
  for (User *U : V->users())
    if (isa<GlobalAlias>(U))
      return false;
  if (auto *F = dyn_cast<Function>(V)) {
    F->deleteBody();
    F->setComdat(nullptr);
    return true;
  }
  auto *G = dyn_cast<GlobalVariable>(V);
  if (!G)
    return false;
  G->setInitializer(nullptr);
  G->setComdat(nullptr);
  G->clearMetadata();
  G->setLinkage(GlobalValue::ExternalLinkage);
  return true;
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

// LLVM prints two bare lines and aborts when it gets no memory. The handler ends the process. Only the first call counts.
extern "C" void warplink_on_bad_allocation(void (*Handler)(const char *)) {
  static void (*const Known)(const char *) = Handler;
  install_bad_alloc_error_handler(
      [](void *, const char *, bool) { Known("it asks for more memory than there is; the bitcode may be damaged"); });
}

// Demangles Itanium, Rust, D and Microsoft names; what is none of these comes back as it is. The string is LLVMDisposeMessage's to free.
extern "C" char *warplink_demangle(const char *Name, size_t Length) {
  return strdup(demangle(std::string_view(Name, Length)).c_str());
}

namespace {
enum class Role : uint8_t { Declared = 0, Defined = 1, Copied = 2, Visible = 3 };

// Symbols in the order of their names: LLVM numbers values, types and attributes in this order when it writes bitcode.
template <typename Value, typename Remove, typename Append> void sortByName(std::vector<Value *> Values, Remove remove, Append append) {
  llvm::sort(Values, [](Value *A, Value *B) { return A->getName() < B->getName(); });
  for (Value *V : Values)
    remove(V);
  for (Value *V : Values)
    append(V);
}
} // namespace

// Makes one part of a whole program of the lazily read `Ref`: definitions that have a role in it, declarations of what they refer to, nothing
// else, in an order and with names that follow from these alone. Roles are as partition.rs has them. Bodies that have no role are never read.
extern "C" int warplink_trim(LLVMModuleRef Ref, const char *const *Names, const uint8_t *Roles, size_t Count, const char *Suffix) {
  Module &M = *unwrap(Ref);
  LLVMContext &Context = M.getContext();
  StringMap<Role> Known;
  for (size_t I = 0; I != Count; ++I)
    Known[Names[I]] = Role(Roles[I]);
  auto fail = [&](Error E) {
    Context.emitError(toString(std::move(E)));
    return 1;
  };
  if (Error E = M.materializeMetadata())
    return fail(std::move(E));
  // These lists keep alive what was not to be removed before the whole program was known.
  for (const char *List : {"llvm.used", "llvm.compiler.used"})
    if (GlobalVariable *Used = M.getNamedGlobal(List))
      Used->eraseFromParent();
  for (Function &F : M) {
    if (F.isDeclaration() && !F.isMaterializable())
      continue;
    Role R = Known.lookup(F.getName());
    if (R == Role::Declared) {
      F.deleteBody();
      F.setComdat(nullptr);
      F.setLinkage(GlobalValue::ExternalLinkage);
      continue;
    }
    if (Error E = F.materialize())
      return fail(std::move(E));
    if (R == Role::Visible)
      F.setLinkage(GlobalValue::AvailableExternallyLinkage);
  }
  for (GlobalVariable &V : M.globals()) {
    if (V.isDeclaration())
      continue;
    Role R = Known.lookup(V.getName());
    if (R == Role::Declared) {
      V.setInitializer(nullptr);
      V.setComdat(nullptr);
      V.setLinkage(GlobalValue::ExternalLinkage);
    } else if (R == Role::Visible) {
      V.setLinkage(GlobalValue::AvailableExternallyLinkage);
    }
  }
  if (Error E = M.materializeAll())
    return fail(std::move(E));

  bool Changed = true;
  while (Changed) {
    Changed = false;
    auto drop = [&](auto &Value) {
      Value.removeDeadConstantUsers();
      if (!Value.isDeclaration() || !Value.use_empty())
        return;
      Value.eraseFromParent();
      Changed = true;
    };
    for (Function &F : make_early_inc_range(M))
      drop(F);
    for (GlobalVariable &V : make_early_inc_range(M.globals()))
      drop(V);
  }

  std::vector<Function *> Functions;
  std::vector<GlobalVariable *> Variables;
  for (Function &F : M)
    Functions.push_back(&F);
  for (GlobalVariable &V : M.globals())
    Variables.push_back(&V);
  auto rename = [&](GlobalValue &Value) {
    if (!Value.isDeclaration() && Known.lookup(Value.getName()) == Role::Copied)
      Value.setName(Value.getName() + Suffix);
  };
  for (Function *F : Functions)
    rename(*F);
  for (GlobalVariable *V : Variables)
    rename(*V);
  sortByName(Functions, [](Function *F) { F->removeFromParent(); }, [&](Function *F) { M.getFunctionList().push_back(F); });
  sortByName(Variables, [&](GlobalVariable *V) { M.removeGlobalVariable(V); }, [&](GlobalVariable *V) { M.insertGlobalVariable(V); });

  // Names of types tell objects of one name apart by numbers that depend on what else was linked.
  TypeFinder Types;
  Types.run(M, false);
  for (StructType *Type : Types)
    if (!Type->isLiteral())
      Type->setName("");
  if (NamedMDNode *Producers = M.getNamedMetadata("llvm.ident"))
    M.eraseNamedMetadata(Producers);
  M.setModuleIdentifier("device");
  M.setSourceFileName("device");
  return 0;
}
