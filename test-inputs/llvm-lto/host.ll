target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

%struct.__tgt_offload_entry = type { i64, i16, i16, i32, ptr, ptr, i64, i64, ptr }

$inline_function = comdat any

@variable = global [4 x float] undef, align 16
@static_variable = internal global i32 undef, align 4
@extern_variable = external global i32, align 4
@weak_reference = extern_weak global i32, align 4
@common_variable = common global i32 0, align 4
@weak_variable = weak global i32 0, align 4
@"\01renamed" = global i32 1, align 4

@kernel_name = internal unnamed_addr constant [12 x i8] c"_Z1kIiEvPT_\00", section ".llvm.rodata.offloading", align 1
@.offloading.entry._Z1kIiEvPT_ = weak local_unnamed_addr constant %struct.__tgt_offload_entry { i64 0, i16 1, i16 2, i32 0, ptr @stub, ptr @kernel_name, i64 0, i64 0, ptr null }, section "llvm_offload_entries", align 8
@variable_name = internal unnamed_addr constant [9 x i8] c"variable\00", section ".llvm.rodata.offloading", align 1
@.offloading.entry.variable = weak local_unnamed_addr constant %struct.__tgt_offload_entry { i64 0, i16 1, i16 2, i32 16, ptr @variable, ptr @variable_name, i64 16, i64 0, ptr null }, section "llvm_offload_entries", align 8
@static_name = internal unnamed_addr constant [22 x i8] c"static_variable__1234\00", section ".llvm.rodata.offloading", align 1
@.offloading.entry.static = internal constant %struct.__tgt_offload_entry { i64 0, i16 1, i16 4, i32 1, ptr @static_variable, ptr @static_name, i64 4, i64 0, ptr null }, section "llvm_offload_entries", align 8

; What is no entry, although it stands among them.
@too_short = internal constant { i64, ptr } { i64 1, ptr @stub }, section "llvm_offload_entries", align 8
@no_name = internal constant %struct.__tgt_offload_entry { i64 0, i16 1, i16 2, i32 0, ptr @stub, ptr null, i64 0, i64 0, ptr null }, section "llvm_offload_entries", align 8
@extern_name = external constant [4 x i8]
@name_elsewhere = internal constant %struct.__tgt_offload_entry { i64 0, i16 1, i16 2, i32 0, ptr @stub, ptr @extern_name, i64 0, i64 0, ptr null }, section "llvm_offload_entries", align 8
@zero_entry = internal constant %struct.__tgt_offload_entry zeroinitializer, section "llvm_offload_entries", align 8
@entry_reference = external constant %struct.__tgt_offload_entry, section "llvm_offload_entries", align 8

@llvm.embedded.object = private constant [8 x i8] c"\10\FF\10\AD\00\01\02\03", section ".llvm.offloading", align 8
@llvm.embedded.object.1 = private constant [4 x i8] c"abcd", section ".llvm.offloading", align 8
@elsewhere = internal constant [4 x i8] c"efgh", section ".rodata.mine"
@llvm.compiler.used = appending global [3 x ptr] [ptr @llvm.embedded.object, ptr @llvm.embedded.object.1, ptr @static_variable], section "llvm.metadata"

@alias = alias void (), ptr @main_part

define void @stub(ptr %p) {
  call void @extern_function(ptr %p)
  ret void
}

define hidden void @main_part() {
  call void @inline_function()
  ret void
}

define internal void @static_function() {
  ret void
}

define linkonce_odr void @inline_function() comdat {
  ret void
}

define available_externally void @header_function() {
  ret void
}

declare void @extern_function(ptr)
declare void @unused_reference()
