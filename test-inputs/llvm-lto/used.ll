target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

$template_kernel = comdat any
$inline_function = comdat any

@retained_variable = addrspace(1) global i32 1, align 4
@registered_variable = hidden addrspace(1) externally_initialized global i32 2, align 4
@hidden_variable = hidden addrspace(1) global i32 3, align 4
@local_variable = internal addrspace(1) global i32 4, align 4
@__clang_gpu_used_external = internal global [2 x ptr] [ptr @kernel_of_another_object, ptr addrspacecast (ptr addrspace(1) @variable_of_another_object to ptr)]
@variable_of_another_object = external addrspace(1) global i32, align 4
@llvm.used = appending global [1 x ptr] [ptr addrspacecast (ptr addrspace(1) @retained_variable to ptr)], section "llvm.metadata"
@llvm.compiler.used = appending global [2 x ptr] [ptr @compiler_used, ptr @__clang_gpu_used_external], section "llvm.metadata"

define ptx_kernel void @plain_kernel(ptr %p) {
  %x = call i32 @outer(i32 1)
  %y = call i32 @inline_function(i32 %x)
  %v = load i32, ptr addrspacecast (ptr addrspace(1) @hidden_variable to ptr), align 4
  store i32 %v, ptr addrspacecast (ptr addrspace(1) @local_variable to ptr), align 4
  store i32 %y, ptr %p, align 4
  ret void
}

define hidden ptx_kernel void @hidden_kernel(ptr %p) {
  store i32 0, ptr %p, align 4
  ret void
}

define linkonce_odr ptx_kernel void @template_kernel(ptr %p) comdat {
  store i32 1, ptr %p, align 4
  ret void
}

define weak_odr protected ptx_kernel void @instantiated_kernel(ptr %p) {
  store i32 2, ptr %p, align 4
  ret void
}

define internal ptx_kernel void @static_kernel(ptr %p) {
  store i32 3, ptr %p, align 4
  ret void
}

define i32 @outer(i32 %x) noinline {
  %y = add i32 %x, 41
  ret i32 %y
}

define linkonce_odr i32 @inline_function(i32 %x) noinline comdat {
  %y = mul i32 %x, 43
  ret i32 %y
}

define i32 @compiler_used(i32 %x) {
  ret i32 %x
}

declare ptx_kernel void @kernel_of_another_object(ptr)
