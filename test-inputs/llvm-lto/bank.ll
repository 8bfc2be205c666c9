target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

; Two values and zeros: a table of one value is not read at all.
; 1000 bytes: read through a cast, as clang writes it.
@by_cast = internal addrspace(4) constant <{ i32, i32, [248 x i32] }> <{ i32 250, i32 1, [248 x i32] zeroinitializer }>, align 4
; 2000 bytes: the cast is an instruction, then a GEP, a phi and a select of it.
@by_instruction = internal addrspace(4) constant <{ i32, i32, [498 x i32] }> <{ i32 500, i32 1, [498 x i32] zeroinitializer }>, align 4
; 3000 bytes: read in the constant space itself, which only optimisation writes.
@by_space = internal addrspace(4) constant <{ i32, i32, [748 x i32] }> <{ i32 750, i32 1, [748 x i32] zeroinitializer }>, align 4
; 4000 bytes: the address stands in another variable.
@by_table = internal addrspace(4) constant <{ i32, i32, [998 x i32] }> <{ i32 1000, i32 1, [998 x i32] zeroinitializer }>, align 4
@table = internal addrspace(1) constant [2 x ptr] [ptr addrspacecast (ptr addrspace(4) @by_table to ptr), ptr getelementptr (i8, ptr addrspacecast (ptr addrspace(4) @by_table to ptr), i64 8)], align 8
; 5000 bytes: the host writes it.
@by_host = addrspace(4) externally_initialized constant <{ i32, i32, [1248 x i32] }> <{ i32 1250, i32 1, [1248 x i32] zeroinitializer }>, align 4
; 6000 bytes: the host knows its name.
@by_name = internal addrspace(4) constant <{ i32, i32, [1498 x i32] }> <{ i32 1500, i32 1, [1498 x i32] zeroinitializer }>, align 4
; 7000 bytes: the GEP is in the constant space, the cast behind it.
@by_gep = internal addrspace(4) constant <{ i32, i32, [1748 x i32] }> <{ i32 1750, i32 1, [1748 x i32] zeroinitializer }>, align 4

define ptx_kernel void @kernel(ptr %out, i64 %i, i1 %which) {
entry:
  %a = getelementptr inbounds i32, ptr addrspacecast (ptr addrspace(4) @by_cast to ptr), i64 %i
  %av = load i32, ptr %a, align 4
  %generic = addrspacecast ptr addrspace(4) @by_instruction to ptr
  %b = getelementptr inbounds i32, ptr %generic, i64 %i
  br i1 %which, label %left, label %right

left:
  br label %right

right:
  %p = phi ptr [ %b, %entry ], [ %a, %left ]
  %pv = load i32, ptr %p, align 4
  %s = select i1 %which, ptr %generic, ptr %a
  %sv = load i32, ptr %s, align 4
  %c = getelementptr inbounds i32, ptr addrspace(4) @by_space, i64 %i
  %cv = load i32, ptr addrspace(4) %c, align 4
  %t = getelementptr inbounds ptr, ptr addrspacecast (ptr addrspace(1) @table to ptr), i64 %i
  %d = load ptr, ptr %t, align 8
  %dv = load i32, ptr %d, align 4
  %h = getelementptr inbounds i32, ptr addrspacecast (ptr addrspace(4) @by_host to ptr), i64 %i
  %hv = load i32, ptr %h, align 4
  %n = getelementptr inbounds i32, ptr addrspacecast (ptr addrspace(4) @by_name to ptr), i64 %i
  %nv = load i32, ptr %n, align 4
  %g = getelementptr inbounds i32, ptr addrspace(4) @by_gep, i64 %i
  %gg = addrspacecast ptr addrspace(4) %g to ptr
  %gv = load i32, ptr %gg, align 4
  %x1 = add i32 %av, %pv
  %x2 = add i32 %x1, %sv
  %x3 = add i32 %x2, %cv
  %x4 = add i32 %x3, %dv
  %x5 = add i32 %x4, %hv
  %x6 = add i32 %x5, %nv
  %x7 = add i32 %x6, %gv
  store i32 %x7, ptr %out, align 4
  ret void
}
