target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

$inline_function = comdat any

@device_variable = addrspace(1) externally_initialized global i32 0, align 4
@constant_variable = addrspace(4) externally_initialized constant i32 1, align 4
@shared_variable = internal addrspace(3) global [32 x i32] undef, align 4
@extern_variable = external addrspace(1) global i32, align 4
@weak_variable = weak addrspace(1) global i32 0, align 4
@weak_reference = extern_weak addrspace(1) global i32, align 4
@common_variable = common addrspace(1) global i32 0, align 4
@private_variable = private unnamed_addr addrspace(4) constant [2 x i8] c"a\00", align 1
@llvm.compiler.used = appending global [1 x ptr] [ptr addrspacecast (ptr addrspace(1) @device_variable to ptr)], section "llvm.metadata"

@alias_function = alias i32 (i32), ptr @device_function

define ptx_kernel void @kernel(ptr %p) #0 !dbg !10 {
  %x = load i32, ptr addrspacecast (ptr addrspace(1) @extern_variable to ptr), align 4
  %y = call i32 @extern_function(i32 %x)
  %z = call i32 @inline_function(i32 %y)
  store i32 %z, ptr %p, align 4
  ret void
}

define weak_odr ptx_kernel void @template_kernel(ptr %p) #0 {
  store i32 0, ptr %p, align 4
  ret void
}

define i32 @device_function(i32 %x) #1 {
  ret i32 %x
}

define internal i32 @static_function(i32 %x) #1 {
  ret i32 %x
}

define linkonce_odr i32 @inline_function(i32 %x) #2 comdat {
  %y = call i32 @static_function(i32 %x)
  ret i32 %y
}

define available_externally i32 @header_function(i32 %x) {
  ret i32 %x
}

declare ptx_kernel void @extern_kernel(ptr)
declare i32 @extern_function(i32) #3
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()

attributes #0 = { "target-cpu"="sm_80" "target-features"="+ptx75,+sm_80" }
attributes #1 = { noinline optnone "target-cpu"="sm_90" "target-features"="+ptx78,+sm_90" }
attributes #2 = { "target-cpu"="sm_80" "target-features"="+ptx9,+sm_80" }
attributes #3 = { "target-features"="+ptx75,+sm_80" }

!llvm.dbg.cu = !{!5}
!llvm.ident = !{!0, !1}
!llvm.commandline = !{!2}
!llvm.module.flags = !{!3, !4}

!0 = !{!"clang version 22.1.8"}
!1 = !{!"clang version 3.8.0 (tags/RELEASE_380/final)"}
!2 = !{!"clang -cc1 -O3 --offload-arch=sm_80 \22a b.cu\22"}
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = !{i32 7, !"Dwarf Version", i32 2}
!5 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus_14, file: !6, producer: "clang", isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)
!6 = !DIFile(filename: "a.cu", directory: "/")
!7 = !DISubroutineType(types: !8)
!8 = !{null}
!10 = distinct !DISubprogram(name: "kernel", scope: !6, file: !6, line: 1, type: !7, scopeLine: 1, unit: !5, spFlags: DISPFlagDefinition)
