; Registers one CUDA fat binary with the runtime, as nvcc's and LLVM's registration code does: a constructor hands the wrapper to
; __cudaRegisterFatBinary and then every entry of the host's objects under the returned handle. Compiled for each host when warplink is
; built, together with one of entries-elf.ll and entries-coff.ll, which find the entries; at a link `wrap.rs` adds the data: the fat binary,
; its wrapper and what finds the entries.

source_filename = "warplink.registration"

; Up to LLVM 19 an entry was an %old.entry. That begins with an address, which is not null; an %entry begins with eight zeros. So whoever
; reads an entry needs not know which compiler its object came from: two objects may have the same template's kernel, one entry of either
; kind, and the linker keeps one of them.
%entry = type { i64, i16, i16, i32, ptr, ptr, i64, i64, ptr }
%old.entry = type { ptr, ptr, i64, i32, i32 }
%wrapper = type { i32, i32, ptr, ptr }

; The data that a link adds.
@.fatbin_wrapper = external hidden constant %wrapper, align 8
; nvcc's modules: how many there are, the wrappers of their own fat binaries, and room for what these hold; how many of the modules must
; have come before registration begins, and room for the callbacks of those that come before it.
@.cuda.module_count = external hidden constant i64, align 8
@.cuda.modules = external hidden constant [0 x ptr], align 8
@.cuda.parts = external hidden global [0 x ptr], align 8
@.cuda.awaited_count = external hidden constant i64, align 8
@.cuda.callbacks = external hidden global [0 x ptr], align 8

@.cuda.binary_handle = internal global ptr null, align 8
@.cuda.started = internal global i64 0, align 8
@.cuda.awaited = internal global i64 0, align 8
@.cuda.noted = internal global i64 0, align 8

@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 101, ptr @.cuda.fatbin_reg, ptr null }]

declare ptr @__cudaRegisterFatBinary(ptr)
declare void @__cudaRegisterFatBinaryEnd(ptr)
declare void @__cudaUnregisterFatBinary(ptr)
declare i32 @__cudaRegisterFunction(ptr, ptr, ptr, ptr, i32, ptr, ptr, ptr, ptr, ptr)
declare void @__cudaRegisterVar(ptr, ptr, ptr, ptr, i32, i64, i32, i32)
declare void @__cudaRegisterManagedVar(ptr, ptr, ptr, ptr, i32, i64, i32, i32)
declare i32 @atexit(ptr)

define internal void @.cuda.fatbin_reg() nounwind section ".text.startup" {
  store i64 1, ptr @.cuda.started, align 8
  call void @.cuda.begin()
  ret void
}

; What the host side of each of nvcc's modules calls under a name of its own, from its constructor, with the function that registers the
; module's symbols under a handle. (The other arguments are the module's own fat binary, its name, and a function that nobody calls.)
;
; The program's one handle is there already, and may have been used: what is registered then counts from the next
; __cudaRegisterFatBinaryEnd on. That may be called any number of times for one handle (seen with the runtimes of CUDA 11.8, 12.4, 12.8 and
; 13.0; the last one asks for none, the others ignore without it what comes after the first use, and crash when a handle that never had one
; is unregistered).
define hidden void @.cuda.register_module(ptr %callback, ptr %wrapper, ptr %name, ptr %unused) nounwind section ".text.startup" {
begin:
  %handle = load ptr, ptr @.cuda.binary_handle, align 8
  %too.early = icmp eq ptr %handle, null
  br i1 %too.early, label %note, label %register

note:
  call void @.cuda.note(ptr %callback)
  ret void

register:
  call void %callback(ptr %handle)
  call void @__cudaRegisterFatBinaryEnd(ptr %handle)
  ret void
}

; The same for a module with managed variables. The runtime fills in the pointers that host code goes through when it loads the image, and
; never those of variables that are registered later: so nothing may be registered, and used, before such a module has come.
define hidden void @.cuda.register_awaited_module(ptr %callback, ptr %wrapper, ptr %name, ptr %unused) nounwind section ".text.startup" {
  call void @.cuda.note(ptr %callback)
  %awaited = load i64, ptr @.cuda.awaited, align 8
  %following = add nuw i64 %awaited, 1
  store i64 %following, ptr @.cuda.awaited, align 8
  call void @.cuda.begin()
  ret void
}

define internal void @.cuda.note(ptr %callback) nounwind section ".text.startup" {
  %index = load i64, ptr @.cuda.noted, align 8
  %slot = getelementptr inbounds ptr, ptr @.cuda.callbacks, i64 %index
  store ptr %callback, ptr %slot, align 8
  %following = add nuw i64 %index, 1
  store i64 %following, ptr @.cuda.noted, align 8
  ret void
}

; Begins when the program's own constructor and all awaited modules have come: the entries of the host's objects, and the modules that are
; there.
define internal void @.cuda.begin() nounwind section ".text.startup" {
begin:
  %started = load i64, ptr @.cuda.started, align 8
  %awaited = load i64, ptr @.cuda.awaited, align 8
  %awaited.count = load i64, ptr @.cuda.awaited_count, align 8
  %own = icmp ne i64 %started, 0
  %all = icmp eq i64 %awaited, %awaited.count
  %complete = and i1 %own, %all
  br i1 %complete, label %parts, label %wait

wait:
  ret void

; The modules' own fat binaries, for the driver, which links the PTX in them where it needs to.
parts:
  %count = load i64, ptr @.cuda.module_count, align 8
  %any.parts = icmp ne i64 %count, 0
  br i1 %any.parts, label %part, label %register

part:
  %part.index = phi i64 [ 0, %parts ], [ %part.following, %part ]
  %module.slot = getelementptr inbounds ptr, ptr @.cuda.modules, i64 %part.index
  %module = load ptr, ptr %module.slot, align 8
  %held.at = getelementptr inbounds %wrapper, ptr %module, i64 0, i32 2
  %held = load ptr, ptr %held.at, align 8
  %part.slot = getelementptr inbounds ptr, ptr @.cuda.parts, i64 %part.index
  store ptr %held, ptr %part.slot, align 8
  %part.following = add nuw i64 %part.index, 1
  %more.parts = icmp ult i64 %part.following, %count
  br i1 %more.parts, label %part, label %register

register:
  %handle = call ptr @__cudaRegisterFatBinary(ptr @.fatbin_wrapper)
  store ptr %handle, ptr @.cuda.binary_handle, align 8
  call void @.cuda.globals_reg(ptr %handle)
  %noted = load i64, ptr @.cuda.noted, align 8
  %any = icmp ne i64 %noted, 0
  br i1 %any, label %each, label %end

each:
  %index = phi i64 [ 0, %register ], [ %following, %each ]
  %slot = getelementptr inbounds ptr, ptr @.cuda.callbacks, i64 %index
  %callback = load ptr, ptr %slot, align 8
  call void %callback(ptr %handle)
  %following = add nuw i64 %index, 1
  %more = icmp ult i64 %following, %noted
  br i1 %more, label %each, label %end

end:
  call void @__cudaRegisterFatBinaryEnd(ptr %handle)
  ; In a shared object this is the atexit that runs when the object is unloaded.
  %ignored = call i32 @atexit(ptr @.cuda.fatbin_unreg)
  ret void
}

define internal void @.cuda.fatbin_unreg() nounwind section ".text.startup" {
  %handle = load ptr, ptr @.cuda.binary_handle, align 8
  call void @__cudaUnregisterFatBinary(ptr %handle)
  ret void
}

; Registers one entry.
define internal void @.cuda.entry_reg(ptr %handle, ptr %at) nounwind section ".text.startup" {
begin:
  %start = load i64, ptr %at, align 1
  %is.new = icmp eq i64 %start, 0
  br i1 %is.new, label %new, label %old

new:
  %kind.at = getelementptr inbounds %entry, ptr %at, i64 0, i32 2
  %kind = load i16, ptr %kind.at, align 2
  ; 2 is CUDA; entries of other languages are theirs to register.
  %is.cuda = icmp eq i16 %kind, 2
  br i1 %is.cuda, label %cuda, label %done

cuda:
  %new.flags.at = getelementptr inbounds %entry, ptr %at, i64 0, i32 3
  %new.flags = load i32, ptr %new.flags.at, align 4
  %new.address.at = getelementptr inbounds %entry, ptr %at, i64 0, i32 4
  %new.address = load ptr, ptr %new.address.at, align 8
  %new.name.at = getelementptr inbounds %entry, ptr %at, i64 0, i32 5
  %new.name = load ptr, ptr %new.name.at, align 8
  %new.size.at = getelementptr inbounds %entry, ptr %at, i64 0, i32 6
  %new.size = load i64, ptr %new.size.at, align 8
  br label %read

; Old entries have a section for each language, and those of CUDA's are the ones that lead here. They are not aligned.
old:
  %old.address = load ptr, ptr %at, align 1
  %old.name.at = getelementptr inbounds %old.entry, ptr %at, i64 0, i32 1
  %old.name = load ptr, ptr %old.name.at, align 1
  %old.size.at = getelementptr inbounds %old.entry, ptr %at, i64 0, i32 2
  %old.size = load i64, ptr %old.size.at, align 1
  %old.flags.at = getelementptr inbounds %old.entry, ptr %at, i64 0, i32 3
  %old.flags = load i32, ptr %old.flags.at, align 1
  br label %read

read:
  %address = phi ptr [ %new.address, %cuda ], [ %old.address, %old ]
  %name = phi ptr [ %new.name, %cuda ], [ %old.name, %old ]
  %size = phi i64 [ %new.size, %cuda ], [ %old.size, %old ]
  %flags = phi i32 [ %new.flags, %cuda ], [ %old.flags, %old ]
  %is.kernel = icmp eq i64 %size, 0
  br i1 %is.kernel, label %kernel, label %variable

kernel:
  %ignored = call i32 @__cudaRegisterFunction(ptr %handle, ptr %address, ptr %name, ptr %name, i32 -1, ptr null, ptr null, ptr null, ptr null, ptr null)
  ret void

variable:
  %extern.bit = lshr i32 %flags, 3
  %extern = and i32 %extern.bit, 1
  %constant.bit = lshr i32 %flags, 4
  %constant = and i32 %constant.bit, 1
  %what = and i32 %flags, 7
  ; Surfaces and textures by reference (2, 3) left CUDA with release 12.
  switch i32 %what, label %done [
    i32 0, label %global
    i32 1, label %managed
  ]

global:
  call void @__cudaRegisterVar(ptr %handle, ptr %address, ptr %name, ptr %name, i32 %extern, i64 %size, i32 %constant, i32 0)
  ret void

managed:
  ; clang knew no managed variables in CUDA when entries were old.
  br i1 %is.new, label %managed.new, label %done

managed.new:
  ; The host variable is a pointer that the runtime fills in; the entry names it as auxiliary address.
  %pointer.at = getelementptr inbounds %entry, ptr %at, i64 0, i32 8
  %pointer = load ptr, ptr %pointer.at, align 8
  call void @__cudaRegisterManagedVar(ptr %handle, ptr %pointer, ptr %address, ptr %name, i32 %extern, i64 %size, i32 %constant, i32 0)
  ret void

done:
  ret void
}
