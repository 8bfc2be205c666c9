; The launch guard. A launch on a GPU that no image of the program fits fails with an error code that hardly anybody looks at: the kernel
; simply does not run. The link has the host's references to the calls in question go through guard-launch.ll and guard-call.ll (`--wrap=`),
; which look at the result; what is here runs only if that is an error. Once for each program or shared object it says which GPU there is,
; what the program holds and what to do. The words are data of the link (`wrap/guard.rs`).
;
; The program must see nothing of this: the error is passed on, errno is kept, and the runtime is only asked what succeeds on a device in
; use, so that its last error stays the failure's. Everything from outside is a weak reference: a program that linked without it still
; does, and then less is said.

source_filename = "warplink.guard"

; What dl_iterate_phdr tells of a loaded file (dladdr would do, but binds a shared object to glibc 2.34): base, name, program headers.
%loaded = type { i64, ptr, ptr, i16 }
; ELF64's program header: type, flags, offset, virtual address, physical address, size in the file and in memory, alignment.
%segment = type { i32, i32, i64, i64, i64, i64, i64, i64 }

; What to say of an error on a GPU of at least some architecture: offsets of what is wrong and of what to do in the texts.
%case = type { i32, i32, i32, i32 }

; The data that a link adds. Cases in the order in which they are tried, with an error of 0 behind the last one; the texts begin with the
; format of the message.
@.cuda.guard_cases = external hidden constant [0 x %case], align 4
@.cuda.guard_texts = external hidden constant [0 x i8], align 1
@.cuda.guard_holds = external hidden constant [0 x i8], align 1

@.cuda.guard_said = internal global i32 0, align 4

@.silence = internal constant [22 x i8] c"WARPLINK_LAUNCH_GUARD\00"
@.force = internal constant [19 x i8] c"CUDA_FORCE_PTX_JIT\00"
@.program = internal constant [13 x i8] c"this program\00"
@.unknown = internal constant [8 x i8] c"unknown\00"
@.native = internal constant [7 x i8] c"native\00"
@.version = internal constant [6 x i8] c"%d.%d\00"
@.arch = internal constant [8 x i8] c"sm_%d%d\00"

declare extern_weak ptr @__errno_location()
declare extern_weak ptr @getenv(ptr)
declare extern_weak i32 @snprintf(ptr, i64, ptr, ...)
declare extern_weak i64 @write(i32, ptr, i64)
declare extern_weak i32 @dl_iterate_phdr(ptr, ptr)
declare extern_weak i32 @cudaGetDevice(ptr)
declare extern_weak i32 @cudaDeviceGetAttribute(ptr, i32, i32)
declare extern_weak i32 @cudaGetDeviceProperties(ptr, i32)
declare extern_weak i32 @cudaDriverGetVersion(ptr)
@program_invocation_name = extern_weak global ptr

define internal void @.cuda.guard_say(i32 %error) cold noinline nounwind {
begin:
  %before = load atomic i32, ptr @.cuda.guard_said monotonic, align 4
  %is.first = icmp eq i32 %before, 0
  br i1 %is.first, label %look, label %leave

look:
  %known = call ptr @.cuda.guard_case(i32 %error, i32 2147483647)
  %is.known = icmp ne ptr %known, null
  br i1 %is.known, label %claim, label %leave

leave:
  ret void

claim:
  %claimed = cmpxchg ptr @.cuda.guard_said, i32 0, i32 1 monotonic monotonic
  %is.ours = extractvalue { i32, i1 } %claimed, 1
  %has.errno = icmp ne ptr @__errno_location, null
  %has.getenv = icmp ne ptr @getenv, null
  %has.snprintf = icmp ne ptr @snprintf, null
  %has.write = icmp ne ptr @write, null
  %can.1 = and i1 %has.errno, %has.getenv
  %can.2 = and i1 %has.snprintf, %has.write
  %can.3 = and i1 %can.1, %can.2
  %can = and i1 %can.3, %is.ours
  br i1 %can, label %ask, label %leave

ask:
  %setting = call ptr @getenv(ptr @.silence)
  %is.set = icmp ne ptr %setting, null
  br i1 %is.set, label %set, label %speak

; 0, no, n, false, off, in any of the usual spellings.
set:
  %first = load i8, ptr %setting, align 1
  switch i8 %first, label %speak [
    i8 48, label %leave
    i8 110, label %leave
    i8 78, label %leave
    i8 102, label %leave
    i8 70, label %leave
    i8 111, label %off
    i8 79, label %off
  ]

off:
  %second.at = getelementptr i8, ptr %setting, i64 1
  %second = load i8, ptr %second.at, align 1
  %second.lower = or i8 %second, 32
  %is.off = icmp eq i8 %second.lower, 102
  br i1 %is.off, label %leave, label %speak

speak:
  call void @.cuda.guard_print(i32 %error)
  ret void
}

define internal void @.cuda.guard_print(i32 %error) cold noinline nounwind {
begin:
  %errno.at = call ptr @__errno_location()
  %errno = load i32, ptr %errno.at, align 4
  %device = alloca i32, align 4
  %major.at = alloca i32, align 4
  %minor.at = alloca i32, align 4
  %version.at = alloca i32, align 4
  %file.at = alloca ptr, align 8
  %arch.text = alloca [32 x i8], align 1
  %driver.text = alloca [32 x i8], align 1
  %advice.text = alloca [512 x i8], align 1
  %message = alloca [4096 x i8], align 1
  ; The name comes first in cudaDeviceProp, in every release; the rest has grown to about 1000 bytes by CUDA 13.
  %properties = alloca [8192 x i8], align 8
  store i32 0, ptr %version.at, align 4
  store ptr null, ptr %file.at, align 8

  %has.iterate = icmp ne ptr @dl_iterate_phdr, null
  br i1 %has.iterate, label %find.file, label %no.file

find.file:
  %found = call i32 @dl_iterate_phdr(ptr @.cuda.guard_file, ptr %file.at)
  %file = load ptr, ptr %file.at, align 8
  %has.file = icmp ne ptr %file, null
  br i1 %has.file, label %read.file, label %no.file

; The name of the program itself is empty there.
read.file:
  %file.first = load i8, ptr %file, align 1
  %is.shared = icmp ne i8 %file.first, 0
  br i1 %is.shared, label %program, label %no.file

no.file:
  %has.invocation = icmp ne ptr @program_invocation_name, null
  br i1 %has.invocation, label %invocation, label %program

invocation:
  %invoked = load ptr, ptr @program_invocation_name, align 8
  br label %program

program:
  %name = phi ptr [ %file, %read.file ], [ %invoked, %invocation ], [ @.program, %no.file ]
  %has.device = icmp ne ptr @cudaGetDevice, null
  %has.attribute = icmp ne ptr @cudaDeviceGetAttribute, null
  %can.ask = and i1 %has.device, %has.attribute
  br i1 %can.ask, label %ask.device, label %no.gpu

ask.device:
  %got.device = call i32 @cudaGetDevice(ptr %device)
  %no.device = icmp ne i32 %got.device, 0
  br i1 %no.device, label %no.gpu, label %ask.major

; cudaDevAttrComputeCapabilityMajor and Minor.
ask.major:
  %number = load i32, ptr %device, align 4
  %got.major = call i32 @cudaDeviceGetAttribute(ptr %major.at, i32 75, i32 %number)
  %no.major = icmp ne i32 %got.major, 0
  br i1 %no.major, label %no.gpu, label %ask.minor

ask.minor:
  %got.minor = call i32 @cudaDeviceGetAttribute(ptr %minor.at, i32 76, i32 %number)
  %no.minor = icmp ne i32 %got.minor, 0
  br i1 %no.minor, label %no.gpu, label %arch

arch:
  %major = load i32, ptr %major.at, align 4
  %minor = load i32, ptr %minor.at, align 4
  %written.arch = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %arch.text, i64 32, ptr @.arch, i32 %major, i32 %minor)
  %tens = mul i32 %major, 10
  %sm = add i32 %tens, %minor
  %has.properties = icmp ne ptr @cudaGetDeviceProperties, null
  br i1 %has.properties, label %ask.name, label %gpu.unnamed

ask.name:
  store i8 0, ptr %properties, align 8
  %got.properties = call i32 @cudaGetDeviceProperties(ptr %properties, i32 %number)
  %is.nameless = icmp ne i32 %got.properties, 0
  br i1 %is.nameless, label %gpu.unnamed, label %gpu

gpu.unnamed:
  br label %gpu

no.gpu:
  br label %gpu

gpu:
  %gpu.arch = phi ptr [ %arch.text, %ask.name ], [ %arch.text, %gpu.unnamed ], [ @.native, %no.gpu ]
  %gpu.name = phi ptr [ %properties, %ask.name ], [ @.unknown, %gpu.unnamed ], [ @.unknown, %no.gpu ]
  %gpu.sm = phi i32 [ %sm, %ask.name ], [ %sm, %gpu.unnamed ], [ 0, %no.gpu ]
  %has.driver = icmp ne ptr @cudaDriverGetVersion, null
  br i1 %has.driver, label %ask.driver, label %no.driver

ask.driver:
  %got.driver = call i32 @cudaDriverGetVersion(ptr %version.at)
  %version = load i32, ptr %version.at, align 4
  %driver.failed = icmp ne i32 %got.driver, 0
  %driver.absent = icmp eq i32 %version, 0
  %is.no.driver = or i1 %driver.failed, %driver.absent
  br i1 %is.no.driver, label %no.driver, label %has.version

has.version:
  %driver.major = sdiv i32 %version, 1000
  %driver.rest = srem i32 %version, 1000
  %driver.minor = sdiv i32 %driver.rest, 10
  %written.driver = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %driver.text, i64 32, ptr @.version, i32 %driver.major, i32 %driver.minor)
  br label %driver

no.driver:
  br label %driver

driver:
  %driver.name = phi ptr [ %driver.text, %has.version ], [ @.unknown, %no.driver ]
  ; Cases for this setting have an architecture that no GPU has.
  %forced = call ptr @getenv(ptr @.force)
  %is.forced = icmp ne ptr %forced, null
  br i1 %is.forced, label %only.ptx, label %any.image

only.ptx:
  %case.forced = call ptr @.cuda.guard_case(i32 %error, i32 -1)
  %has.forced = icmp ne ptr %case.forced, null
  br i1 %has.forced, label %tell, label %any.image

any.image:
  %case.usual = call ptr @.cuda.guard_case(i32 %error, i32 %gpu.sm)
  %has.usual = icmp ne ptr %case.usual, null
  br i1 %has.usual, label %tell, label %done

tell:
  %case = phi ptr [ %case.forced, %only.ptx ], [ %case.usual, %any.image ]
  %what.at = getelementptr %case, ptr %case, i64 0, i32 2
  %what.offset = load i32, ptr %what.at, align 4
  %what.long = zext i32 %what.offset to i64
  %what = getelementptr i8, ptr @.cuda.guard_texts, i64 %what.long
  %advice.at = getelementptr %case, ptr %case, i64 0, i32 3
  %advice.offset = load i32, ptr %advice.at, align 4
  %advice.long = zext i32 %advice.offset to i64
  %advice = getelementptr i8, ptr @.cuda.guard_texts, i64 %advice.long
  %written.advice = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %advice.text, i64 512, ptr %advice, ptr %gpu.arch)
  %length = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %message, i64 4096, ptr @.cuda.guard_texts, ptr %name, ptr %what, i32 %error, ptr %gpu.name, ptr %gpu.arch, ptr %driver.name, ptr %name, ptr @.cuda.guard_holds, ptr %advice.text)
  %is.long = icmp sgt i32 %length, 4095
  %shown = select i1 %is.long, i32 4095, i32 %length
  %is.text = icmp sgt i32 %shown, 0
  br i1 %is.text, label %print, label %done

print:
  %size = zext i32 %shown to i64
  %ignored = call i64 @write(i32 2, ptr %message, i64 %size)
  br label %done

done:
  store i32 %errno, ptr %errno.at, align 4
  ret void
}

; Called for each loaded file: notes the name of the one that this code is in.
define internal i32 @.cuda.guard_file(ptr %loaded, i64 %size, ptr %name.at) cold noinline nounwind {
begin:
  %base = load i64, ptr %loaded, align 8
  %segments.at = getelementptr %loaded, ptr %loaded, i64 0, i32 2
  %segments = load ptr, ptr %segments.at, align 8
  %count.at = getelementptr %loaded, ptr %loaded, i64 0, i32 3
  %count.short = load i16, ptr %count.at, align 8
  %count = zext i16 %count.short to i64
  %here = ptrtoint ptr @.cuda.guard_said to i64
  br label %test

test:
  %index = phi i64 [ 0, %begin ], [ %following, %next ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %look, label %no

look:
  %segment = getelementptr %segment, ptr %segments, i64 %index
  %type = load i32, ptr %segment, align 8
  %address.at = getelementptr %segment, ptr %segment, i64 0, i32 3
  %address = load i64, ptr %address.at, align 8
  %length.at = getelementptr %segment, ptr %segment, i64 0, i32 6
  %length = load i64, ptr %length.at, align 8
  %start = add i64 %base, %address
  %distance = sub i64 %here, %start
  %is.loaded = icmp eq i32 %type, 1
  %is.inside = icmp ult i64 %distance, %length
  %is.ours = and i1 %is.loaded, %is.inside
  br i1 %is.ours, label %yes, label %next

next:
  %following = add nuw i64 %index, 1
  br label %test

yes:
  %file.at = getelementptr %loaded, ptr %loaded, i64 0, i32 1
  %file = load ptr, ptr %file.at, align 8
  store ptr %file, ptr %name.at, align 8
  ret i32 1

no:
  ret i32 0
}

; The first case for an error on a GPU of this architecture.
define internal ptr @.cuda.guard_case(i32 %error, i32 %sm) cold noinline nounwind {
begin:
  br label %test

test:
  %case = phi ptr [ @.cuda.guard_cases, %begin ], [ %following, %next ]
  %known = load i32, ptr %case, align 4
  %is.end = icmp eq i32 %known, 0
  br i1 %is.end, label %none, label %compare

compare:
  %lowest.at = getelementptr %case, ptr %case, i64 0, i32 1
  %lowest = load i32, ptr %lowest.at, align 4
  %is.error = icmp eq i32 %known, %error
  %is.high = icmp sge i32 %sm, %lowest
  %fits = and i1 %is.error, %is.high
  br i1 %fits, label %found, label %next

next:
  %following = getelementptr %case, ptr %case, i64 1
  br label %test

found:
  ret ptr %case

none:
  ret ptr null
}
