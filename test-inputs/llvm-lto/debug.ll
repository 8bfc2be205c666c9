target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

define ptx_kernel void @kernel_UNIT(ptr %p) !dbg !8 {
  %x = load i32, ptr %p, align 4, !dbg !13
    #dbg_value(i32 %x, !12, !DIExpression(), !13)
  %y = call i32 @inlined_UNIT(i32 %x), !dbg !14
  store i32 %y, ptr %p, align 4, !dbg !14
  ret void, !dbg !15
}

define internal i32 @inlined_UNIT(i32 %x) alwaysinline !dbg !16 {
  %y = mul i32 %x, 71, !dbg !17
  ret i32 %y, !dbg !17
}

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}

!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus_14, file: !1, producer: "clang", isOptimized: true, runtimeVersion: 0, emissionKind: KIND, splitDebugInlining: false, nameTableKind: None)
!1 = !DIFile(filename: "UNIT.cu", directory: "/source")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 2, !"Dwarf Version", i32 2}
!4 = !DISubroutineType(types: !5)
!5 = !{null}
!6 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!8 = distinct !DISubprogram(name: "kernel_UNIT", scope: !1, file: !1, line: 7, type: !4, scopeLine: 7, spFlags: DISPFlagDefinition, unit: !0, retainedNodes: !11)
!11 = !{!12}
!12 = !DILocalVariable(name: "local_variable", scope: !8, file: !1, line: 8, type: !6)
!13 = !DILocation(line: 8, column: 3, scope: !8)
!14 = !DILocation(line: 9, column: 3, scope: !8)
!15 = !DILocation(line: 10, column: 1, scope: !8)
!16 = distinct !DISubprogram(name: "inlined_UNIT", scope: !1, file: !1, line: 2, type: !4, scopeLine: 2, spFlags: DISPFlagDefinition, unit: !0)
!17 = !DILocation(line: 3, column: 5, scope: !16)
