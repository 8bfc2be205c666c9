target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

@_ZL1v = external addrspace(1) global i32, align 4
@_ZL1v__static__HASH = addrspace(1) externally_initialized global i32 VALUE, align 4
@_ZL1c = external addrspace(4) constant [2 x i32], align 4
@_ZL1c__static__HASH = addrspace(4) externally_initialized constant [2 x i32] [i32 VALUE, i32 VALUE], align 4
@_ZL5other = external addrspace(1) global i32, align 4
@table = internal addrspace(1) global [1 x ptr] [ptr @_ZL1fi], align 8

define ptx_kernel void @kernel_HASH(ptr %p, i64 %i) {
  %v = load i32, ptr addrspacecast (ptr addrspace(1) @_ZL1v to ptr), align 4
  %q = getelementptr inbounds i32, ptr addrspacecast (ptr addrspace(4) @_ZL1c to ptr), i64 %i
  %c = load i32, ptr %q, align 4
  %r = call i32 @_ZL1fi(i32 %c)
  %o = load i32, ptr addrspacecast (ptr addrspace(1) @_ZL5other to ptr), align 4
  %f = load ptr, ptr addrspacecast (ptr addrspace(1) @table to ptr), align 8
  %t = call i32 %f(i32 %o)
  %s = add i32 %v, %r
  %u = add i32 %s, %t
  store i32 %u, ptr %p, align 4
  ret void
}

define i32 @_ZL1fi__intern__HASH(i32 %x) {
  %y = mul i32 %x, VALUE
  ret i32 %y
}

declare i32 @_ZL1fi(i32)
